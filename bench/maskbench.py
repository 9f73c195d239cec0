"""Run MaskBench with several compilers: real schemas, with valid and invalid instances.

    python bench/maskbench.py [--engine gbnf --engine llama-cpp …] [--every N] [--json OUT]

A case passes where its schema compiles, the engine accepts the grammar and every valid instance, and no
invalid one. Each case runs in a process of its own, with limits on time and memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from contenders import CONTENDERS, Contender, Gbnf, open_model
from corpus import Case, DataMissingError, load_cases, vocabulary_path
from explanations import unexplained
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.errors import GrammarRefusedError
from isolation import Crashed, Finished, Outcome, TimedOut, isolated
from tables import new_table, show

#: What can become of a case. The first is the good one; a case that is wrong both ways rejects valid.
CLASSES = (
    "pass",
    "rejects valid",
    "accepts invalid",
    "compile error",
    "engine refused",
    "crashed",
    "timed out",
)


@dataclass(slots=True)
class Result:
    """What became of one case with one contender.

    `exact` is what the grammar's report says, None of a contender without reports. `unexplained` are the
    broken keywords that no finding names, of accepted invalid instances. Times are in seconds, None where
    the stage was not reached; `engine_s` is the reading of the grammar and the walk through all instances.
    """

    id: str
    collection: str
    outcome: str = "pass"
    detail: str = ""
    exact: bool | None = None
    unexplained: list[str] = field(default_factory=list)
    compile_s: float | None = None
    engine_s: float | None = None


def judge(case: Case, contender: Contender) -> Result:
    """Put one case to a contender."""
    result = Result(case.id, case.collection)
    schema_text = json.dumps(case.schema)
    start = time.perf_counter()
    try:
        compiled = contender.compile(schema_text)
    except contender.errors as error:
        result.outcome, result.detail = "compile error", str(error)[:500]
        return result
    finally:
        result.compile_s = time.perf_counter() - start
    start = time.perf_counter()
    try:
        accepts = contender.load(compiled)
    except GrammarRefusedError as error:
        result.outcome, result.detail = "engine refused", str(error)[:500]
        return result
    wrong = [instance for instance in case.instances if accepts(instance.text) != instance.valid]
    result.engine_s = time.perf_counter() - start
    accepted = [instance for instance in wrong if not instance.valid]
    rejected = [instance for instance in wrong if instance.valid]
    if rejected or accepted:
        result.outcome = "rejects valid" if rejected else "accepts invalid"
        result.detail = (rejected or accepted)[0].text[:500]
    report = contender.report(compiled)
    if report is not None:
        result.exact, findings = report
        for instance in accepted:
            result.unexplained += unexplained(case.schema, instance.data, findings)
        if result.exact and accepted:
            result.detail = f"says to be exact: {accepted[0].text[:500]}"
    return result


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """How many cases there are of each class, and of each class by collection."""
    collections = sorted({result.collection for result in results})
    return {
        "cases": len(results),
        "classes": _counts(results),
        "collections": {
            name: _counts([result for result in results if result.collection == name]) for name in collections
        },
        "exact_but_accepts_invalid": [r.id for r in results if r.exact and r.unexplained],
        "accepts_invalid_unexplained": [r.id for r in results if r.unexplained],
    }


def _counts(results: Sequence[Result]) -> dict[str, int]:
    counts = Counter(result.outcome for result in results)
    return {name: counts[name] for name in CLASSES}


def run(
    cases: Sequence[Case], contender: Contender, *, jobs: int, limit_s: float, memory_mib: int
) -> list[Result]:
    """Judge all cases, each in a process of its own, with progress on standard error."""
    outcomes: dict[int, Outcome] = {}
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[bad]} do not pass"),
        console=Console(stderr=True),
        auto_refresh=False,  # a refreshing thread and forks don't go together
    )
    with progress:
        task = progress.add_task(contender.name, total=len(cases), bad=0)
        bad, shown = 0, time.monotonic()
        work = isolated(
            lambda case: asdict(judge(case, contender)),
            cases,
            jobs=jobs,
            limit_s=limit_s,
            memory_mib=memory_mib,
        )
        for number, outcome in work:
            outcomes[number] = outcome
            bad += not (isinstance(outcome, Finished) and outcome.value["outcome"] == "pass")
            if time.monotonic() - shown > 0.5 or len(outcomes) == len(cases):
                progress.update(task, completed=len(outcomes), bad=bad, refresh=True)
                shown = time.monotonic()
                if not progress.console.is_terminal:
                    _say_plainly(contender.name, len(outcomes), len(cases), bad)
    return [_result(case, outcomes[number]) for number, case in enumerate(cases)]


def _say_plainly(name: str, done: int, of: int, bad: int) -> None:
    """Where no bar can be drawn: one line for every tenth."""
    tenth = done * 10 // of
    if tenth > _said.get(name, 0):
        _said[name] = tenth
        print(f"{name}: {done} of {of}, {bad} do not pass", file=sys.stderr, flush=True)


_said: dict[str, int] = {}


def _result(case: Case, outcome: Outcome) -> Result:
    match outcome:
        case Finished(value):
            return Result(**value)
        case Crashed(reason, _):
            return Result(case.id, case.collection, "crashed", reason)
        case TimedOut(seconds):
            return Result(case.id, case.collection, "timed out", f"killed after {seconds:.0f} s")


def table(name: str, summary: dict[str, Any]) -> Table:
    """Return the collections by class, in cases, and the share that passes."""
    heads = " | ".join(("collection", "cases", "passes", *CLASSES[1:]))
    drawn = new_table(heads, f"{name}: {summary['cases']} cases")
    for collection, counts in [*summary["collections"].items(), ("all", summary["classes"])]:
        total = sum(counts.values())
        if collection == "all":
            drawn.add_section()
        rest = (str(counts[kind] or "·") for kind in CLASSES[1:])
        drawn.add_row(collection, str(total), _share(counts["pass"], total), *rest)
    drawn.add_row("", "", "", *(_share(summary["classes"][kind], summary["cases"]) for kind in CLASSES[1:]))
    return drawn


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _contender(name: str, model: NativeModel, property_order: str) -> Contender:
    if name != "gbnf":
        return CONTENDERS[name](model)
    try:
        return Gbnf(model, property_order=property_order)
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--property-order") from error


def main(
    data: Annotated[Path | None, typer.Option(help="Cases as JSON Lines, plain or xz.")] = None,
    vocab: Annotated[Path | None, typer.Option(help="Vocabulary, a GGUF file.")] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help=f"Compiler, repeatable: {', '.join(CONTENDERS)}.")
    ] = None,
    property_order: Annotated[str, typer.Option(help="Property order, declared or any; gbnf only.")] = "any",
    every: Annotated[int, typer.Option(min=1, help="Run every Nth case.")] = 1,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the outcome of each case to this file.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 2,
    limit: Annotated[float, typer.Option(help="Time limit per case, in seconds.")] = 20.0,
    memory: Annotated[int, typer.Option(help="Memory limit per case, in MiB.")] = 1024,
) -> None:
    """Judge compilers by MaskBench's cases."""
    if unknown := [name for name in engine or () if name not in CONTENDERS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(CONTENDERS)}", param_hint="--engine")
    try:
        cases = load_cases(data, every=every)
        model = open_model(vocab or vocabulary_path())
    except DataMissingError as error:
        raise SystemExit(str(error)) from None
    written = {}
    for name in engine or ["gbnf"]:
        contender = _contender(name, model, property_order)
        start = time.perf_counter()
        results = run(cases, contender, jobs=jobs, limit_s=limit, memory_mib=memory)
        summary = summarise(results)
        show(table(name, summary))
        if any(result.exact is not None for result in results):
            for key in ("exact_but_accepts_invalid", "accepts_invalid_unexplained"):
                ids = summary[key]
                print(f"{key.replace('_', ' ')}: {len(ids)} {', '.join(ids[:5])}")
        print(f"in {time.perf_counter() - start:.0f} s\n")
        written[name] = {**summary, "results": [asdict(result) for result in results]}
        if json_out:
            settings = {"every": every, "property_order": property_order, "vocabulary": model.path.name}
            json_out.write_text(json.dumps({"settings": settings, "engines": written}, indent=1))


if __name__ == "__main__":
    typer.run(main)
