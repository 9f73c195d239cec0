"""Check that a grammar's report explains why an invalid instance is accepted.

jsonschema reports which keywords the instance violates and where; each of them must have a finding of kind
"unenforced" at that location, above it or below it. An error of `anyOf` or `oneOf` is explained as well where
an error of one of its branches is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for

from gbnf.findings import Finding
from gbnf.schema.keywords import pointer_key
from gbnf.schema.validators import FORMAT_CHECKER
from references import REFERENCES, target

_Path = tuple[str, ...]
#: Keywords that jsonschema leaves out of the paths of the errors behind them.
_SILENT = (*REFERENCES, "if")


def unexplained(schema: Any, data: Any, report: Iterable[Finding], *, draft: Any = None) -> list[str]:
    """Return what the report fails to explain of an accepted invalid instance: "keyword at pointer" each.

    Empty where it explains all. Where jsonschema finds no fault, or can't judge, any unenforced
    keyword will do.
    `draft` is the validator class for a schema that names none.
    """
    chosen = validator_for(schema, default=draft or jsonschema.Draft202012Validator)
    validator = chosen(schema, format_checker=FORMAT_CHECKER)
    try:
        errors = list(validator.iter_errors(data))
    except Exception:  # noqa: BLE001  # a pattern that Python can't read, a reference that leads nowhere …
        errors = []
    places = [_finding_path(finding) for finding in report if finding.kind == "unenforced"]
    if not errors:
        return [] if places else ["nothing that jsonschema finds, and the report is empty"]
    places += [_without_references(place) for place in places]
    document = _Document(schema)
    return [document.shown(error) for error in errors if not document.explains(error, places)]


class _Document:
    """A schema with the path of each of its objects."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._pointers = {id(node): pointer for pointer, node in _nodes(schema, ())}

    def explains(self, error: ValidationError, places: Sequence[_Path]) -> bool:
        """Return whether a finding at one of `places` explains a validation error."""
        for path in self._error_paths(error):
            for place in places:
                shorter = min(len(path), len(place))
                if path[:shorter] == place[:shorter]:
                    return True
                if place[-1] in _SILENT and path[: len(place) - 1] == place[:-1]:
                    return True
        silent = {(*place, keyword) for place in self._visited(error) for keyword in _SILENT}
        if not silent.isdisjoint(places):
            return True
        return any(self.explains(inner, places) for inner in error.context or ())

    def shown(self, error: ValidationError) -> str:
        """Return a validation error as keyword and JSON Pointer."""
        *_, path, _ = self._error_paths(error)
        return f"{error.validator} at /{'/'.join(path)}"

    def _error_paths(self, error: ValidationError) -> Iterator[_Path]:
        """Where the failing keyword stands: by way of the instance, and behind references."""
        path = tuple(map(str, error.absolute_schema_path))
        where = self._pointers.get(id(error.schema))
        beside = str(error.validator)  # `maxContains`, of which jsonschema speaks at `contains`
        yield from (path, (*path[:-1], beside))
        if where is not None:
            yield from ((*where, *path[-1:]), (*where, beside))

    def _visited(self, error: ValidationError) -> Iterator[_Path]:
        """Return the locations of the schema objects on the way to an error, as far as references resolve."""
        path = tuple(error.absolute_schema_path)
        pending, seen = [(self._root, 0)], set[tuple[int, int]]()
        while pending:
            node, depth = pending.pop()
            if (id(node), depth) in seen:
                continue
            seen.add((id(node), depth))
            if isinstance(node, Mapping):
                yield self._pointers.get(id(node), ())
                pending += [
                    (target(self._root, node[keyword]), depth) for keyword in REFERENCES if keyword in node
                ]
            if depth < len(path):
                match node, path[depth]:
                    case Mapping(), str(key) if key in node:
                        pending.append((node[key], depth + 1))
                    case list(), int(index) if index < len(node):
                        pending.append((node[index], depth + 1))


def _finding_path(finding: Finding) -> _Path:
    parts = tuple(map(pointer_key, finding.pointer.split("/")[1:]))
    return parts if parts and parts[-1] == finding.keyword else (*parts, finding.keyword)


def _without_references(place: _Path) -> _Path:
    """`/$ref/items/$dynamicRef` -> `/items/$dynamicRef`: as jsonschema's own paths go."""
    return (*(step for step in place[:-1] if step not in REFERENCES), *place[-1:])


def _nodes(node: Any, pointer: _Path) -> Iterator[tuple[_Path, Any]]:
    match node:
        case Mapping():
            yield pointer, node
            for key, value in node.items():
                yield from _nodes(value, (*pointer, str(key)))
        case list():
            for index, value in enumerate(node):
                yield from _nodes(value, (*pointer, str(index)))
