"""Near misses: valid values with one constraint broken.

The possible mutations are listed from the schemas of each part of the value, one is drawn and applied, and
the validator confirms that the result is invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import assume
from hypothesis import strategies as st

from gbnf.schema.keywords import path_pointer
from gbnf.testing.generation import ValueGenerator
from gbnf.testing.subjects import PoolSubject, SchemaSubject, Subject, ToolsOrSchema, subject

BrokenConstraint = Literal[
    "missing", "extra", "type", "enum", "bound", "multiple", "length", "pattern", "format", "items", "unique",
    "properties", "none_of_group", "other_arguments", "unknown_tool", "unknown_step", "not_offered",
]  # fmt: skip
"""What is invalid: a required property is missing, an extra one given; a value is of the wrong type, outside
an enum, a bound, the multiples, a length, a pattern or a format; items are too few, too many or not unique;
properties are too few or too many; of a requires_one_of group none is given; the arguments are another
tool's; the tool or the step does not exist; an argument is given that is not offered to the model."""

_LONGEST = 3_000  # length of a string or an array that exceeds an upper bound
_OTHERS: tuple[Any, ...] = (None, True, 0, 0.5, "", "a", [], {}, [0], {"a": 0})
_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """An invalid value, the broken constraint, and its location: a JSON Pointer into the value."""

    value: Any
    broken: BrokenConstraint
    pointer: str


@dataclass(frozen=True, slots=True)
class _Mutation:
    """A mutation of a value: the replacement at a path, or `_REMOVED`."""

    broken: BrokenConstraint
    path: _Path
    replacement: Any


_REMOVED = object()


def near_misses(
    of: ToolsOrSchema, *, steps: Sequence[int] = (), closed: bool | None = None
) -> st.SearchStrategy[NearMiss]:
    """Return invalid calls of tools, or invalid values of a schema, each with one constraint broken."""
    return near_misses_of(subject(of, steps=steps, closed=closed))


@st.composite
def near_misses_of(draw: st.DrawFn, of: Subject) -> NearMiss:
    """Draw a near miss of a subject."""
    value = draw(of.valid())
    mutations = list(_mutations_of(of, value))
    by_kind: dict[BrokenConstraint, list[_Mutation]] = {}
    for mutation in mutations:
        by_kind.setdefault(mutation.broken, []).append(mutation)
    if isinstance(of, PoolSubject) and len(of.tools) > 1:
        by_kind["other_arguments"] = []
    assume(by_kind)
    kind = draw(st.sampled_from(list(by_kind)))
    if kind == "other_arguments":
        assert isinstance(of, PoolSubject)
        other = draw(PoolSubject(of.tools, of.steps, of.closed).valid())
        assume(other["name"] != value["name"])
        miss = NearMiss({"name": value["name"], "arguments": other["arguments"]}, kind, "/arguments")
    else:
        mutation = draw(st.sampled_from(by_kind[kind]))
        miss = NearMiss(
            _changed(value, mutation.path, mutation.replacement), kind, path_pointer(mutation.path)
        )
    assume(of.errors(miss.value))
    return miss


def _mutations_of(of: Subject, value: Any) -> Iterator[_Mutation]:
    if isinstance(of, SchemaSubject):
        yield from _mutations(of.generator(), [of.schema], value, ())
        return
    name, arguments = value["name"], value["arguments"]
    schema = of.offered[name]
    references = of.references(name)
    yield from (
        mutation
        for mutation in _mutations(of.generator(name), [schema], arguments, ("arguments",))
        if mutation.path != ("arguments",) or mutation.broken == "type"
    )
    tool = next(candidate for candidate in of.tools if candidate.name == name)
    yield _Mutation("unknown_tool", ("name",), name + "_x")
    yield _Mutation("missing", ("arguments",), _REMOVED)
    for group in schema.get("requires_one_of", ()):
        others = {key: item for key, item in arguments.items() if key not in group}
        yield _Mutation("none_of_group", ("arguments",), others)
    for reference in references.keys() & arguments.keys():
        yield _Mutation("unknown_step", ("arguments", reference), max(of.steps) + 1)
    for hidden in sorted(tool.runtime_resolved):
        yield _Mutation("not_offered", ("arguments", hidden), "x")
    if not of.steps:
        for reference in sorted(references):
            yield _Mutation("not_offered", ("arguments", reference), 1)


def _mutations(
    generator: ValueGenerator, schemas: Sequence[Any], value: Any, path: _Path
) -> Iterator[_Mutation]:
    """Yield mutations that break the schemas outside of branches."""
    conjuncts = generator.conjuncts(schemas)
    for conjunct in conjuncts:
        yield from _own_mutations(conjunct, value, path)
    if isinstance(value, dict):
        required = [name for conjunct in conjuncts for name in conjunct.get("required", ())]
        yield from (_Mutation("missing", (*path, name), _REMOVED) for name in required if name in value)
        if generator.is_closed(conjuncts):
            yield _Mutation("extra", (*path, "unexpected"), "x")
        for name, item in value.items():
            yield from _mutations(generator, generator.property(conjuncts, name), item, (*path, name))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _mutations(generator, generator.items(conjuncts, index), item, (*path, index))


def _own_mutations(conjunct: Mapping[str, Any], value: Any, path: _Path) -> Iterator[_Mutation]:
    """Yield values that break a keyword of this schema, not of the schemas in it."""
    if "type" in conjunct:
        for other in _OTHERS:
            if type(other) is not type(value) and not (conjunct["type"] == "number" and other == 0):
                yield _Mutation("type", path, other)
    if "enum" in conjunct or "const" in conjunct:
        outside = (
            [value + "x", value[:-1], value.upper(), "x"] if isinstance(value, str) else [None, "x", 99, 99.5]
        )
        yield from (_Mutation("enum", path, other) for other in outside)
        return
    match value:
        case bool() | None:
            pass
        case int() | float():
            yield from _number_mutations(conjunct, value, path)
        case str():
            yield from _string_mutations(conjunct, value, path)
        case list():
            yield from _array_mutations(conjunct, value, path)
        case dict():
            if conjunct.get("minProperties", 0) > 0:
                yield _Mutation(
                    "properties", path, dict(list(value.items())[: conjunct["minProperties"] - 1])
                )
            if "maxProperties" in conjunct:
                surplus = {f"more {number}": number for number in range(conjunct["maxProperties"] + 1)}
                yield _Mutation("properties", path, {**value, **surplus})


def _number_mutations(conjunct: Mapping[str, Any], value: float, path: _Path) -> Iterator[_Mutation]:
    for keyword, step in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1), ("exclusiveMaximum", 0)):
        if keyword in conjunct and not isinstance(conjunct[keyword], bool):
            yield _Mutation("bound", path, conjunct[keyword] + step)
            yield _Mutation("bound", path, conjunct[keyword] + 10 * (1 if "max" in keyword.lower() else -1))
    if "multipleOf" in conjunct:
        yield _Mutation("multiple", path, value + 1)
        yield _Mutation("multiple", path, value + conjunct["multipleOf"] / 2)
    if conjunct.get("type") == "integer":
        yield _Mutation("type", path, value + 0.5)


def _string_mutations(conjunct: Mapping[str, Any], value: str, path: _Path) -> Iterator[_Mutation]:
    low, high = conjunct.get("minLength", 0), conjunct.get("maxLength")
    if low > 0:
        yield _Mutation("length", path, value[: low - 1])
    if high is not None and high < _LONGEST:
        yield _Mutation("length", path, value + "a" * (high + 1 - len(value)))
    for keyword in ("pattern", "format"):
        if keyword in conjunct:
            broken: BrokenConstraint = "pattern" if keyword == "pattern" else "format"
            others = ("", " ", value + " ", " " + value, value[:-1], value + value, "~", "2024-02-30", "0")
            yield from (_Mutation(broken, path, other) for other in others)


def _array_mutations(conjunct: Mapping[str, Any], value: list[Any], path: _Path) -> Iterator[_Mutation]:
    low, high = conjunct.get("minItems", 0), conjunct.get("maxItems")
    if low > 0:
        yield _Mutation("items", path, value[: low - 1])
    if high is not None and high < _LONGEST and value:
        yield _Mutation("items", path, value + [value[-1]] * (high + 1 - len(value)))
    if conjunct.get("uniqueItems") is True and value:
        yield _Mutation("unique", path, [*value, value[-1]])


def _changed(value: Any, path: _Path, replacement: Any) -> Any:
    """Return a copy of `value` with `replacement` at `path`."""
    if not path:
        return replacement
    key, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if replacement is _REMOVED and not rest:
        del copy[key]
    else:
        copy[key] = _changed(copy[key], tuple(rest), replacement) if rest else replacement
    return copy
