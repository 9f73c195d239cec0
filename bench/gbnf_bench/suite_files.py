"""Suites from TOML files, whose faults are reported together.

The format is `suite.schema.json` in this folder: JSON Schema validates keys and types, and its descriptions
are the hints of errors. Other constraints (existing names, resolvable references, valid patterns) are checked
afterwards, in the cases that are valid. `docs/bench.md` explains each key.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from gbnf.calls.validation import validate_call
from gbnf.errors import ManifestError
from gbnf.tools import BUILT_IN_TOOLS, Tool, load_manifests
from gbnf_bench.cases import Case, ExpectedCall, InitialState, Suite, expected_states, read_case
from gbnf_bench.errors import InvalidSuiteError, KeyPath, SuiteFieldError
from gbnf_bench.expectations import is_satisfiable, step_number
from gbnf_bench.snapshots import OUTBOX
from gbnf_server.executors.calendar_file import FILE as CALENDAR
from gbnf_server.planner.runs.fingerprints import digest
from gbnf_server.system.folders import bundled_folder, manifests_path


def suites_path() -> Path:
    """Return the folder of the bundled suites. Raises SetupError if it is missing."""
    return bundled_folder("suites", "bench/suites", "*.toml")


def bundled_suites() -> tuple[str, ...]:
    """Return the names of the bundled suites."""
    return tuple(sorted(file.stem for file in suites_path().glob("*.toml")))


def load_suite(source: str | Path, tools: Sequence[Tool] | None = None) -> Suite:
    """Return the suite in a TOML file, or the bundled one of that name.

    `tools` are those available to the cases; by default the bundled ones. Raises InvalidSuiteError.
    """
    path = _find(source)
    try:
        content = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise _whole(path, f"it cannot be read: {error.strerror or error}", _choice()) from None
    except UnicodeDecodeError:
        raise _whole(path, "the file is not valid UTF-8", "Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise _whole(path, f"invalid TOML: {error}", "Correct the line; https://toml.io shows it.") from None
    return read_suite({"name": _legal_name(path.stem), **content}, str(path), tools)


def read_suite(content: Mapping[str, Any], origin: str, tools: Sequence[Tool] | None = None) -> Suite:
    """Return the suite of a file's parsed content.

    `origin`: its name in errors. Raises InvalidSuiteError.
    """
    try:
        content = _plain(content)
    except SuiteFieldError as fault:
        raise InvalidSuiteError(origin, [fault]) from None
    malformed = list(_malformed(content))
    if any(len(fault.key_path) < 2 or fault.key_path[0] != "cases" for fault in malformed):
        raise InvalidSuiteError(
            origin, _in_order(malformed)
        )  # only the faults outside the cases, which affect every case
    broken = {fault.key_path[1] for fault in malformed}
    if tools is None:
        tools = load_manifests(manifests_path())
    decoys, faults = _decoys(content, tools)
    faults += malformed
    reading = _CaseReader(content, {tool.name: tool for tool in tools}, {tool.name: tool for tool in decoys})
    tables = {index: table for index, table in enumerate(content["cases"]) if index not in broken}
    cases = []
    for index, table in tables.items():
        case, case_faults = reading.case(table)
        cases += [] if case is None else [case]
        faults += [fault.prefixed("cases", index) for fault in case_faults]
    faults += _same_ids(tables)
    if faults:
        raise InvalidSuiteError(origin, _in_order(faults))
    return Suite(
        content.get("name", _legal_name(Path(origin).stem)),
        content.get("description", ""),
        tuple(cases),
        decoys,
    )


def _in_order(faults: Sequence[SuiteFieldError]) -> list[SuiteFieldError]:
    """Sort faults as in the file, as far as paths determine it: cases by number."""
    return sorted(faults, key=lambda fault: [str(part).zfill(9) for part in fault.key_path])


def _find(source: str | Path) -> Path:
    path = Path(source)
    shipped = suites_path() / f"{source}.toml"
    return shipped if path.suffix != ".toml" and shipped.is_file() else path


def _legal_name(stem: str) -> str:
    """Return the name of a suite from its file name: `My_suite` -> `my-suite`."""
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "suite"


def _choice() -> str:
    return f"Name a TOML file, or one of the bundled suites: {', '.join(bundled_suites())}."


def _whole(path: Path, problem: str, hint: str) -> InvalidSuiteError:
    return InvalidSuiteError(str(path), [SuiteFieldError((), None, problem, hint)])


def _plain(value: Any, key_path: KeyPath = ()) -> Any:
    """Return a value with JSON types: dates and times become text. Raises SuiteFieldError for other types."""
    match value:
        case Mapping():
            return {key: _plain(member, (*key_path, key)) for key, member in value.items()}
        case list() | tuple():
            return [_plain(member, (*key_path, index)) for index, member in enumerate(value)]
        case None | str() | bool() | int() | float():
            return value
        case datetime() if value.tzinfo is not None:
            return value.isoformat()  # with its offset, which is a fault where a local time is required
        case datetime() | time():
            return value.isoformat()[:16]
        case date():
            return value.isoformat()
        case re.Pattern():
            raise SuiteFieldError(
                key_path, value.pattern, "a compiled regular expression", "Give its text, with (?i) in it."
            )
        case _:
            raise SuiteFieldError(
                key_path,
                value,
                f"this is a {type(value).__name__}",
                "Write a text, a number, a list or a table.",
            )


@cache
def _validator() -> Draft202012Validator:
    schema = json.loads((files(__package__) / "suite.schema.json").read_text("utf-8"))
    return Draft202012Validator(schema)


def _malformed(content: Mapping[str, Any]) -> Iterator[SuiteFieldError]:
    for error in _validator().iter_errors(content):
        key_path: KeyPath = tuple(error.absolute_path)
        parent: Any = error.schema if isinstance(error.schema, Mapping) else {}
        hint = parent.get("description", "See docs/bench.md.")
        match error.validator:
            case "additionalProperties":
                properties = parent.get("properties", {})
                for key in error.instance.keys() - properties.keys():
                    yield SuiteFieldError(
                        (*key_path, key), error.instance[key], "unknown key", _nearest(key, properties)
                    )
            case "required":
                missing = [key for key in error.validator_value if key not in error.instance]
                yield SuiteFieldError(key_path, None, f"{', '.join(missing)} is missing", hint)
            case "not":
                yield SuiteFieldError(key_path, None, "id and query cannot have defaults", "Remove them.")
            case "anyOf":
                yield SuiteFieldError(key_path, error.instance, f"this does not fit{_deepest(error)}", hint)
            case _:
                yield SuiteFieldError(
                    key_path, error.instance, error.message.removeprefix(repr(error.instance)).strip(), hint
                )


def _deepest(error: ValidationError) -> str:
    """Return the faults in the alternative that was most likely intended."""
    inner = max(error.context or (), key=lambda fault: len(fault.path), default=None)
    return f": {inner.message}" if inner is not None and inner.path else ""


def _nearest(key: str, keys: Mapping[str, Any]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # only where something is wrong

    close = get_close_matches(key, keys, n=1)
    return (f"Did you mean {close[0]}? " if close else "") + f"The keys are {', '.join(keys)}."


def _decoys(
    content: Mapping[str, Any], tools: Sequence[Tool]
) -> tuple[tuple[Tool, ...], list[SuiteFieldError]]:
    taken = {tool.name for tool in tools}
    decoys, faults = [], []
    for index, manifest in enumerate(content.get("decoys", ())):
        try:
            tool = Tool.from_mapping(manifest)
        except ManifestError as error:
            faults.append(
                SuiteFieldError(("decoys", index, error.key), error.value, error.problem, error.hint)
            )
            continue
        if tool.name in taken:
            faults.append(
                SuiteFieldError(
                    ("decoys", index, "name"), tool.name, "another tool has this name", "Choose another."
                )
            )
        taken.add(tool.name)
        decoys.append(tool)
    return tuple(decoys), faults


def _same_ids(cases: Mapping[int, Mapping[str, Any]]) -> Iterator[SuiteFieldError]:
    seen: dict[str, int] = {}
    for index, table in cases.items():
        name = _identifier(table)
        if name in seen:
            yield SuiteFieldError(
                ("cases", index, "id"),
                name,
                f"case {seen[name] + 1} has the same id",
                "Use another id.",
            )
        seen.setdefault(name, index)


def _identifier(table: Mapping[str, Any]) -> str:
    """Return the given id, or one from the query's first words, with its hash if characters are lost."""
    if "id" in table:
        return str(table["id"])
    letters = unicodedata.normalize("NFKD", table["query"])
    plain = letters.encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-") or "case"
    if any(letter.isalnum() and not letter.isascii() for letter in letters):
        return f"{words}-{digest(table['query'])[:8]}"
    return words


class _CaseReader:
    """Reads cases with the defaults, tools and decoys of their suite."""

    def __init__(
        self, content: Mapping[str, Any], tools: Mapping[str, Tool], decoys: Mapping[str, Tool]
    ) -> None:
        self._defaults = content.get("defaults", {})
        self._tools, self._decoys = tools, decoys

    def case(self, table: Mapping[str, Any]) -> tuple[Case | None, list[SuiteFieldError]]:
        """Return a case with the suite's defaults, None if one of its values is invalid; and the faults."""
        merged = {**self._defaults, **table, "id": _identifier(table)}
        if {"calls", "plans"} & table.keys():
            merged = {
                key: value for key, value in merged.items() if key not in {"calls", "plans"} - table.keys()
            }
        if merged.get("decoys") == "all":
            merged["decoys"] = list(self._decoys)
        try:
            case = read_case(merged)
            _check_gone(merged, case.before)
        except SuiteFieldError as fault:
            return None, [fault]
        faults: list[SuiteFieldError] = []
        for index, earlier in enumerate(case.before.calls):
            faults += _earlier_faults(earlier, self._tools, ("before", "calls", index))
        unknown = [
            *_unknown(("pool",), case.pool or (), self._tools, "tool"),
            *_unknown(("decoys",), case.decoys, self._decoys, "decoy"),
        ]
        # if tools of the pool are missing, the names in its calls would be reported too
        return case, [*faults, *unknown] if unknown else [*faults, *self._of_pool(case, merged)]

    def _of_pool(self, case: Case, table: Mapping[str, Any]) -> Iterator[SuiteFieldError]:
        pool = {
            tool.name: tool for tool in case.tools(tuple(self._tools.values()), tuple(self._decoys.values()))
        }
        for plan_index, plan in enumerate(case.plans):
            key_path: KeyPath = ("calls",) if "calls" in table else ("plans", plan_index)
            for index, call in enumerate(plan):
                yield from _call_faults(call, index, (*key_path, index), pool)
        if "first" in table:  # otherwise it is derived from the calls
            built_in = [tool.name for tool in BUILT_IN_TOOLS]
            yield from _unknown(("first",), sorted(case.first), [*pool, *built_in], "tool of the pool")


def _unknown(
    key_path: KeyPath, names: Sequence[str], allowed: Collection[str], what: str
) -> Iterator[SuiteFieldError]:
    for name in names:
        if name not in allowed:
            hint = f"There are {', '.join(sorted(allowed))}." if allowed else "There are none."
            yield SuiteFieldError(key_path, name, f"there is no {what} of this name", hint)


def _earlier_faults(
    call: Mapping[str, Any], tools: Mapping[str, Tool], key_path: KeyPath
) -> Iterator[SuiteFieldError]:
    if call["name"] not in tools:
        yield from _unknown((*key_path, "name"), (call["name"],), tools, "tool")
        return
    arguments = call.get("arguments", {})
    verdict = validate_call({"name": call["name"], "arguments": arguments}, [tools[call["name"]]])
    if not verdict.ok:
        yield SuiteFieldError(
            (*key_path, "arguments"), arguments, "; ".join(verdict.errors),
            "Write the arguments as the tool takes them.",
        )  # fmt: skip


def _call_faults(
    call: ExpectedCall, index: int, key_path: KeyPath, pool: Mapping[str, Tool]
) -> Iterator[SuiteFieldError]:
    if call.name not in pool:
        yield from _unknown((*key_path, "name"), (call.name,), pool, "tool of the pool")
        return
    tool = pool[call.name]
    properties = tool.model_args().get("properties", {})
    for key in ("arguments", "optional_arguments"):
        for name, expectation in getattr(call, key).items():
            number = step_number(expectation) if name in tool.step_references else None
            if name not in properties:
                yield SuiteFieldError(
                    (*key_path, key, name),
                    None,
                    f"{call.name} has no argument of this name",
                    _nearest(name, properties),
                )
            elif number is not None and not 1 <= number <= index:
                yield SuiteFieldError(
                    (*key_path, key, name), number, "no earlier call of the plan has this number",
                    "Count the expected calls from 1, or write {} for any step.",
                )  # fmt: skip
    if call.expectations.keys() <= properties.keys():
        try:
            _check_call(call, tool, key_path)
        except SuiteFieldError as fault:
            yield fault


def _check_call(call: ExpectedCall, tool: Tool, key_path: KeyPath) -> None:
    """Raise SuiteFieldError if no valid call of the tool matches; the arguments must exist."""
    args = dict(tool.model_args())
    filled = {target for name, target in tool.step_references.items() if name in call.expectations}
    needed = [name for name in args.get("required", ()) if name not in filled]
    groups = args.pop("requires_one_of", ())
    choices = [{"anyOf": [{"required": [name]} for name in group]} for group in groups]
    args = {**args, "required": needed, "allOf": [*args.get("allOf", ()), *choices]}
    possible = is_satisfiable(args, call.schema())
    for key in ("optional_arguments",) if possible else ("arguments", "optional_arguments"):
        for name, expectation in getattr(call, key).items():
            alone = {"properties": {name: expectation}, "required": [name]}
            if expectation and not is_satisfiable(args, alone):
                raise SuiteFieldError(
                    (*key_path, key, name), expectation.get("const"),
                    f"no valid call of {call.name} meets this",
                    "Expect a value that the tool's schema accepts.",
                )  # fmt: skip
    if possible:
        return
    named = call.expectations.keys()
    missing = [f"Expect {name}." for name in needed if name not in named]
    missing += [f"Expect at least one of {', '.join(group)}." for group in groups if not named & {*group}]
    raise SuiteFieldError(
        (*key_path, "arguments"), None, f"no valid call of {call.name} has only these arguments",
        " ".join(missing) or "See the tool's schema.",
    )  # fmt: skip


def _check_gone(table: Mapping[str, Any], before: InitialState) -> None:
    """Raise SuiteFieldError if more events or messages are expected to be gone than exist.

    With earlier calls this is unknown, and not checked.
    """
    if before.calls or any(path == CALENDAR or path.startswith(f"{OUTBOX}/") for path in before.files):
        return
    for after, key_path in expected_states(table):
        for key, there in (("gone_events", len(before.events)), ("gone_messages", 0)):
            if len(after.get(key, ())) > there:
                raise SuiteFieldError(
                    (*key_path, key), after[key], f"before the run there are {there} of these",
                    "Add them to before (events, or calls that create them), or remove them.",
                )  # fmt: skip
