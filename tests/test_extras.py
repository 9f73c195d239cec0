"""The core works without the packages of the extras, and whatever needs one names it."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from gbnf.extras import PACKAGES, missing_extra
from gbnf_server.system.folders import manifests_path
from support.oracle import CHECKOUT

FORMATS = (
    "fqdn", "idna", "isoduration", "jsonpointer", "rfc3339_validator", "rfc3986_validator", "uri_template",
    "webcolors",
)  # fmt: skip
ABSENT = [
    *(PACKAGES.keys() - {"pydantic", "pydantic_core"}),
    *FORMATS,
]  # pydantic: a release of typer needs it


def run(program: str, *arguments: str, absent: list[str] = ABSENT) -> subprocess.CompletedProcess[str]:
    """Run a program in which the packages cannot be found."""
    finder = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {absent!r} else found(name, *more)
sys.meta_path.insert(0, Absent())
"""
    command = [sys.executable, "-c", finder + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, timeout=300)


def gbnf(*commands: list[str]) -> list[tuple[int, str, str]]:
    """Run commands of the core in one process. Return the status, the output and the errors of each."""
    program = """
import contextlib, io, json, sys
from gbnf_server.cli import main
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as exited:
            code = exited.code
    print(json.dumps([code or 0, out.getvalue(), err.getvalue()]))
"""
    done = run(program, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_central_names_need_few_modules() -> None:
    done = run("""
before = set(sys.modules)
from gbnf import Grammar, compile_schema, load_tools, validate_call
new = {name for name in sys.modules.keys() - before if name.partition(".")[0] not in sys.stdlib_module_names}
assert len(new) <= 100, (len(new), sorted(new))
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_gbnf_and_the_http_backends_need_no_extra() -> None:
    done = run("""
import importlib, pkgutil, gbnf
for module in pkgutil.walk_packages(gbnf.__path__, "gbnf."):
    importlib.import_module(module.name)
import gbnf_server.backends
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_http_backends_need_no_llama_cpp() -> None:
    pytest.importorskip("httpx")
    done = run(
        "from gbnf_server.backends import base, llama_server, ollama, openai_compatible",
        absent=["llama_cpp", "numpy"],
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_commands_of_the_core(tmp_path: Path) -> None:
    tool, file = str(manifests_path() / "get_now"), tmp_path / "tool.gbnf"
    call = '{"name": "get_now", "arguments": {}}'
    *others, grammar = gbnf(
        ["--version"], ["--help"], ["run", "--help"], ["manifests"], ["doctor"], ["compile", tool]
    )
    assert [code for code, *_ in (*others, grammar)] == [0] * 6, others
    file.write_text(grammar[1], encoding="utf-8")
    read, accepted, refused, tested = gbnf(
        ["check", str(file)],
        ["check", str(file), call],
        ["check", str(file), call[:-1]],
        ["test", tool, "--examples", "3"],
    )
    assert read[1].endswith("accepted by this toolkit\n")
    assert (accepted[0], refused[0]) == (0, 1)
    assert "sound and complete" in tested[1], tested
    assert "this toolkit's matcher" in tested[1]


@pytest.mark.slow
def test_a_command_names_its_extra() -> None:
    extras = {
        "run what": "run", "call get_now {}": "run", "serve": "serve", "mcp": "mcp", "inspect": "inspect",
        "lsp": "lsp",
        "compile --mcp true": "mcp",
    }  # fmt: skip
    for extra, (code, _, message) in zip(extras.values(), gbnf(*map(str.split, extras)), strict=True):
        assert code == 4
        found = re.search(rf"\A.*pip install 'gbnf-toolkit\[{extra}(,local)?\]'\n(.*\n)?\Z", message)
        assert found
        compiles = (sys.platform, platform.machine()) != ("linux", "x86_64") and (extra == "run" or found[1])
        assert ("This compiles llama.cpp, in about " in message) == bool(compiles)


def test_a_program_gets_the_same_message() -> None:
    done = run("from gbnf_server import LlamaServer")
    assert "gbnf.extras.MissingExtraError: httpx is not installed. Install it: " in done.stderr


@pytest.mark.slow
def test_a_function_without_pydantic_names_the_extra() -> None:
    done = run("from gbnf import load_tools\nload_tools(lambda x: x)", absent=[*ABSENT, "pydantic"])
    assert "pydantic is not installed." in done.stderr
    assert "gbnf-toolkit[functions]" in done.stderr


def test_other_modules_that_are_missing_belong_to_no_extra() -> None:
    assert missing_extra(ModuleNotFoundError("no module", name="somebody_elses")) is None
    assert missing_extra(ImportError("a broken numpy", name="numpy")) is None


@pytest.mark.slow
def test_each_package_is_in_its_extra() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 11
    distributions = packages_distributions()
    for package in PACKAGES.keys() & distributions.keys() - {"mcp_types", "pydantic_core"}:
        required = {
            re.split(r"[<>=;\[ ]", one)[0].replace("-", "_").lower()
            for one in project["optional-dependencies"][PACKAGES[package]]
        }
        assert required & {name.replace("-", "_").lower() for name in distributions[package]}, package
