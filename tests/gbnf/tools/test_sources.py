"""Tools from descriptions of other programs: each form that is recognised, names, and what is reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp.types
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gbnf import Tool, compile_pool, load_tools, tool
from gbnf.errors import BrokenManifestsError
from gbnf.tools.manifest_checks import NAME_PATTERN, RESERVED_NAMES
from support.effort import scaled
from support.json_values import SIMPLE, nested

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"city": {"type": "string", "description": "A city"}},
    "required": ["city"],
    "additionalProperties": False,
}
CALL = '{"name": "weather", "arguments": {"city": "Rome"}}'
CHAT = {
    "type": "function",
    "function": {"name": "weather", "description": "Tell.", "parameters": SCHEMA, "strict": True},
}
RESPONSES = {"type": "function", "name": "weather", "description": "Tell.", "parameters": SCHEMA}
ANTHROPIC = {"name": "weather", "description": "Tell.", "input_schema": SCHEMA}
MCP = {"name": "weather", "description": "Tell.", "inputSchema": SCHEMA}
MANIFEST = {"name": "weather", "description": "Tell.", "args": SCHEMA}
TITLED = {"title": "weather", "description": "Tell.", **SCHEMA}


def weather(city: str) -> str:
    """Tell."""
    return city


class Titled(BaseModel):
    """Tell."""

    city: str


@pytest.mark.parametrize(
    "source",
    [
        CHAT, [CHAT], {"model": "m", "tools": [CHAT]}, RESPONSES, [RESPONSES], ANTHROPIC, [ANTHROPIC],
        {"tools": [MCP]}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [MCP]}}, [MCP],
        {"functions": [RESPONSES]}, {"name": "weather", "description": "Tell.", "parameters": SCHEMA},
        MANIFEST, TITLED, weather, (each for each in [CHAT]), Tool.from_mapping(MANIFEST),
        mcp.types.ListToolsResult.model_validate({"tools": [MCP]}), mcp.types.Tool.model_validate(MCP),
    ],
    ids=lambda source: type(source).__name__,
)  # fmt: skip
def test_each_form_is_the_same_tool(source: Any, tmp_path: Path) -> None:
    [loaded] = load_tools(source)
    assert (loaded.name, loaded.description(), loaded.findings) == ("weather", "Tell.", ())
    assert compile_pool([loaded], strict=True).match(CALL).complete
    assert not compile_pool([loaded]).match(CALL.replace("city", "town")).accepted
    if isinstance(source, dict | list):
        file = tmp_path / "tools.json"
        file.write_text(json.dumps(source))
        assert load_tools(file) == load_tools(str(file)) == (loaded,)


def test_a_function_without_parameters() -> None:
    for source in ({"type": "function", "function": {"name": "now"}}, {"name": "now"}, {"name": "now", "parameters": None}):  # fmt: skip  # noqa: E501
        [now] = load_tools(source)
        assert compile_pool([now]).match('{"name": "now", "arguments": {}}').complete
        assert not compile_pool([now]).match('{"name": "now", "arguments": {"a"').accepted


def test_folders_and_files_of_manifests(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.toml").write_text(f'name = "{name}"\n[args]\n')
    assert [each.name for each in load_tools(tmp_path)] == ["a", "b"]
    one = tmp_path / "b" / "manifest.toml"
    assert [each.path for each in load_tools([one, tmp_path, CHAT])] == [
        one, tmp_path / "a" / "manifest.toml", None
    ]  # fmt: skip


def test_sources_keep_their_order() -> None:
    @tool
    def last() -> None: ...

    mixed = [CHAT, {**MCP, "name": "a"}, Titled, [last], {**TITLED, "title": "B c"}]
    assert [each.name for each in load_tools(mixed)] == ["weather", "a", "Titled", "last", "B_c"]


@pytest.mark.parametrize(
    ("annotations", "effect", "confirm"),
    [
        (None, "write", True),
        ({}, "write", True),
        ({"title": "T"}, "write", True),
        ({"readOnlyHint": True}, "read", False),
        ({"readOnlyHint": True, "destructiveHint": True}, "read", False),
        ({"readOnlyHint": False}, "write", True),
        ({"destructiveHint": True}, "write", True),
        ({"destructiveHint": False}, "write", False),
    ],
)
def test_annotations_of_mcp(annotations: Any, effect: str, confirm: bool) -> None:
    [loaded] = load_tools({"tools": [{**MCP, "annotations": annotations}]})
    assert (loaded.run.effect, loaded.run.confirm) == (effect, confirm)


def test_other_keys_are_kept() -> None:
    [loaded] = load_tools({**MCP, "outputSchema": {"type": "object"}, "path": "x", "run": "y"})
    assert loaded.extra == {"outputSchema": {"type": "object"}, "path": "x"}


def test_a_prefix_resolves_names() -> None:
    names = ["search", "my/search", "1st", "_x", "ask_user", "dotted.name"]
    sources = [{**MCP, "name": name} for name in names]
    assert [each.name for each in load_tools(sources, prefix="fs_")] == [
        "fs_search", "fs_my_search", "fs_1st", "fs__x", "fs_ask_user", "fs_dotted_name",
    ]  # fmt: skip
    assert [each.name for each in load_tools([weather, MANIFEST | {"name": "x.y"}], prefix="a-")] == [
        "a-weather", "a-x_y"
    ]  # fmt: skip


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps([{**MANIFEST, "name": "a b"}, {"type": "web_search"}]))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(BrokenManifestsError) as caught:
        load_tools(
            [
                file, tmp_path / "broken.json", tmp_path / "absent.json", tmp_path / "absent.toml",
                {"tools": [MCP, {**MCP, "description": "Another."}]}, 3, {"x": 1}, None,
                {**MCP, "name": 3},
            ]
        )  # fmt: skip
    errors = caught.value.errors
    assert [(error.path.name, error.key) for error in errors] == [
        ("list.json", "[0].name"),
        ("list.json", "[1]"),
        ("broken.json", ""),
        ("absent.json", ""),
        ("absent.toml", ""),
        ("<source>", "[4].tools[1].name"),
        ("<source>", "[5]"),
        ("<source>", "[6]"),
        ("<source>", "[7]"),
        ("<source>", "[8].name"),
    ]
    assert "another tool has the same name: <source>: [4].tools[0]" in errors[5].problem
    assert "prefix" in errors[5].hint
    assert "prefix" in errors[0].hint


@given(st.text(min_size=1).filter(str.strip))
@example("7zip")
@example("_")
def test_a_name_of_another_program_becomes_valid(name: str) -> None:
    [loaded] = load_tools({**MCP, "name": name}) if name != "final_answer" else load_tools(MCP)
    assert re.fullmatch(NAME_PATTERN, loaded.name)
    assert load_tools({**MCP, "name": loaded.name}) == (loaded,)


@given(st.from_regex(NAME_PATTERN, fullmatch=True).filter(lambda name: name not in RESERVED_NAMES))
@example("a" * 128)
@example("a.b" * 40)
def test_a_valid_name_is_kept(name: str) -> None:
    assert load_tools({**MCP, "name": name})[0].name == name


@given(st.lists(st.text("ab ._/日本1-", min_size=1).filter(str.strip), min_size=2, max_size=4, unique=True))
@example(["日本", "中国"])
@example(["a b", "a_b"])
@example(["/" + "a" * 200, "/" + "a" * 201])
def test_two_tools_never_become_one(names: list[str]) -> None:
    for prefix in (None, "x_"):
        try:
            loaded = load_tools([{**MCP, "name": name} for name in names], prefix=prefix)
        except BrokenManifestsError:
            continue
        assert len({each.name for each in loaded}) == len(names)


def test_names_that_become_equal_are_an_error() -> None:
    with pytest.raises(BrokenManifestsError, match="another tool has the same name"):
        load_tools([{**MCP, "name": "a b"}, {**MCP, "name": "a_b"}])


def test_a_prefix_that_no_api_accepts() -> None:
    for prefix in ("ö", "a" * 60, "", "9-"):
        with pytest.raises(BrokenManifestsError, match="name"):
            load_tools({**MCP, "name": "1234567"}, prefix=prefix)
    with pytest.raises(BrokenManifestsError, match="name"):
        load_tools({**MANIFEST, "name": "ping"}, prefix="9-")


@pytest.mark.parametrize("name", ["final_answer", "ask_user", "find_tools"])
def test_a_tool_with_the_name_of_a_built_in_one_is_renamed(name: str) -> None:
    for other in (MCP, {"type": "function", "function": {"name": "other"}}):
        [_, renamed] = load_tools([other, {**MCP, "name": name}])
        assert renamed.name == f"tool_{name}"
        assert [each for each in renamed.findings if repr(name) in each.reason]
    with pytest.raises(BrokenManifestsError, match="same name"):
        load_tools([{**MCP, "name": name}, {**MCP, "name": f"tool_{name}"}])


def test_a_tool_that_two_sources_describe_alike_is_loaded_once() -> None:
    assert len(load_tools([CHAT, {"tools": [RESPONSES]}])) == 1


def test_malformed_schemas_are_loosened_and_reported() -> None:
    broken = {**MCP, "inputSchema": {"properties": {"a": {"type": "any"}, "b": {"minlength": 1}}}}
    [loaded] = load_tools(broken, prefix="x_")
    assert {(each.tool, each.kind, each.pointer, each.keyword) for each in loaded.findings} == {
        ("x_weather", "loosened", "/properties/a", "type"),
        ("x_weather", "unknown_key", "/properties/b", "minlength"),
    }
    assert compile_pool([loaded]).match('{"name": "x_weather", "arguments": {"a": [1]').accepted
    with pytest.raises(BrokenManifestsError) as caught:
        load_tools([CHAT, broken | {"name": "b"}], strict=True)
    assert len(caught.value.errors) == 2
    assert "/properties/a: type: unknown type" in str(caught.value)


_KEYWORDS = (
    "$schema", "$id", "$anchor", "$ref", "$defs", "type", "properties", "items", "additionalItems", "oneOf",
    "dependencies", "dependentRequired", "minimum", "exclusiveMinimum", "not", "required", "requires_one_of",
    "fills",
)  # fmt: skip
_VALUES = (
    "http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2020-12/schema", "object",
    "string", "#/$defs/type", "#/items/0", "#type", "type", "http://[",
)  # fmt: skip
_schemas = nested(SIMPLE | st.sampled_from(_VALUES), st.sampled_from(_KEYWORDS), most=5, size=20)


@settings(max_examples=scaled(200))
@given(schema=st.dictionaries(st.sampled_from(_KEYWORDS), _schemas))
@example(schema={"properties": {"type": {"required": "type"}}})
@example(schema={"properties": {"type": {"$id": "http://["}}})
@example(schema={"$schema": _VALUES[1], "items": [{"minimum": True, "dependencies": {"type": ["a"]}}]})
@example(schema={"minimum": True, "exclusiveMinimum": True})
@example(schema={"dependencies": {"type": ["items"]}, "dependentRequired": 1})
def test_a_loosened_schema_passes_the_check_of_a_manifest(schema: Any) -> None:
    [loaded] = load_tools({**MCP, "inputSchema": schema})
    assert Tool.from_mapping({"name": "weather", "args": loaded.args}).args == loaded.args
    assert len(set(loaded.findings)) == len(loaded.findings)


def test_a_schema_that_is_too_deep_accepts_any_arguments() -> None:
    schema: dict[str, Any] = {}
    for _ in range(1000):
        schema = {"properties": {"a": schema}}
    [loaded] = load_tools({**MCP, "inputSchema": schema})
    assert loaded.args == {"type": "object", "additionalProperties": True}
    assert loaded.findings[0].kind == "loosened"


_WORDS = (
    "name", "title", "type", "function", "parameters", "inputSchema", "input_schema", "args", "tools",
    "result", "annotations", "properties", "description", "$ref", "required",
)  # fmt: skip
json_values = nested(SIMPLE | st.text(max_size=5), st.sampled_from(_WORDS), most=5, size=20)


@settings(max_examples=scaled(50))
@given(source=json_values.filter(lambda value: not isinstance(value, str)), prefix=st.none() | st.just("p_"))
def test_any_value_is_tools_or_an_error(source: Any, prefix: str | None) -> None:
    try:
        loaded = load_tools(source, prefix=prefix)
    except BrokenManifestsError:
        return
    assert len({each.name for each in loaded}) == len(loaded)
    assert load_tools(source, prefix=prefix) == loaded


def test_an_object_that_describes_nothing() -> None:
    with pytest.raises(BrokenManifestsError, match="no description of a tool"):
        load_tools(SimpleNamespace(name="a"))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"type": "object", "properties": {}}, "no description of a tool .* a JSON Schema with a title"),
        ({"type": "function"}, "no description of a tool"),
        ({"type": "web_search"}, "a tool that the API itself executes"),
    ],
)
def test_only_a_tool_that_the_api_executes_is_called_so(source: Any, problem: str) -> None:
    with pytest.raises(BrokenManifestsError, match=problem):
        load_tools(source)


def test_a_file_names_no_other_files(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps([str(file), MCP]))
    with pytest.raises(BrokenManifestsError) as caught:
        load_tools(file)
    assert [(error.path, error.key) for error in caught.value.errors] == [(file, "[0]")]
