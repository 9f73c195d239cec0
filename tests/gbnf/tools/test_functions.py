"""Typed functions and pydantic models as tools: pydantic is the judge of what a signature accepts."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from gbnf import compile_pool, compile_schema, load_tools, tool, validate_call
from gbnf.errors import BrokenManifestsError, InvalidArgumentError
from gbnf.tools.functions import function_tool
from support.json_values import nested


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A point in the plane."""

    x: int
    y: int = 0


@dataclass
class Size:
    width: int


class Options(TypedDict, total=False):
    deep: bool


def everything(
    name: str,
    /,
    day: dt.date,
    colour: Colour,
    kind: Literal["a", "b"] = "a",
    *,
    points: list[Point] | None = None,
    size: Size | None = None,
    count: Annotated[int, Field(ge=1, le=5, description="How many")] = 2,
    options: Optional[Options] = None,  # noqa: UP045  # both ways of writing it
    pair: tuple[int, str] = (1, "a"),
) -> dict[str, Any]:
    """Do everything at once.

    And more.

    Args:
        name: Who it is for,
            in full.
        day: The day.
        count: Not used, since the annotation has one.
    """
    return dict(locals())


def called(function: Any, /, **arguments: Any) -> Any:
    made = function_tool(function)
    assert made.function is not None
    assert validate_call({"name": made.name, "arguments": arguments}, [made])
    return made.function(arguments, None)


def test_the_schema_is_that_of_the_signature() -> None:
    pytest.importorskip("docstring_parser")
    made = function_tool(everything)
    properties = made.args["properties"]
    assert made.name == "everything"
    assert made.description() == "Do everything at once.\n\nAnd more."
    assert list(properties) == [
        "name", "day", "colour", "kind", "points", "size", "count", "options", "pair",
    ]  # fmt: skip
    assert made.args["required"] == ["name", "day", "colour"]
    assert properties["name"] == {"type": "string", "description": "Who it is for, in full."}
    assert properties["day"]["format"] == "date"
    assert properties["kind"]["enum"] == ["a", "b"]
    assert (properties["count"]["description"], properties["count"]["maximum"]) == ("How many", 5)
    assert made.findings == ()
    assert compile_pool([made], strict=True, property_order="declared").exact


def test_arguments_arrive_as_their_types() -> None:
    values: dict[str, Any] = {}

    def record(day: dt.date, colour: Colour, points: list[Point], size: Size, pair: tuple[int, str]) -> None:
        values.update(locals())

    called(record, day="2026-11-22", colour="red", points=[{"x": 1}], size={"width": 2}, pair=[1, "a"])
    del values["values"]
    assert values == {
        "day": dt.date(2026, 11, 22), "colour": Colour.RED, "points": [Point(x=1)], "size": Size(2),
        "pair": (1, "a"),
    }  # fmt: skip


def test_defaults_are_those_of_the_function() -> None:
    result = called(everything, name="n", day="2026-11-22", colour="blue")
    assert result["points"] is None
    assert (result["kind"], result["count"], result["pair"]) == ("a", 2, [1, "a"])


def test_results_are_json() -> None:
    def result() -> Any:
        return {"day": dt.date(2026, 1, 2), "point": Point(x=1), "colour": Colour.RED, "size": Size(3)}

    assert called(result) == {
        "day": "2026-01-02", "point": {"x": 1, "y": 0}, "colour": "red", "size": {"width": 3}
    }  # fmt: skip


def test_an_async_function_stays_async() -> None:
    async def later(point: Point) -> Point:
        await asyncio.sleep(0)
        return point

    async def main() -> Any:
        return await called(later, point={"x": 1})

    assert asyncio.run(main()) == {"x": 1, "y": 0}


@pytest.mark.parametrize("name", ["json", "copy", "schema", "_x", "model_config", "self_", "class_", "args"])
def test_any_parameter_name(name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def f({name}: int) -> int:\n    return {name} + 1", space)
    assert called(space["f"], **{name: 1}) == 2


def test_positional_only_parameters_may_be_omitted() -> None:
    def f(a: int, b: int = 2, c: int = 3, /, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert called(f, a=1, c=5) == [1, 2, 5, 4]
    assert called(f, a=1, d=0) == [1, 2, 3, 0]


def test_wrapped_functions_methods_and_objects() -> None:
    class Adder:
        def __init__(self, by: int) -> None:
            self.by = by

        def add(self, number: int) -> int:
            """Add."""
            return number + self.by

        def __call__(self, number: int) -> int:
            return number + self.by

    @functools.wraps(Adder.add)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return Adder.add(Adder(1), *args, **kwargs)

    assert called(Adder(2).add, number=1) == 3
    assert called(Adder(2), number=1) == 3
    assert function_tool(Adder(2).add).description() == "Add."
    assert called(functools.partial(Adder.add, Adder(5)), number=1) == 6
    with pytest.raises(InvalidArgumentError, match="method without its object"):
        function_tool(wrapper)


def test_a_parameter_without_annotation_takes_any_value() -> None:
    def loose(a, b: int):  # type: ignore[no-untyped-def]
        return a

    made = function_tool(loose)
    [finding] = made.findings
    assert (finding.kind, finding.pointer) == ("free_form", "/properties/a")
    assert called(loose, a={"x": [None]}, b=1) == {"x": [None]}


def _starred(*values: int) -> None: ...


def _keywords(**values: int) -> None: ...


def _arbitrary(thread: subprocess.Popen[bytes]) -> None: ...


def _unresolved(value: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # it is missing


def _field_default(value: int = Field(3, ge=1)) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_starred, r"'\*values: .*Name each argument"),
        (_keywords, r"'\*\*values: .*Name each argument"),
        (_arbitrary, "no JSON Schema describes|has no JSON Schema"),
        (_unresolved, "name 'Missing' is not defined.*TYPE_CHECKING"),
        (_field_default, "Write it in the annotation"),
    ],
)
def test_functions_that_cannot_be_tools(function: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        tool(function)


def test_a_function_inside_another_cannot_have_its_own_process() -> None:
    def inner() -> None: ...

    with pytest.raises(InvalidArgumentError, match="top level"):
        tool(own_process=True)(inner)


def test_the_decorated_function_is_the_function() -> None:
    def plain(a: int) -> int:
        return a + 1

    decorated = tool(effect="read", confirm=True, timeout_s=3, name="other")(plain)
    assert decorated is plain
    assert decorated(1) == 2
    [made] = load_tools(decorated)
    assert (made.name, made.run.effect, made.run.confirm, made.run.timeout_s) == ("other", "read", True, 3.0)
    assert load_tools([decorated]) == (made,)


def test_arguments_that_do_not_fit_are_named() -> None:
    made = function_tool(everything)
    assert made.function is not None
    with pytest.raises(InvalidArgumentError, match=r"'everything' do not fit: day: .*; colour: "):
        made.function({"name": "n", "day": "x", "colour": "green"}, None)


types: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([int, str, bool, float, Literal["a", 1], Colour, dt.date, Point, type(None)]),
    lambda inner: (
        inner.map(lambda each: list[each])  # type: ignore[valid-type]
        | inner.map(lambda each: dict[str, each])  # type: ignore[valid-type]
        | inner.map(Optional.__getitem__)
    ),
    max_leaves=3,
)
values = nested(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "red", "2026-01-02", ""]),
    st.sampled_from("xy"),
    size=4,
)


@given(annotation=types, value=values)
def test_what_is_valid_for_the_schema_is_valid_for_the_function(annotation: Any, value: Any) -> None:
    """Whatever the grammar and the validator let through, pydantic converts."""

    def f(value):  # type: ignore[no-untyped-def]
        return None

    f.__annotations__["value"] = annotation
    made = function_tool(f)
    assert made.function is not None
    if validate_call({"name": "f", "arguments": {"value": value}}, [made]):
        made.function({"value": value}, None)


class Search(BaseModel):
    """Search the notes."""

    query: str = Field(description="What to look for")
    limit: int = Field(10, ge=1)


def test_a_model_is_a_tool() -> None:
    [made] = load_tools(Search)
    assert (made.name, made.description(), made.function) == ("Search", "Search the notes.", None)
    assert made.args["properties"]["query"] == {"type": "string", "description": "What to look for"}
    assert compile_pool([made]).match('{"name": "Search", "arguments": {"query": "x"}}').complete


@given(value=values)
@pytest.mark.parametrize("type_", [Point, Size, list[Point], dict[str, int], Literal["a", "b"]])
def test_compile_schema_of_a_type(type_: Any, value: Any) -> None:
    text = json.dumps(value)
    grammar = compile_schema(type_)
    if grammar.match(text).complete:
        TypeAdapter(type_).validate_json(text)
    elif grammar.exact and not isinstance(value, dict):  # the grammar has the declared order of properties
        with pytest.raises(ValidationError):
            TypeAdapter(type_).validate_json(text, strict=True)


def test_compile_schema_of_what_is_no_type() -> None:
    with pytest.raises(InvalidArgumentError, match="has no JSON Schema"):
        compile_schema(subprocess.Popen)


def test_a_broken_model_is_reported_with_the_others() -> None:
    with pytest.raises(BrokenManifestsError) as caught:
        load_tools([_starred, Search, _arbitrary])
    errors = [(error.path.name, error.key) for error in caught.value.errors]
    assert errors == [(Path(__file__).name, name) for name in ("_starred", "_arbitrary")]


def test_a_module_gives_its_marked_functions_or_those_that_are_typed() -> None:
    def made(code: str) -> ModuleType:
        module = ModuleType("made")
        exec(code, module.__dict__)
        return module

    code = """
from os import getcwd
from textwrap import dedent
def f(a: int) -> int: return a
async def g() -> str: return ""
def _private(a: int) -> int: return a
def untyped(a, b: int = 1): return a
def unannotated(): return 1
class Type: pass
limit: int = 3
"""
    assert [each.name for each in load_tools(made(code))] == ["f", "g"]
    marked = "from gbnf import tool\n@tool(name='called')\ndef h(a: int) -> int: return a\n"
    assert [each.name for each in load_tools(made(code + marked))] == ["called"]
    with pytest.raises(
        BrokenManifestsError, match=r"the module 'made' has no function marked by `gbnf\.tool`"
    ):
        load_tools(made("from os import getcwd"))


@pytest.mark.slow
def test_pydantic_is_imported_on_first_use() -> None:
    code = (
        "import gbnf, sys; gbnf.load_tools, gbnf.tool, gbnf.compile_schema; print('pydantic' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"
