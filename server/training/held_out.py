"""Print the held-out suite: `python -m training.held_out > bench/suites/held-out.toml`.

Requests of the generator's held-out half: no value and no combination of wording in them occurs in training
(`training.source`). Invariants: the suite is a function of its seed; a case expects the results of its own
plan in its own initial state, with the real executors; a request whose plan fails there is left out.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import date
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbnf.errors import GbnfError
from gbnf_bench.cases import TIMEZONE, read_case
from gbnf_bench.dsl import contains
from gbnf_bench.snapshots import Snapshot, make_case_context, snapshot
from gbnf_server.executors import run_executor
from gbnf_server.planner.call_checks import fill_references, result_entries
from training.pools import bundled_tools
from training.source import Source
from training.traces import trace
from training.vocabulary import WEEKDAYS_IT
from training.wording import closed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from training.parts import Step
    from training.traces import Trace

SEED = 20_261_121
COUNT = 240
ELSEWHERE = frozenset({"undo_last_turn", "find_files_google_workspace", "request_location_from_user"})
"""Tools whose worlds are no folder; the suites written by hand have them."""
DESCRIPTION = (
    "Requests of the embedded model's generator, in English and Italian, whose values and whose combinations "
    "of wording are kept from its training. Written by python -m training.held_out."
)


def cases(seed: int = SEED, count: int = COUNT) -> list[dict[str, Any]]:
    """`count` cases as tables of the suite format."""
    source = Source(seed, held_out=True)
    made: list[dict[str, Any]] = []
    seen: set[str] = set()
    while len(made) < count:
        one = trace(source)
        table = _case(one) if one.request not in seen else None
        if table is not None:
            seen.add(one.request)
            made.append({"id": f"{len(made) + 1:03}-{_kind(one)}", **table})
    return made


def _kind(one: Trace) -> str:
    return one.steps[-1].name.replace("_", "-") if one.steps else "nothing"


def _case(one: Trace) -> dict[str, Any] | None:
    """Return the case of a trace; None if it cannot be one."""
    if one.given or any(step.result is None or step.name in ELSEWHERE for step in one.steps):
        return None
    table: dict[str, Any] = {"query": one.request, "language": one.language}
    if not one.steps:
        return table | {"abstain": True} | ({"pool": list(one.pool)} if one.pool else {})
    table |= {"calls": [_expected(step, one.request) for step in one.steps]}
    before, person = _before(one), _person(one)
    table |= ({"before": before} if before else {}) | ({"person": person} if person else {})
    try:
        return table | _outcome(one, table)
    except GbnfError:
        return None


def _before(one: Trace) -> dict[str, Any]:
    """Files and folders that the plan's results speak of, and a file beside them that isn't meant."""
    files: dict[str, str] = {}
    folders: list[str] = []
    for step in one.steps:
        result, arguments = step.result or {}, step.arguments
        entries = tuple(result.get("entries", ()))
        if step.name == "find_files":
            base = arguments["base_path"]
            patterns = [
                *([arguments["pattern"]] if "pattern" in arguments else []),
                *arguments.get("patterns", ()),
            ]
            folders += [base] if base != "." else []
            files |= {entry: f"text of {entry}" for entry in entries}
            other = ("" if base == "." else f"{base}/") + "zz.keep"
            if not any(fnmatch("zz.keep", pattern) for pattern in patterns):
                files[other] = "not meant"
        elif step.name == "read_files":
            files |= dict(zip(result["paths"], entries, strict=True))
        elif step.name == "delete_files" and "paths" in arguments:
            files |= {path: "to be deleted" for path in entries if "." in path.rsplit("/", 1)[-1]}
            folders += [path for path in entries if "." not in path.rsplit("/", 1)[-1]]
    return ({"files": files} if files else {}) | ({"folders": folders} if folders else {})


def _person(one: Trace) -> dict[str, Any]:
    person: dict[str, Any] = {}
    for step in one.steps:
        if step.name == "get_inputs":
            field = step.arguments["dialog"][0]
            value = next(iter((step.result or {})["values"].values()))
            kind = field["schema"]["kind"]
            if kind != "choice":
                person.setdefault("answers", {})[kind] = value
            else:
                options = field["schema"].get("options")
                person["choose"] = options.index(value) + 1 if options else 1
    return person


def _expected(step: Step, request: str) -> dict[str, Any]:
    arguments: dict[str, Any] = dict(step.arguments)
    optional: dict[str, Any] = {}
    match step.name:
        case "compute":  # spaces in an expression do not count
            signs = re.findall(r"[\w.]+|\*\*|\S", arguments["expression"])
            spelled = r"\s*".join(map(re.escape, signs))
            arguments |= {"expression": {"pattern": f"^{spelled}$"}}
        case "find_events_empty":
            optional = {
                key: {} for key in ("limit", "duration_minutes", "part_of_day") if key not in arguments
            }
        case "get_inputs":
            arguments = {key: value for key, value in arguments.items() if key == "from_step"}
            optional = {"title": {}, "dialog": {}}
        case "send_messages":
            arguments.pop("subject", None)
            optional = {"subject": {}}
            if "body" in arguments:
                arguments["body"] = contains(_said(arguments["body"], request))
        case "create_events":
            arguments |= {"title": contains(arguments["title"])}
    return {"name": step.name, "arguments": arguments} | (
        {"optional_arguments": optional} if optional else {}
    )


def _outcome(one: Trace, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that the plan leads to: the `after` and the `answer` of the case. Raises GbnfError."""
    case = read_case({"id": "x", **table})
    tools = bundled_tools()
    with tempfile.TemporaryDirectory(prefix="gbnf-held-out-") as folder:
        context = make_case_context(case, Path(folder), tools)
        before = snapshot(context)
        turn = context.for_turn("held-out")
        entries: dict[int, tuple[Any, ...]] = {}
        results: list[Mapping[str, Any]] = []
        steps: list[Step] = []
        for number, planned in enumerate(one.steps, 1):
            step = replace(planned, arguments=_real(planned.arguments, one, steps, results))
            tool = tools[step.name]
            result = run_executor(tool, fill_references(tool, step.arguments, entries), turn)
            if found := result_entries(result):
                entries[number] = found
            results.append(result)
            steps.append(step)
        end = snapshot(context)
    after, said = _after(before, end, one.request), _answer(steps, results)
    # an empty `after` would let every run pass that changes nothing, where the calls should be looked at
    return (
        {"calls": [_expected(step, one.request) for step in steps]}
        | ({"after": after} if after else {})
        | ({"answer": said[0] if len(said) == 1 else {"allOf": said}} if said else {})
    )


def _real(value: Any, one: Trace, steps: Sequence[Step], results: Sequence[Mapping[str, Any]]) -> Any:
    """Return an argument as it has to be: a plan invents the sums and times that it goes on with.

    The executors tell the real ones. A text is as the request has it, which closes the gap before a mark.
    """
    match value:
        case dict():
            return {key: _real(each, one, steps, results) for key, each in value.items()}
        case list():
            return [_real(each, one, steps, results) for each in value]
        case str():
            for step, result in zip(steps, results, strict=True):
                value = _told(value, step, result)
            return closed(value) if value not in one.request and closed(value) in one.request else value
        case _:
            return value


def _told(text: str, step: Step, result: Mapping[str, Any]) -> str:
    """Return a text that repeats a plan's invented sum or time, with the real one."""
    invented = step.result or {}
    if step.name == "compute":
        return str(result["value"]) if text == str(invented["value"]) else text
    if step.name == "get_now":
        for key in ("time", "date"):
            if text == invented[key]:
                return str(result[key])
        if invented["time"] in text and invented["date"] in text:
            for old, new in zip(_moment(invented), _moment(result), strict=True):
                text = text.replace(old, new)
    return text


def _moment(now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a text may say of a moment: time, date, and its weekday in both languages."""
    day = date.fromisoformat(now["date"]).weekday()
    return now["time"], now["date"], now["weekday"], WEEKDAYS_IT[day]


def _said(text: str, request: str) -> str:
    """Return a message's text without the question mark that may as well be the request's."""
    return text.removesuffix("?") if request.endswith(text) else text


def _after(before: Snapshot, end: Snapshot, request: str) -> dict[str, Any]:
    files = {path: text for path, text in end.files.items() if before.files.get(path) != text}
    folders = [folder for folder in end.folders if folder not in before.folders]
    kept = {*end.files, *end.folders}
    gone = [path for path in (*before.files, *before.folders) if path not in kept]
    events = [
        {"title": contains(event["title"]), "start": event["start"], "end": event["end"]}
        for event in end.events
        if event not in before.events
    ]
    messages = [
        {"to": message["to"], "body": contains(_said(message["body"], request))}
        for message in end.messages
        if message not in before.messages
    ]
    found = {"files": files, "folders": folders, "gone": gone, "events": events, "messages": messages}
    return {key: value for key, value in found.items() if value}


def _answer(steps: Iterable[Step], results: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return what the answer has to tell, where a step is only asked for what it tells."""
    steps = tuple(steps)
    used = {step.arguments.get("from_step") for step in steps}
    said: list[Any] = []
    for number, (step, result) in enumerate(zip(steps, results, strict=True), 1):
        if number in used:
            continue
        match step.name:
            case "compute" if steps[-1] is step:
                said.append(contains(str(result["value"])))
            case "read_files":
                starts = (" ".join(entry.split("\n")[0].split(" ")[:3]) for entry in result["entries"][:2])
                said += map(contains, starts)
            case "find_files":
                said += [contains(entry.rsplit("/", 1)[-1]) for entry in result["entries"][:1]]
            case "find_events_empty":
                said += [contains(entry.split("/")[0][-5:]) for entry in result["entries"][:1]]
            case "get_now" if steps[-1] is step or len(steps) == 1:
                day = int(result["date"][-2:])
                said.append({"pattern": rf"{result['time']}|{result['date']}|\b{day}\b"})
    return said


def toml(value: Any) -> str:
    """Return a JSON value in TOML, on one line."""
    match value:
        case dict():
            members = ", ".join(f"{_key(key)} = {toml(each)}" for key, each in value.items())
            return f"{{ {members} }}" if members else "{}"
        case list() | tuple():
            return "[" + ", ".join(map(toml, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return (
        key
        if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum()
        else json.dumps(key, ensure_ascii=False)
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed of the requests (default {SEED})")
    parser.add_argument("--count", type=int, default=COUNT, help=f"number of cases (default {COUNT})")
    options = parser.parse_args()
    made = cases(options.seed, options.count)
    print(f"# Not written by hand: python -m training.held_out --seed {options.seed} --count {options.count}")
    print(f"description = {toml(DESCRIPTION)}")
    print(f'\n[defaults]\nnow = "2026-11-21T10:32" # a Saturday\ntimezone = {toml(TIMEZONE)}')
    for table in made:
        print("\n[[cases]]")
        for key, value in table.items():
            print(f"{key} = {toml(value)}")
    print(dict(Counter(table["language"] for table in made)), file=sys.stderr)


if __name__ == "__main__":
    main()
