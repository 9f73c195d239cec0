"""Change one operator, constant or statement at a time, and count the changes that the tests notice.

    python bench/mutants.py PATH… [--number N] [--seed N] [-m MARKERS] [--tests PATH]… [--json FILE]
    python bench/mutants.py --again FILE [--every] [-m MARKERS] [--tests PATH]… [--json FILE]

A mutant is the code with one change. It is killed if a test fails, or if the tests take several times as long
as without the change. The mutants that survive show what no test covers, apart from those that behave like
the original. PATH is a file or folder of code; its tests are those of the package that mirrors it
(`gbnf/compiler`: `tests/gbnf/compiler`), unless `--tests` names others. The same seed chooses the same
mutants of the same code. `--again` takes the survivors of an earlier run, which `--json` has written, and
with `--every` all its mutants. They are found by the text of their lines, which may have moved since.

The tests run in a copy of the checkout, and each mutant in a process that is forked from this one.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tables import new_table, show

_CHECKOUT = Path(__file__).resolve().parents[1]
_COPIED = ("gbnf", "server", "manifests", "tests", "bench", "docs", "pyproject.toml", "README.md")
_ON_THE_PATH = ("", "server", "tests", "bench")
#: Packages that take long to import, none of them from this checkout: each process has them from the start.
_PRELOADED = (
    "pytest",
    "hypothesis",
    "jsonschema",
    "lark",
    "regex",
    "httpx",
    "llama_cpp",
    "numpy",
    "starlette",
)
_MEMORY = 6 << 30

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """The change of one place in a file: `begin` and `end` are offsets in its UTF-8 text.

    `context` is the line of `begin`, without its indent and with a mark at `begin`.
    """

    file: str
    line: int
    kind: str
    before: str
    after: str
    begin: int
    end: int
    context: str

    def source(self, text: bytes) -> bytes:
        """Return the text of the file with the change."""
        assert text[self.begin : self.end].decode() == self.before
        return text[: self.begin] + self.after.encode() + text[self.end :]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a mutant (`killed`, `timed out` or `survived`), the test that failed, and the time."""

    mutant: Mutant
    outcome: str
    test: str
    seconds: float


@cache
def mutants(text: str, file: str = "") -> list[Mutant]:
    """Return every mutant of a module, in the order of its text."""
    tree = ast.parse(text)
    starts = [0]
    lines = text.encode().splitlines(keepends=True)
    for line in lines:
        starts.append(starts[-1] + len(line))
    changes = []
    for node, kind, after in _changes(tree):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = text.encode()[begin:end].decode()
        line = lines[node.lineno - 1]
        context = f"{line[: node.col_offset].decode().lstrip()}¦{line[node.col_offset :].decode().rstrip()}"
        mutant = Mutant(file, node.lineno, kind, before, after, begin, end, context)
        with suppress(SyntaxError):  # where an expression needs a form that the change does not keep
            if ast.dump(ast.parse(mutant.source(text.encode()))) != ast.dump(tree):
                changes.append(mutant)
    return sorted(changes, key=lambda mutant: (mutant.begin, mutant.end, mutant.kind))


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Yield each node that can be changed, the kind of change, and the text that replaces it."""
    for node in _executed(tree):
        match node:
            case ast.Compare(ops=ops):
                for number, operator in enumerate(ops):
                    changed = copy.deepcopy(node)
                    changed.ops[number] = _COMPARED[type(operator)]()
                    yield node, "comparison", f"({ast.unparse(changed)})"
            case ast.BoolOp(op=operator):
                changed_bool = copy.deepcopy(node)
                changed_bool.op = ast.And() if isinstance(operator, ast.Or) else ast.Or()
                yield node, "boolean", f"({ast.unparse(changed_bool)})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, "boolean", f"({ast.unparse(operand)})"
            case ast.BinOp(op=operator, left=left) if type(operator) in _CALCULATED and not _is_text(left):
                changed_sum = copy.deepcopy(node)
                changed_sum.op = _CALCULATED[type(operator)]()
                yield node, "arithmetic", f"({ast.unparse(changed_sum)})"
            case ast.Constant(value=bool() as value):
                yield node, "constant", str(not value)
            case ast.Constant(value=int() as value):
                yield node, "constant", str(value + 1)
            case ast.IfExp(body=body, orelse=orelse, test=test):
                changed_if = ast.IfExp(test=test, body=orelse, orelse=body)
                yield node, "branches", f"({ast.unparse(changed_if)})"
            case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Constant):
                yield test, "condition", f"(not ({ast.unparse(test)}))"
            case ast.Expr(value=value) if not isinstance(value, ast.Constant):
                yield node, "deletion", "pass"
            case ast.AugAssign() | ast.Raise() | ast.Delete():
                yield node, "deletion", "pass"
            case ast.Break() | ast.Continue():
                yield node, "jump", "continue" if isinstance(node, ast.Break) else "break"
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield node, "return", "return None"
            case _:
                pass


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, and nothing within a formatted text, whose words are free."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                    continue
                yield child
                yield from _executed(child)


def sample(paths: Sequence[Path], number: int, seed: int, root: Path = _CHECKOUT) -> list[Mutant]:
    """Choose mutants of the files at random, or all of them if they are fewer than `number`."""
    files = sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))})
    every = [
        mutant
        for file in files
        for mutant in mutants(file.read_text(), file.resolve().relative_to(root).as_posix())
    ]
    chosen = random.Random(seed).sample(range(len(every)), min(number, len(every)))
    return [every[position] for position in sorted(chosen)]


def found_again(earlier: Mutant, root: Path = _CHECKOUT) -> Mutant | None:
    """Return the like of a mutant of an earlier checkout: in its file, or else in any file with its line."""
    line = earlier.context.replace("¦", "", 1)
    for file in (root / earlier.file, *sorted(root.glob("[!.]*/**/*.py"))):
        if file.is_file() and line in (text := file.read_text()):
            candidates = mutants(text, file.relative_to(root).as_posix())
            alike = [candidate for candidate in candidates if _change(candidate) == _change(earlier)]
            if alike:
                return min(alike, key=lambda candidate: abs(candidate.begin - earlier.begin))
    return None


def _change(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.kind, mutant.after, mutant.context


def mirrored(file: str) -> list[str]:
    """Return where the tests of a file are: the module of its name first, then the folder of its package."""
    folder = Path("tests", *Path(file.removeprefix("server/")).parent.parts)
    while not (_CHECKOUT / folder).exists():
        folder = folder.parent
    module = folder / f"test_{Path(file).name}"
    with_engine = Path("tests", "engine", module.name)
    return [str(path) for path in (module, with_engine, folder) if (_CHECKOUT / path).exists()]


def copied(folder: Path) -> Path:
    """Copy what the tests need of the checkout into the folder."""
    for name in _COPIED:
        source = _CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


class Runner:
    """Runs tests in a copy of the checkout, those with the `markers` only.

    The tests may take four times as long as without a change, and `least_s` seconds more, of CPU or in all.
    """

    def __init__(self, folder: Path, markers: str = "", least_s: float = 10.0) -> None:
        self._folder, self._markers, self._least_s = folder, markers, least_s
        self._usual: dict[tuple[str, ...], tuple[float, float]] = {}

    def verdict(self, mutant: Mutant, tests: Sequence[str]) -> Verdict:
        """Return what the tests say of the mutant.

        Raises:
            typer.BadParameter: They fail without any change.
        """
        limits = [4 * usual + self._least_s for usual in self._usual_s(tests)]
        file = self._folder / mutant.file
        original = file.read_bytes()
        for stale in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            stale.unlink()  # it is compared by its time and size, which may be the same
        try:
            file.write_bytes(mutant.source(original))
            code, seconds, test = self._run(tests, *limits)
        finally:
            file.write_bytes(original)
        outcome = "survived" if code == 0 else "timed out" if code is None else "killed"
        return Verdict(mutant, outcome, test, round(seconds, 1))

    def _usual_s(self, tests: Sequence[str]) -> tuple[float, float]:
        """Return the seconds of CPU, and in all, of the tests without a change. Fills caches, too."""
        key = tuple(
            sorted(path for path in tests if not any(Path(other) in Path(path).parents for other in tests))
        )
        if key not in self._usual:
            begin = time.monotonic()
            code, seconds, test = self._run(tests, 3600.0, 3600.0, with_caches=True)
            if code != 0:
                raise typer.BadParameter(f"the tests fail without a mutant: {test or code}")
            self._usual[key] = seconds, time.monotonic() - begin
        return self._usual[key]

    def _run(
        self, tests: Sequence[str], limit_s: float, wall_s: float, *, with_caches: bool = False
    ) -> tuple[int | None, float, str]:
        """Return the exit status of pytest (`None` beyond a limit), the CPU seconds, and what failed."""
        log = self._folder / "log"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        pid = os.fork()
        if not pid:
            self._work(tests, log, limit_s, with_caches=with_caches)
        end = time.monotonic() + wall_s
        status = None
        while status is None and time.monotonic() < end:
            done, code = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if done else None
            time.sleep(0.02)
        with suppress(ProcessLookupError):  # the processes that its tests have started end with it
            os.killpg(pid, signal.SIGKILL)
        if status is None:
            os.waitpid(pid, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        failed = next(
            (line for line in log.read_text().splitlines() if line.startswith(("FAILED", "ERROR"))), ""
        )
        return None if status == -signal.SIGXCPU else status, seconds, failed[:160]

    def _work(self, tests: Sequence[str], log: Path, limit_s: float, *, with_caches: bool) -> None:
        """Run the tests in this process, which then ends."""
        code = 70
        try:
            os.setsid()
            os.chdir(self._folder)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(output, stream)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 5))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            sys.dont_write_bytecode = not with_caches
            folders = [str(self._folder / name) for name in _ON_THE_PATH]
            sys.path[:0] = folders
            os.environ["PYTHONPATH"] = os.pathsep.join(folders)
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            os.environ.pop("PYTEST_ADDOPTS", None)  # such as a coverage that these few tests do not reach
            pytest = importlib.import_module("pytest")
            options = ["-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider"]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are loaded before it
            code = int(pytest.main([*options, *(["-m", self._markers] if self._markers else []), *tests]))
        except BaseException:  # noqa: BLE001  # it ends here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def report(verdicts: Sequence[Verdict]) -> Table:
    """Return a line for each package: its mutants, and how many of them the tests have killed."""
    table = new_table("package | mutants | killed | timed out | survived", "Mutants")
    packages = sorted({str(Path(verdict.mutant.file).parent) for verdict in verdicts})
    for package in [*packages, ""]:
        counts = Counter(
            verdict.outcome
            for verdict in verdicts
            if verdict.mutant.file.startswith(f"{package}/" if package else "")
        )
        numbers = (counts.total(), counts["killed"], counts["timed out"], counts["survived"])
        table.add_row(package or "together", *map(str, numbers))
    return table


def main(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files and folders of code.", exists=True)
    ] = None,
    number: Annotated[int, typer.Option(min=1, help="Mutants to try.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed that chooses the mutants.")] = 0,
    markers: Annotated[str, typer.Option("-m", help="Tests to run, as with `pytest -m`.")] = "",
    tests: Annotated[
        list[str] | None, typer.Option(help="Tests to run, repeatable, instead of those of the package.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Write the verdicts to this file.")] = None,
    again: Annotated[
        Path | None, typer.Option(help="Take the survivors of an earlier run, from its JSON file.")
    ] = None,
    every: Annotated[bool, typer.Option(help="Take the killed of the earlier run, too.")] = False,
) -> None:
    """Count the mutants that the tests kill, and show those that survive."""
    earlier: dict[Mutant, str] = {}
    if again is not None:
        rows = [row for row in json.loads(again.read_text()) if every or row["outcome"] == "survived"]
        for row in rows:
            mutant = Mutant(**row["mutant"])
            if now := found_again(mutant):
                earlier[now] = f"(was {row['outcome']})"
            else:
                print(f"gone      {_described(mutant)}")
    chosen = [*earlier] or sample([path.resolve() for path in paths or ()], number, seed)
    for name in _PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(copied(Path(folder).resolve()), markers)
        for mutant in chosen:
            verdict = runner.verdict(mutant, tests or mirrored(mutant.file))
            verdicts.append(verdict)
            outcome = f"{verdict.outcome:10}{earlier.get(mutant, '')}{verdict.seconds:6.1f} s"
            print(f"{outcome}  {_described(mutant)}  {verdict.test}", flush=True)
            if out is not None:
                out.write_text(json.dumps([asdict(item) for item in verdicts], indent=1))
    show(report(verdicts))


def _described(mutant: Mutant) -> str:
    before, after = (" ".join(text.split())[:70] for text in (mutant.before, mutant.after))
    return f"{mutant.file}:{mutant.line} {mutant.kind}: {before}  ->  {after}"


if __name__ == "__main__":
    typer.run(main)
