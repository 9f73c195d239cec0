"""Near misses: a valid value with one constraint broken.

What the schema says of each part of the value is listed as possible breakages, one of them is drawn and done,
and the validator confirms that the result is invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import assume
from hypothesis import strategies as st

from gbnf.testing.subjects import Of, PoolSubject, SchemaSubject, Subject, subject
from gbnf.testing.values import Maker

Breakage = Literal[
    "missing", "extra", "type", "enum", "bound", "multiple", "length", "pattern", "format", "items", "unique",
    "properties", "none_of_group", "other_arguments", "unknown_tool", "unknown_step", "not_offered",
]  # fmt: skip
"""What was broken: a required property is missing, an extra one given; a value is of the wrong type, outside
an enum, a bound, the multiples, a length, a pattern or a format; items are too few, too many or not unique;
properties are too few or too many; of a requires_one_of group none is given; the arguments are another
tool's; the tool or the step does not exist; an argument is given that is not the model's to give."""

_LONGEST = 3_000  # of a text or an array that is written to break an upper bound
_OTHERS: tuple[Any, ...] = (None, True, 0, 0.5, "", "a", [], {}, [0], {"a": 0})
_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """An invalid value, what was broken (see `Breakage`), and where: a JSON pointer into the value."""

    value: Any
    broken: Breakage
    pointer: str


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to break a value: what to put at a path, `_GONE` to take it away."""

    broken: Breakage
    path: _Path
    put: Any


_GONE = object()


def near_misses(
    of: Of, *, steps: Sequence[int] = (), closed: bool | None = None
) -> st.SearchStrategy[NearMiss]:
    """Invalid calls of executors, or invalid values of a schema, each with exactly one constraint broken."""
    return near_misses_of(subject(of, steps=steps, closed=closed))


def near_misses_of(one: Subject) -> st.SearchStrategy[NearMiss]:
    return _near_misses(one)


@st.composite
def _near_misses(draw: st.DrawFn, of: Subject) -> NearMiss:
    value = draw(of.valid())
    ways = list(_ways_of(of, value))
    by_kind: dict[Breakage, list[_Way]] = {}
    for way in ways:
        by_kind.setdefault(way.broken, []).append(way)
    if isinstance(of, PoolSubject) and len(of.executors) > 1:
        by_kind["other_arguments"] = []
    assume(by_kind)
    kind = draw(st.sampled_from(list(by_kind)))
    if kind == "other_arguments":
        assert isinstance(of, PoolSubject)
        other = draw(PoolSubject(of.executors, of.steps, of.closed).valid())
        assume(other["name"] != value["name"])
        miss = NearMiss({"name": value["name"], "arguments": other["arguments"]}, kind, "/arguments")
    else:
        way = draw(st.sampled_from(by_kind[kind]))
        miss = NearMiss(_changed(value, way.path, way.put), kind, _pointer(way.path))
    assume(of.errors(miss.value))
    return miss


def _ways_of(of: Subject, value: Any) -> Iterator[_Way]:
    if isinstance(of, SchemaSubject):
        yield from _ways(of.maker(), [of.schema], value, ())
    if not isinstance(of, PoolSubject):
        return
    name, arguments = value["name"], value["arguments"]
    schema = of.offered[name]
    references = of.references(name)
    yield from (
        way
        for way in _ways(of.maker(name), [schema], arguments, ("arguments",))
        if way.path != ("arguments",) or way.broken == "type"
    )
    tool = next(one for one in of.executors if one.name == name)
    yield _Way("unknown_tool", ("name",), name + "_x")
    yield _Way("missing", ("arguments",), _GONE)
    for group in schema.get("requires_one_of", ()):
        left = {key: item for key, item in arguments.items() if key not in group}
        yield _Way("none_of_group", ("arguments",), left)
    for reference in references.keys() & arguments.keys():
        yield _Way("unknown_step", ("arguments", reference), max(of.steps) + 1)
    for hidden in sorted(tool.runtime_resolved):
        yield _Way("not_offered", ("arguments", hidden), "x")
    if not of.steps:
        for reference in sorted(references):
            yield _Way("not_offered", ("arguments", reference), 1)


def _ways(maker: Maker, schemas: Sequence[Any], value: Any, path: _Path) -> Iterator[_Way]:
    """The ways to break a value by what certainly holds of it: branches are left alone."""
    facets = maker.facets(schemas)
    for facet in facets:
        yield from _own_ways(facet, value, path)
    if isinstance(value, dict):
        required = [name for facet in facets for name in facet.get("required", ())]
        yield from (_Way("missing", (*path, name), _GONE) for name in required if name in value)
        if maker.is_closed(facets):
            yield _Way("extra", (*path, "unexpected"), "x")
        for name, item in value.items():
            yield from _ways(maker, maker.property(facets, name), item, (*path, name))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _ways(maker, maker.items(facets, index), item, (*path, index))


def _own_ways(facet: Mapping[str, Any], value: Any, path: _Path) -> Iterator[_Way]:
    if "type" in facet:
        for other in _OTHERS:
            if type(other) is not type(value) and not (facet["type"] == "number" and other == 0):
                yield _Way("type", path, other)
    if "enum" in facet or "const" in facet:
        outside = (
            [value + "x", value[:-1], value.upper(), "x"] if isinstance(value, str) else [None, "x", 99, 99.5]
        )
        yield from (_Way("enum", path, other) for other in outside)
        return
    match value:
        case bool() | None:
            pass
        case int() | float():
            yield from _number_ways(facet, value, path)
        case str():
            yield from _string_ways(facet, value, path)
        case list():
            yield from _array_ways(facet, value, path)
        case dict():
            if facet.get("minProperties", 0) > 0:
                yield _Way("properties", path, dict(list(value.items())[: facet["minProperties"] - 1]))
            if "maxProperties" in facet:
                more = {f"more {number}": number for number in range(facet["maxProperties"] + 1)}
                yield _Way("properties", path, {**value, **more})


def _number_ways(facet: Mapping[str, Any], value: float, path: _Path) -> Iterator[_Way]:
    for keyword, step in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1), ("exclusiveMaximum", 0)):
        if keyword in facet and not isinstance(facet[keyword], bool):
            yield _Way("bound", path, facet[keyword] + step)
            yield _Way("bound", path, facet[keyword] + 10 * (1 if "max" in keyword.lower() else -1))
    if "multipleOf" in facet:
        yield _Way("multiple", path, value + 1)
        yield _Way("multiple", path, value + facet["multipleOf"] / 2)
    if facet.get("type") == "integer":
        yield _Way("type", path, value + 0.5)


def _string_ways(facet: Mapping[str, Any], value: str, path: _Path) -> Iterator[_Way]:
    low, high = facet.get("minLength", 0), facet.get("maxLength")
    if low > 0:
        yield _Way("length", path, value[: low - 1])
    if high is not None and high < _LONGEST:
        yield _Way("length", path, value + "a" * (high + 1 - len(value)))
    for keyword in ("pattern", "format"):
        if keyword in facet:
            broken: Breakage = "pattern" if keyword == "pattern" else "format"
            others = ("", " ", value + " ", " " + value, value[:-1], value + value, "~", "2024-02-30", "0")
            yield from (_Way(broken, path, other) for other in others)


def _array_ways(facet: Mapping[str, Any], value: list[Any], path: _Path) -> Iterator[_Way]:
    low, high = facet.get("minItems", 0), facet.get("maxItems")
    if low > 0:
        yield _Way("items", path, value[: low - 1])
    if high is not None and high < _LONGEST and value:
        yield _Way("items", path, value + [value[-1]] * (high + 1 - len(value)))
    if facet.get("uniqueItems") is True and value:
        yield _Way("unique", path, [*value, value[-1]])


def _changed(value: Any, path: _Path, put: Any) -> Any:
    """A copy of `value` with `put` at `path`."""
    if not path:
        return put
    key, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if put is _GONE and not rest:
        del copy[key]
    else:
        copy[key] = _changed(copy[key], tuple(rest), put) if rest else put
    return copy


def _pointer(path: _Path) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
