"""Checks of a manifest: from its parsed content to the fields of a `Tool`.

Each error has file, key, value and hint. Unknown keys are kept unchecked; unknown keys inside `[args]` are
annotations. Only the first error of a manifest is raised, in the order of the documentation. What is probably
misspelt, and names of other runtimes, are findings. The tables `[offer]` and `[run]` say when a tool is
offered, and how its executor runs.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NoReturn

from gbnf.errors import ManifestError
from gbnf.findings import Finding
from gbnf.schema.drafts import as_2020_12
from gbnf.schema.nullable import without_null
from gbnf.strict_json import nests_deeper
from gbnf.tools.argument_schema import (
    ArgumentSchemaError,
    checked_argument_schema,
    without_undeclared,
)

ESCAPE_HATCH = "escape_hatch"
"""The role of tools that do not do the requested work: ask for a new tool, undo …"""


@dataclass(frozen=True, slots=True)
class OfferPolicy:
    """When the pool filter offers a tool; without conditions: always.

    `role`: "escape_hatch" or None, or a word for another runtime.
    `markers`: offered only if the request contains one of them; none: no such condition. "…" in a marker
    stands for up to three words.
    `not_in`: phrases that contain a marker and mean something else, so that the marker does not count.
    `unless_canonical_at_least`: not offered if the pool has this many canonical tools.
    `always`: offered whatever the other conditions and the provider rules say.
    `after`: names of tools; offered only once each of them has succeeded in the run. A tool that is offered
    brings these tools into the pool, whatever their conditions say.
    `terminal`: a successful call ends the run, and its result is the answer.
    """

    role: str | None = None
    markers: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()
    unless_canonical_at_least: int | None = None
    always: bool = False
    after: tuple[str, ...] = ()
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """How a tool's executor runs.

    `effect`: whether it changes anything. `confirm`: whether the user approves each call.
    `repeatable`: whether the same call may be made again in a run though it failed or succeeded before.
    `timeout_s`: seconds, 0 for no limit.
    `env`: environment variables that it gets, in addition to those that every executor gets.
    `memory_mb`: MB (1024 kB) of memory for it and its child processes, 0 for no limit.
    `max_result_kb`: kB (1024 bytes) of its result, as JSON.
    """

    effect: Literal["read", "write"] = "write"
    confirm: bool = False
    timeout_s: float = 30.0
    env: tuple[str, ...] = ()
    memory_mb: int = 4096
    max_result_kb: int = 1024
    repeatable: bool = False


NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_.-]{0,127}$"
LONGEST_NAME = 64
"""The characters of a name that every API accepts, and so of the names of tools of MCP servers."""
RESERVED_NAMES = frozenset({"final_answer", "ask_user", "find_tools"})
"""The names of the built-in tools, which no other tool may have."""

MIN_MEMORY_MB = 64
"""What a Python process needs to start, and to run a small executor."""

MAX_DEPTH = 80
"""How deeply tables and arrays of a manifest may be nested: the checks are recursive."""

_TABLES = {
    "offer": {policy_field.name for policy_field in fields(OfferPolicy)},
    "run": {policy_field.name for policy_field in fields(RunPolicy)},
}
_MEANT = {"timeout": "timeout_s", "memory": "memory_mb", "max_result": "max_result_kb"}
"""Names of keys without their unit, which are less similar than misspelt ones."""

_KNOWN = frozenset({"name", "version", "description", "affinity", "args", "offer", "run"})
_NO_FILE = Path("<mapping>")


def manifest_fields(
    mapping: Mapping[str, Any], path: Path | None, checked_args: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fields of the `Tool` that `mapping` describes, by name. Raises ManifestError.

    `checked_args`: its `args`, if `gbnf.tools.argument_schema` has checked them.
    """
    check = _ManifestChecker(path or _NO_FILE)
    if not isinstance(mapping, Mapping):
        check.fail("", mapping, "a manifest must be a table", "Write name, description and [args].")
    if nests_deeper(mapping, MAX_DEPTH):
        problem = f"tables and arrays are nested deeper than {MAX_DEPTH} levels"
        check.fail("", None, problem, "Move the inner schemas to args.$defs, and refer to them.")
    content = check.json_like("", mapping if checked_args is None else {**mapping, "args": None})
    from gbnf.tools.near_misses import misspelt_keywords  # noqa: PLC0415  # needed once a tool is read

    name = check.name(content)
    version = check.text(content, "version")
    descriptions = check.descriptions(content)
    args = check.args(content) if checked_args is None else checked_args
    extra = {key: value for key, value in content.items() if key not in _KNOWN}
    affinity = content.get("affinity", [])
    if isinstance(affinity, str):
        affinity = [affinity]
    if not isinstance(affinity, list) or not all(isinstance(word, str) for word in affinity):
        # Nothing here depends on it, and other runtimes use other types.
        extra["affinity"], affinity = affinity, []
    offer, run = check.offer(check.table(content, "offer")), check.run(check.table(content, "run"))
    for table, keys in _TABLES.items():
        if unknown := {key: value for key, value in content.get(table, {}).items() if key not in keys}:
            extra[table] = unknown
    declared, undeclared = without_undeclared(name, args)
    findings = (*_misspelt_keys(name, content), *misspelt_keywords(name, args), *without_null(name, args))
    return {
        "name": name,
        "version": version,
        "descriptions": descriptions,
        "args": declared,
        "affinity": tuple(affinity),
        "offer": offer,
        "run": run,
        "path": path,
        "extra": extra,
        "findings": (*findings, *undeclared),
    }


def _misspelt_keys(name: str, content: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each key outside of `[args]` that is probably misspelt, or in the wrong table."""
    from gbnf.tools.near_misses import misspelt, similar_key  # noqa: PLC0415  # as above

    inner = {f"{table}.{key}": key for table, keys in _TABLES.items() for key in keys}
    for key in content:
        if key in _KNOWN:
            continue
        meant = similar_key(key, _KNOWN) or similar_key(key, inner.values())
        if meant is not None or key in inner.values():
            full = next((place for place, field in inner.items() if field == (meant or key)), meant or key)
            yield misspelt(name, "", key, full)
    for table, keys in _TABLES.items():
        for key in content.get(table, {}):
            meant = None if key in keys else _MEANT.get(key) or similar_key(key, keys)
            if meant is not None:
                yield misspelt(name, f"/{table}", key, meant)


def valid_name(name: str, longest: int = 128) -> str:
    """Return the name of a tool of another program as one that a tool can have.

    "_" replaces what a name cannot contain; `tool_` is put before a reserved name.
    """
    if re.fullmatch(NAME_PATTERN, name) and len(name) <= longest:
        return f"tool_{name}" if name in RESERVED_NAMES else name
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
    return (name if re.match(r"[A-Za-z]", name) else f"tool_{name.lstrip('_-')}")[:longest]


def json_like(value: Any) -> Any:
    """Return a copy of `value` in JSON's types, as in a manifest. Raises ManifestError."""
    return _ManifestChecker(_NO_FILE).json_like("args", value)


class _ManifestChecker:
    """The checks of one manifest. Each returns the checked value, or raises ManifestError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fail(self, key: str, value: Any, problem: str, hint: str) -> NoReturn:
        """Raise ManifestError for this manifest."""
        raise ManifestError(self._path, key, value, problem, hint)

    def json_like(self, key: str, value: Any) -> Any:
        """Return a copy of `value` in JSON's types: TOML's dates and times become ISO 8601 text."""
        match value:
            case None | str() | bool() | int():
                return value
            case float():
                if not math.isfinite(value) and key.split(".", maxsplit=1)[0] in _KNOWN:
                    self.fail(key, value, "not a JSON number", "Give a finite number, or remove the key.")
                return value
            case dt.date() | dt.time():
                return value.isoformat()
            case Mapping():
                for name in value:
                    if not isinstance(name, str):
                        self.fail(key, name, "a key must be a string", "Put it in quotes.")
                return {
                    name: self.json_like(f"{key}.{name}" if key else name, member)
                    for name, member in value.items()
                }
            case list() | tuple():
                return [self.json_like(f"{key}[{index}]", member) for index, member in enumerate(value)]
            case _:
                hint = "Give a string, number, boolean, array or table."
                return self.fail(key, value, "not a JSON value", hint)

    def name(self, content: Mapping[str, Any]) -> str:
        """Return the tool's name."""
        name = content.get("name")
        if name is None:
            self.fail("name", None, "the name is missing", 'Add a line such as name = "find_files".')
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name) or name.endswith("\n"):
            hint = (
                "Start with a letter, followed by letters, digits, '_', '.' and '-': at most 128 characters."
            )
            self.fail("name", name, f"the name does not match {NAME_PATTERN}", hint)
        if name in RESERVED_NAMES:
            self.fail("name", name, "the name is that of a built-in tool", "Choose another name.")
        return name

    def text(self, content: Mapping[str, Any], key: str) -> str:
        """Return a string, "" if the key is missing."""
        value = content.get(key, "")
        if not isinstance(value, str):
            self.fail(key, value, f"{key} must be a string", f'Put it in quotes: {key} = "{value}".')
        return value

    def descriptions(self, content: Mapping[str, Any]) -> dict[str, str]:
        """Return the descriptions by language."""
        value = content.get("description", {})
        if isinstance(value, str):
            return {"en": value}
        if not isinstance(value, dict):
            hint = "Give a string, or one string per language: description.en = …, description.it = …."
            self.fail("description", value, "a description must be a string or a table of languages", hint)
        for language, text in value.items():
            if not isinstance(text, str):
                key, problem = f"description.{language}", "a description must be a string"
                self.fail(key, text, problem, "Put the text in quotes.")
        return value

    def args(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of the arguments."""
        if "args" not in content:
            hint = 'Add a table [args] with type = "object", even if the tool takes no arguments.'
            self.fail("args", None, "the schema of the arguments is missing", hint)
        try:
            return checked_argument_schema(as_2020_12(content["args"]))
        except ArgumentSchemaError as error:
            key = "args" + "".join(
                f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path
            )
            self.fail(key, error.value, error.problem, error.hint)

    def table(self, content: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Return a table, empty if the key is missing."""
        value = content.get(key, {})
        if not isinstance(value, dict):
            self.fail(key, value, f"{key} must be a table", f"Write its keys below a line [{key}].")
        return value

    def offer(self, table: dict[str, Any]) -> OfferPolicy:
        """Return the policy of `[offer]`."""
        role = table.get("role")
        if role is not None and (not isinstance(role, str) or not role):
            self.fail(
                "offer.role", role, "a role must be a word", 'Write role = "escape_hatch", or remove it.'
            )
        markers = self.markers(table, "offer.markers", 'Write markers = ["undo", "annulla"].')
        not_in = self.markers(table, "offer.not_in", 'Write not_in = ["the nearest date"].')
        least = table.get("unless_canonical_at_least")
        if least is not None and (not _is_whole(least) or least < 1):
            hint = "Give a whole number of at least 1, or remove it."
            self.fail("offer.unless_canonical_at_least", least, "not a number of canonical tools", hint)
        always = self.flag(table, "offer.always")
        # the pool that has the prerequisites, or not, is not known here
        example, problem = 'Write after = ["read_file"].', f"the name does not match {NAME_PATTERN}"
        hint = f"Give the name of a tool. {example}"
        after = self.words(table, "offer.after", "names of tools", example, NAME_PATTERN, problem, hint)
        return OfferPolicy(role, markers, not_in, least, always, after, self.flag(table, "offer.terminal"))

    def markers(self, table: dict[str, Any], key: str, example: str) -> tuple[str, ...]:
        """Return words and phrases of `[offer]`, none if the key is missing."""
        problem = "a marker must be a string with letters or digits, or @ for an address"
        hint = "Give a word or a phrase as users type it."
        return self.words(table, key, "words", example, r"(?s).*[^\W_].*|@", problem, hint)

    def words(
        self, table: dict[str, Any], key: str, kind: str, example: str, pattern: str, problem: str, hint: str
    ) -> tuple[str, ...]:
        """Return an array of strings that match a pattern, none if the key is missing."""
        name = key.partition(".")[2]
        entries = table.get(name, [])
        if not isinstance(entries, list):
            self.fail(key, entries, f"{name} must be an array of {kind}", example)
        for index, word in enumerate(entries):
            if not isinstance(word, str) or not re.fullmatch(pattern, word):
                self.fail(f"{key}[{index}]", word, problem, hint)
        return tuple(entries)

    def run(self, table: dict[str, Any]) -> RunPolicy:
        """Return the policy of `[run]`."""
        default = RunPolicy()
        effect = table.get("effect", default.effect)
        if effect not in ("read", "write"):
            hint = 'Write effect = "read" or effect = "write".'
            self.fail("run.effect", effect, "an effect must be read or write", hint)
        confirm = self.flag(table, "run.confirm")
        timeout_s = table.get("timeout_s", default.timeout_s)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s < 0:
            hint = "Give seconds such as 30, or 0 for no limit."
            self.fail("run.timeout_s", timeout_s, "a timeout must be a number of at least 0", hint)
        example = 'Write env = ["GBNF_SMTP_PASSWORD"].'
        problem = "a name must consist of letters, digits and '_', and must not start with a digit"
        hint = f"Give only the name, without a value. {example}"
        kind = "names of environment variables"
        env = self.words(table, "run.env", kind, example, r"[A-Za-z_][A-Za-z0-9_]*", problem, hint)
        memory_mb = table.get("memory_mb", default.memory_mb)
        if not _is_whole(memory_mb) or (memory_mb and memory_mb < MIN_MEMORY_MB):
            hint = f"Give MB such as 512, at least {MIN_MEMORY_MB}, or 0 for no limit."
            self.fail("run.memory_mb", memory_mb, "a memory limit must be a whole number of MB", hint)
        max_result_kb = table.get("max_result_kb", default.max_result_kb)
        if not _is_whole(max_result_kb) or max_result_kb < 1:
            hint = "Give kB such as 1024, at least 1."
            problem = "a result's limit must be a whole number of kB"
            self.fail("run.max_result_kb", max_result_kb, problem, hint)
        repeatable = self.flag(table, "run.repeatable")
        return RunPolicy(effect, confirm, float(timeout_s), env, memory_mb, max_result_kb, repeatable)

    def flag(self, table: dict[str, Any], key: str) -> bool:
        """Return true or false, false if the key is missing."""
        value = table.get(key.rsplit(".", maxsplit=1)[-1], False)
        if not isinstance(value, bool):
            self.fail(key, value, "it must be true or false", "Write true or false, without quotes.")
        return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
