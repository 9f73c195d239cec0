"""A JSON Schema as lines of JSON, each keyword with its JSON Pointer, its state and its findings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gbnf.findings import Finding
from gbnf.schema.applicators import APPLICATORS
from gbnf.schema.keywords import KEYWORDS
from gbnf.schema.metaschema import child_pointer

KeyKind: TypeAlias = Literal["keyword", "name", "annotation", ""]
State: TypeAlias = Literal["enforced", "reported", "free", ""]
"""What the grammar does with a keyword; "" where nothing is to be said."""

_FREE = frozenset({"free_form"})
_OWN_KEYWORDS = frozenset({"requires_one_of"})
_INDENT = 2
_DEEPEST = 100
"""Indentation below which a value is on one line."""
_SHORT = 60
"""Characters of a value that is no schema, and on one line."""


@dataclass(frozen=True, slots=True)
class SchemaLine:
    """A line: `key` and `text` are JSON. `pointer`: of the key's value.

    `origin`: the pointer of the nearest schema around it that rules come from.
    """

    indent: int
    key: str
    text: str
    pointer: str
    kind: KeyKind = ""
    origin: str | None = None
    state: State = ""
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        return f"{' ' * self.indent}{f'{self.key}: ' if self.key else ''}{self.text}"


def schema_lines(
    schema: Any, origins: Iterable[str] = (), findings: Iterable[Finding] = ()
) -> tuple[SchemaLine, ...]:
    """Return the lines of a schema. Joined by line breaks they are its JSON text.

    A finding is at its keyword; at the first line of its schema if the schema does not have the keyword.
    """
    writer = _LineWriter(frozenset(origins), tuple(findings), schema)
    return tuple(writer.lines(schema, "", "", 0, "", "schema", None))


_Role: TypeAlias = Literal["schema", "schemas", "named schemas", "value"]
_ROLES: Mapping[str, _Role] = {"one": "schema", "list": "schemas", "map": "named schemas"}


class _LineWriter:
    def __init__(self, origins: frozenset[str], findings: tuple[Finding, ...], schema: Any) -> None:
        self._origins = origins
        self._findings: dict[str, list[Finding]] = {}
        known = set(_pointers(schema))
        for finding in findings:
            self._findings.setdefault(_position(finding, known), []).append(finding)

    def lines(
        self, value: Any, key: str, pointer: str, indent: int, comma: str, role: _Role, origin: str | None
    ) -> Iterator[SchemaLine]:
        """Yield the lines of a value; `role` says whether it is a schema, or contains some."""
        if pointer in self._origins and isinstance(value, dict | bool):
            role, origin = "schema", pointer  # a reference may lead anywhere
        on_one_line = not isinstance(value, dict | list) or not value or _is_short(value, role, indent)
        if on_one_line and role == "value" and isinstance(value, dict):
            on_one_line = not any(one.startswith(f"{pointer}/") for one in self._origins)
        findings = self._findings_at(pointer, below=on_one_line)
        kind: KeyKind = "name" if key and role == "schema" else ""
        state = _state(findings)

        def line(text: str, *, first: bool = True) -> SchemaLine:
            if first:
                return SchemaLine(indent, key, text, pointer, kind, origin, state, findings)
            return SchemaLine(indent, "", text, pointer, "", origin)

        if on_one_line:
            yield line(_json(value) + comma)
            return
        assert isinstance(value, dict | list)
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        yield line(opening)
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        for number, (name, member) in enumerate(items, 1):
            after = "," if number < len(items) else ""
            inner = json.dumps(name, ensure_ascii=False) if isinstance(value, dict) else ""
            below = child_pointer(pointer, name)
            if role == "schema":
                yield from self._keyword(name, member, inner, below, indent + _INDENT, after, origin)
            else:
                inner_role: _Role = "schema" if role in ("schemas", "named schemas") else "value"
                yield from self.lines(member, inner, below, indent + _INDENT, after, inner_role, origin)
        yield line(closing + comma, first=False)

    def _findings_at(self, pointer: str, *, below: bool) -> tuple[Finding, ...]:
        """Return the findings at a pointer; with `below`, those inside the value, too."""
        if below:
            inside = (self._findings[one] for one in self._findings if f"{one}/".startswith(f"{pointer}/"))
            return tuple(finding for findings in inside for finding in findings)
        return tuple(self._findings.get(pointer, ()))

    def _keyword(
        self, name: str, value: Any, key: str, pointer: str, indent: int, comma: str, origin: str | None
    ) -> Iterator[SchemaLine]:
        """Yield the lines of a keyword of a schema."""
        role = _ROLES.get(APPLICATORS.get(name, ""), "value")
        if role == "schema" and not isinstance(value, dict | bool):
            role = "schemas" if isinstance(value, list) else "value"
        counts = name in KEYWORDS or name in APPLICATORS or name in _OWN_KEYWORDS
        first, *rest = self.lines(value, key, pointer, indent, comma, role, origin)
        state: State = first.state or ("enforced" if counts and name not in ("$defs", "definitions") else "")
        yield SchemaLine(
            first.indent,
            first.key,
            first.text,
            first.pointer,
            "keyword" if counts or first.findings else "annotation",
            first.origin if counts or first.findings else None,
            state,
            first.findings,
        )
        yield from rest


def _state(findings: tuple[Finding, ...]) -> State:
    if not findings:
        return ""
    return "free" if all(finding.kind in _FREE for finding in findings) else "reported"


def _is_short(value: Any, role: _Role, indent: int) -> bool:
    """Return whether a value is on one line: a list of scalars, what is small and no schema, what is deep."""
    if indent > _DEEPEST:
        return True
    if isinstance(value, list) and not any(isinstance(member, dict | list) for member in value):
        return True
    return role == "value" and len(_json(value)) < _SHORT


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


def _pointers(schema: Any) -> Iterator[str]:
    pending = [("", schema)]
    while pending:
        pointer, here = pending.pop()
        yield pointer
        items = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        pending += [(child_pointer(pointer, key), member) for key, member in items]


def _position(finding: Finding, known: set[str]) -> str:
    """Return where a finding is shown: at its keyword, or at the nearest schema around it."""
    pointer = finding.pointer
    if pointer.rpartition("/")[2] != finding.keyword or pointer not in known:
        below = child_pointer(pointer, finding.keyword)
        pointer = below if below in known else pointer
    while pointer and pointer not in known:
        pointer = pointer.rpartition("/")[0]
    return pointer
