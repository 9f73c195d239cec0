"""A JSON Schema as lines of JSON, each keyword with its JSON Pointer, its state and its findings."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from gbnf.findings import Finding
from gbnf.schema.keywords import APPLICATORS, KEYWORDS, child_pointer, path_pointer, resolve_pointer

KeyKind: TypeAlias = Literal["keyword", "name", "branch", "annotation", ""]
"""What a line begins: a keyword, a named schema, one in a list, or something that only people read."""
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

    `origin`: its pointer, if rules come from it. If that is not known, that of the nearest part around it.
    `has_effect`: False for a keyword, a property or a branch that changes nothing in the grammar.
    """

    indent: int
    key: str
    text: str
    pointer: str
    kind: KeyKind = ""
    origin: str | None = None
    has_effect: bool = True
    state: State = ""
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        return f"{' ' * self.indent}{f'{self.key}: ' if self.key else ''}{self.text}"


def schema_lines(
    schema: Any,
    origins: Iterable[str] = (),
    findings: Iterable[Finding] = (),
    without_effect: Iterable[str] = (),
) -> tuple[SchemaLine, ...]:
    """Return the lines of a schema. Joined by line breaks they are its JSON text.

    A finding is at its keyword; at the first line of its schema if the schema does not have the keyword.
    """
    writer = _LineWriter(schema, frozenset(origins), tuple(findings), frozenset(without_effect))
    return tuple(writer.lines(schema, "", "", 0, "", "schema", None))


_Role: TypeAlias = Literal["schema", "schemas", "named schemas", "value"]
_ROLES: Mapping[str, _Role] = {"one": "schema", "list": "schemas", "map": "named schemas"}


class _LineWriter:
    def __init__(
        self, schema: Any, origins: frozenset[str], findings: tuple[Finding, ...], idle: frozenset[str]
    ) -> None:
        self._origins, self._idle = origins, idle
        members = dict(_members(schema))
        targets = (
            resolve_pointer(here.get("$ref"), schema) for here in members.values() if isinstance(here, dict)
        )
        self._referenced = frozenset(path_pointer(target[0]) for target in targets if target is not None)
        self._findings: dict[str, list[Finding]] = {}
        for finding in findings:
            self._findings.setdefault(_position(finding, members), []).append(finding)

    def lines(
        self, value: Any, key: str, pointer: str, indent: int, comma: str, role: _Role, origin: str | None
    ) -> Iterator[SchemaLine]:
        """Yield the lines of a value; `role` says whether it is a schema, or contains some."""
        if pointer in self._referenced and isinstance(value, dict | bool):
            role = "schema"  # a reference may lead anywhere
        has_effect = pointer not in self._idle
        if pointer in self._origins or not has_effect:
            origin = pointer if has_effect else None
        on_one_line = not isinstance(value, dict | list) or not value or _is_short(value, role, indent)
        if on_one_line and role == "value" and isinstance(value, dict):
            on_one_line = not any(place.startswith(f"{pointer}/") for place in self._referenced)
        here = [place for place in self._findings if on_one_line and f"{place}/".startswith(f"{pointer}/")]
        findings = tuple(finding for place in here or [pointer] for finding in self._findings.get(place, ()))
        kind: KeyKind = "" if role != "schema" else "name" if key else "branch" if pointer else ""
        state = _state(findings)

        def line(text: str, *, first: bool = True) -> SchemaLine:
            if first:
                return SchemaLine(indent, key, text, pointer, kind, origin, has_effect, state, findings)
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
        if counts or first.findings:
            yield replace(first, kind="keyword", state=state)
        else:
            yield replace(first, kind="annotation", origin=None, state=state)
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


def _members(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value in a schema, however deep, with its pointer."""
    pending = [("", schema)]
    while pending:
        pointer, here = pending.pop()
        yield pointer, here
        items = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        pending += [(child_pointer(pointer, key), member) for key, member in items]


def _position(finding: Finding, pointers: Container[str]) -> str:
    """Return where a finding is shown: at its keyword, or at the nearest schema around it."""
    pointer = finding.pointer
    if pointer.rpartition("/")[2] != finding.keyword or pointer not in pointers:
        below = child_pointer(pointer, finding.keyword)
        pointer = below if below in pointers else pointer
    while pointer and pointer not in pointers:
        pointer = pointer.rpartition("/")[0]
    return pointer
