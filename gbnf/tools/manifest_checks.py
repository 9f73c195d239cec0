"""What may be wrong with a manifest: from its parsed content to an executor's checked fields.

Every check names file, key, value and way out. Unknown keys are kept and judged by nobody; keys inside
`[args]` that JSON Schema doesn't know are annotations. One manifest, one error: the first that is found,
in the order in which a person would read the file.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from gbnf.errors import ManifestError
from gbnf.tools.argument_schema import ArgumentSchemaError, checked_argument_schema
from gbnf.tools.policies import OfferPolicy, RunPolicy

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_.-]{0,127}$"
RESERVED_NAMES = frozenset({"final_answer", "ask_user"})
"""The built-in tools' names: a pool that links them in can't hold another of the same name."""

MIN_MEMORY_MB = 64
"""What a Python process needs to begin at all, with room for a small tool."""

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
#: How deep tables and arrays may nest in a manifest: the checks call themselves.
MAX_DEPTH = 80

_KNOWN = frozenset({"name", "version", "description", "affinity", "args", "offer", "run"})
_NO_FILE = Path("<mapping>")


def manifest_fields(mapping: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    """The fields of the `Tool` that `mapping` describes, by name. Raises ManifestError."""
    check = _ManifestChecker(path or _NO_FILE)
    if not isinstance(mapping, Mapping):
        check.fail("", mapping, "a manifest is a table", "Write name, description and [args].")
    if _nests_deeper(mapping, MAX_DEPTH):
        problem = f"tables and arrays nest deeper than {MAX_DEPTH}"
        check.fail("", None, problem, "Put what is deep below args.$defs, and refer to it.")
    content = check.json_like("", mapping)
    name = check.name(content)
    version = check.text(content, "version")
    descriptions = check.descriptions(content)
    args = check.args(content)
    extra = {key: value for key, value in content.items() if key not in _KNOWN}
    affinity = content.get("affinity", [])
    if isinstance(affinity, str):
        affinity = [affinity]
    if not isinstance(affinity, list) or not all(isinstance(word, str) for word in affinity):
        # Nothing depends on it, and other runtimes give it other shapes.
        extra["affinity"], affinity = affinity, []
    offer, unknown_offer = check.offer(check.table(content, "offer"))
    run, unknown_run = check.run(check.table(content, "run"))
    extra |= {key: unknown for key, unknown in (("offer", unknown_offer), ("run", unknown_run)) if unknown}
    return {
        "name": name,
        "version": version,
        "descriptions": descriptions,
        "args": args,
        "affinity": tuple(affinity),
        "offer": offer,
        "run": run,
        "path": path,
        "extra": extra,
    }


def _nests_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        members = (member for one in level for member in (one.values() if isinstance(one, Mapping) else one))
        held = [member for member in members if isinstance(member, Mapping | list | tuple)]
        level = list({id(member): member for member in held}.values())  # one may stand in several places
        if not level:
            return False
    return True


class _ManifestChecker:
    """The checks of one manifest; each returns the checked value or raises ManifestError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fail(self, key: str, value: Any, problem: str, hint: str) -> NoReturn:
        raise ManifestError(self._path, key, value, problem, hint)

    def json_like(self, key: str, value: Any) -> Any:
        """A copy of `value` in JSON's types: TOML's dates and times become their ISO text."""
        match value:
            case None | str() | bool() | int():
                return value
            case float():
                if not math.isfinite(value) and key.split(".", maxsplit=1)[0] in _KNOWN:
                    self.fail(
                        key, value, "JSON has no such number", "Give a finite number, or leave the key out."
                    )
                return value
            case dt.date() | dt.time():
                return value.isoformat()
            case Mapping():
                for name in value:
                    if not isinstance(name, str):
                        self.fail(key, name, "a key must be a string", "Put it in quotes.")
                return {
                    name: self.json_like(f"{key}.{name}" if key else name, held)
                    for name, held in value.items()
                }
            case list() | tuple():
                return [self.json_like(f"{key}[{index}]", held) for index, held in enumerate(value)]
            case _:
                hint = "Give a string, number, boolean, array or table."
                return self.fail(key, value, "this is no JSON value", hint)

    def name(self, content: Mapping[str, Any]) -> str:
        name = content.get("name")
        if name is None:
            self.fail("name", None, "the name is missing", 'Add a line such as name = "find_files".')
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name) or name.endswith("\n"):
            hint = "Start with a letter; then letters, digits, '_', '.' and '-', 128 characters at most."
            self.fail("name", name, f"the name doesn't match {NAME_PATTERN}", hint)
        if name in RESERVED_NAMES:
            self.fail("name", name, "the name belongs to a built-in tool", "Choose another name.")
        return name

    def text(self, content: Mapping[str, Any], key: str) -> str:
        value = content.get(key, "")
        if not isinstance(value, str):
            self.fail(key, value, f"{key} must be a string", f'Put it in quotes: {key} = "{value}".')
        return value

    def descriptions(self, content: Mapping[str, Any]) -> dict[str, str]:
        value = content.get("description", {})
        if isinstance(value, str):
            return {"en": value}
        if not isinstance(value, dict):
            hint = "Give a string, or one string per language: description.en = …, description.it = …."
            self.fail("description", value, "a description is a string or a table of languages", hint)
        for language, text in value.items():
            if not isinstance(text, str):
                self.fail(
                    f"description.{language}", text, "a description is a string", "Put the text in quotes."
                )
        return value

    def args(self, content: Mapping[str, Any]) -> dict[str, Any]:
        if "args" not in content:
            hint = 'Add a table [args] with type = "object", even where the tool takes no arguments.'
            self.fail("args", None, "the schema of the arguments is missing", hint)
        try:
            return checked_argument_schema(content["args"])
        except ArgumentSchemaError as fault:
            key = "args" + "".join(
                f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.place
            )
            self.fail(key, fault.value, fault.problem, fault.hint)

    def table(self, content: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = content.get(key, {})
        if not isinstance(value, dict):
            self.fail(key, value, f"{key} must be a table", f"Write its keys below a line [{key}].")
        return value

    def offer(self, table: dict[str, Any]) -> tuple[OfferPolicy, dict[str, Any]]:
        role = table.get("role")
        if role is not None and (not isinstance(role, str) or not role):
            self.fail("offer.role", role, "a role is a word", 'Write role = "escape_hatch", or leave it out.')
        markers = self.markers(table, "markers", 'Write markers = ["undo", "annulla"].')
        not_in = self.markers(table, "not_in", 'Write not_in = ["the nearest date"].')
        least = table.get("unless_canonical_at_least")
        if least is not None and (not isinstance(least, int) or isinstance(least, bool) or least < 1):
            hint = "Give a whole number of at least 1, or leave it out."
            self.fail("offer.unless_canonical_at_least", least, "this counts canonical tools", hint)
        always = self.flag(table, "offer.always")
        return OfferPolicy(role, markers, not_in, least, always), _unknown(table, OfferPolicy)

    def markers(self, table: dict[str, Any], key: str, example: str) -> tuple[str, ...]:
        """Words and phrases below `[offer]`, none where the key is missing."""
        markers = table.get(key, [])
        if not isinstance(markers, list):
            self.fail(f"offer.{key}", markers, f"{key} are an array of words", example)
        for index, marker in enumerate(markers):
            if not isinstance(marker, str) or not any(char.isalnum() for char in marker):
                hint = "Give a word or a phrase as people type it."
                self.fail(f"offer.{key}[{index}]", marker, "a marker is a text with letters or digits", hint)
        return tuple(markers)

    def run(self, table: dict[str, Any]) -> tuple[RunPolicy, dict[str, Any]]:
        default = RunPolicy()
        effect = table.get("effect", default.effect)
        if effect not in ("read", "write"):
            self.fail(
                "run.effect",
                effect,
                "an effect is read or write",
                'Write effect = "read" or effect = "write".',
            )
        confirm = self.flag(table, "run.confirm")
        timeout_s = table.get("timeout_s", default.timeout_s)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s < 0:
            hint = "Give seconds such as 30, or 0 for no limit."
            self.fail("run.timeout_s", timeout_s, "a time-out is a number of at least 0", hint)
        policy = RunPolicy(
            effect,
            confirm,
            float(timeout_s),
            env=self.variables(table),
            memory_mb=self.memory_mb(table, default.memory_mb),
            max_result_kb=self.max_result_kb(table, default.max_result_kb),
        )
        return policy, _unknown(table, RunPolicy)

    def variables(self, table: dict[str, Any]) -> tuple[str, ...]:
        names = table.get("env", [])
        hint = 'Write env = ["GBNF_SMTP_PASSWORD"].'
        if not isinstance(names, list):
            self.fail("run.env", names, "the environment is an array of names of variables", hint)
        for index, name in enumerate(names):
            if not isinstance(name, str) or not re.fullmatch(_VARIABLE, name):
                problem = "a variable's name is letters, digits and '_', and begins with no digit"
                self.fail(f"run.env[{index}]", name, problem, f"Give the name alone, without a value. {hint}")
        return tuple(names)

    def memory_mb(self, table: dict[str, Any], default: int) -> int:
        given = table.get("memory_mb", default)
        if not isinstance(given, int) or isinstance(given, bool) or (given and given < MIN_MEMORY_MB):
            hint = f"Give MB such as 512, at least {MIN_MEMORY_MB}, or 0 for no limit."
            self.fail("run.memory_mb", given, "a memory limit is a whole number of MB", hint)
        return given

    def max_result_kb(self, table: dict[str, Any], default: int) -> int:
        given = table.get("max_result_kb", default)
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            hint = "Give kB such as 1024, at least 1."
            self.fail("run.max_result_kb", given, "a result's limit is a whole number of kB", hint)
        return given

    def flag(self, table: dict[str, Any], key: str) -> bool:
        value = table.get(key.rsplit(".", maxsplit=1)[-1], False)
        if not isinstance(value, bool):
            self.fail(key, value, "this is true or false", "Write true or false, without quotes.")
        return value


def _unknown(table: dict[str, Any], known: type[OfferPolicy | RunPolicy]) -> dict[str, Any]:
    names = {field.name for field in fields(known)}
    return {key: value for key, value in table.items() if key not in names}
