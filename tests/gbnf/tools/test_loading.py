"""Reading manifests: what loads, and which error each broken one raises."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema_specifications import REGISTRY

from gbnf.errors import BrokenManifestsError, GbnfError, ManifestError
from gbnf.schema.drafts import as_2020_12
from gbnf.tools import ASK_USER, BUILT_IN_TOOLS, FINAL_ANSWER, Tool, load_manifests
from gbnf.tools.argument_schema import ArgumentSchemaError, checked_argument_schema
from gbnf.tools.manifest_checks import RESERVED_NAMES
from support.folders import deepen
from support.json_values import SIMPLE, nested

BUNDLED = Path(__file__).parents[3] / "manifests"
SMALL = 'name = "{name}"\ndescription = "d"\n[args]\ntype = "object"\n'

json_values = nested(SIMPLE | st.floats() | st.text(max_size=8), st.text(max_size=8), size=20)
#: Mappings that look like manifests to all depths, so that the checks get past the first one.
words = st.sampled_from(
    [
        "name", "description", "args", "offer", "run", "type", "properties", "required", "requires_one_of",
        "fills", "runtime_resolved", "$ref", "#", "object", "integer", "items", "enum", "anyOf", "a", "b",
        "markers", "effect", "timeout_s", "env", "memory_mb", "max_result_kb",
    ]
)  # fmt: skip
schema_like = nested(st.none() | st.booleans() | st.integers(-2, 2) | words | json_values, words, most=5)


#: Keywords of the draft's metaschemas whose form does not matter, since nothing here reads them.
UNREAD = {
    "$comment", "$schema", "$vocabulary", "contentEncoding", "contentMediaType", "contentSchema",
    "$recursiveAnchor", "deprecated", "examples", "readOnly", "writeOnly",
}  # fmt: skip
METASCHEMA: Any = Draft202012Validator.META_SCHEMA
PARTS = [
    METASCHEMA,
    *(REGISTRY.contents(urljoin(METASCHEMA["$id"], each["$ref"])) for each in METASCHEMA["allOf"]),
]
KEYWORDS = st.sampled_from(sorted({name for part in PARTS for name in part.get("properties", {})} - UNREAD))
SCALARS = st.booleans() | st.sampled_from([0, 1, -1, 0.5, "a", "[", "object", "#", "#a", [], ["a", "a"], {}])
keywords_with_values = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(KEYWORDS | st.just("a"), inner | st.lists(inner, max_size=2), max_size=3),
    max_leaves=8,
)


@given(schema=st.dictionaries(KEYWORDS, keywords_with_values, max_size=4))
def test_arguments_that_the_metaschema_refuses_are_refused(schema: Any) -> None:
    errors = Draft202012Validator(METASCHEMA).iter_errors(as_2020_12({**schema, "type": "object"}))
    # names may be repeated and of any form, and a description may be one for each language
    if any(
        error.validator not in {"uniqueItems", "pattern"} and "description" not in error.absolute_path
        for error in errors
    ):
        with pytest.raises(ArgumentSchemaError):
            checked_argument_schema({**schema, "type": "object"})


def write(folder: Path, text: str | bytes, name: str = "manifest.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def only_error(path: Path | list[Path]) -> ManifestError:
    with pytest.raises(BrokenManifestsError) as caught:
        load_manifests(path)
    (error,) = caught.value.errors
    return error


@given(content=st.dictionaries(words, schema_like, max_size=7), args=schema_like)
def test_any_content_is_an_executor_or_one_error(content: Any, args: Any) -> None:
    def read() -> Tool | str:
        try:
            return Tool.from_mapping({"name": "a", **content, "args": args})
        except ManifestError as error:
            return f"{error.problem} {error.hint}"

    outcome = read()
    assert outcome == read()
    assert outcome != " "


@given(
    extra=st.dictionaries(
        st.text(max_size=12).filter(
            lambda key: key not in {"name", "version", "description", "affinity", "args", "offer", "run"}
        ),
        json_values,
        max_size=5,
    )
)
def test_unknown_keys_are_kept(extra: Any) -> None:
    tool = Tool.from_mapping({"name": "a", "args": {}, **extra})
    assert repr(tool.extra) == repr(extra)


NAMES = st.sampled_from(["p0", "p1", "p2", "p3"])


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    resolved, required = (draw(st.sets(NAMES)) for _ in range(2))
    properties = {
        name: {**schema, "runtime_resolved": True} if name in resolved else schema
        for name, schema in draw(st.dictionaries(NAMES, inner, min_size=1)).items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [*filter(required.__contains__, properties)],
    }


nodes = st.recursive(
    st.just({"type": "string"}),
    lambda inner: objects(inner).flatmap(
        lambda one: st.sampled_from([one, {"type": "array", "items": one}, {"anyOf": [one]}])
    ),
)


@pytest.mark.slow
@given(args=objects(nodes))
def test_what_the_runtime_fills_in_is_nowhere_in_model_args(args: Any) -> None:
    before = copy.deepcopy(args)
    tool = Tool.from_mapping({"name": "a", "args": args})
    assert "runtime_resolved" not in repr(tool.model_args())
    assert args == before
    assert set(tool.model_args()["required"]) <= set(tool.model_args()["properties"])


def test_the_bundled_manifests_load_in_name_order() -> None:
    tools = load_manifests(BUNDLED)
    names = [tool.name for tool in tools]
    assert len(names) >= 14
    assert names == sorted(names)
    assert all(tool.path and tool.path.parent.name == tool.name for tool in tools)
    assert all(tool.description("it") != tool.description("en") for tool in tools)


def test_a_folder_a_file_and_several_are_read_alike(tmp_path: Any) -> None:
    one = write(tmp_path / "deep" / "er" / "one", SMALL.format(name="one"))
    two = write(tmp_path / "two", SMALL.format(name="two"))
    write(tmp_path / "two", "no manifest [", name="other.toml")
    named = write(tmp_path, SMALL.format(name="zero"), name="anything.toml")
    whole = load_manifests(tmp_path)
    assert [tool.name for tool in whole] == ["one", "two"]
    assert load_manifests(str(one)) == whole[:1]
    assert load_manifests([two, one]) == whole
    assert load_manifests([tmp_path, two, named])[:2] == whole
    assert load_manifests([]) == ()


def test_linked_folders_are_followed_once(tmp_path: Any) -> None:
    write(tmp_path / "real" / "one", SMALL.format(name="one"))
    (tmp_path / "real" / "loop").symlink_to(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert [tool.name for tool in load_manifests(tmp_path)] == ["one"]


def test_folders_deeper_than_the_recursion_limit_are_searched(deep_path: Path) -> None:
    write(deep_path / "one", SMALL.format(name="one"))
    deepen(deep_path, sys.getrecursionlimit() + 100)
    assert [tool.name for tool in load_manifests(deep_path)] == ["one"]


def test_all_broken_files_are_reported_at_once(tmp_path: Any) -> None:
    broken = [
        write(tmp_path / "a", "name = "),
        write(tmp_path / "b", SMALL.format(name="1b")),
        write(tmp_path / "c", b'name = "\xff"'),
    ]
    write(tmp_path / "d", SMALL.format(name="d"))
    with pytest.raises(BrokenManifestsError) as caught:
        load_manifests(tmp_path)
    assert [error.path for error in caught.value.errors] == broken
    assert all(str(file) in str(caught.value) for file in broken)
    assert isinstance(caught.value, GbnfError)


def test_one_name_in_two_files_names_both(tmp_path: Any) -> None:
    first = write(tmp_path / "a", SMALL.format(name="same"))
    second = write(tmp_path / "b", SMALL.format(name="same"))
    error = only_error(tmp_path)
    assert (error.path, error.key, error.value) == (second, "name", "same")
    assert str(first) in str(error)


def test_a_path_without_manifests_is_an_error(tmp_path: Any) -> None:
    assert "no manifest.toml" in only_error(tmp_path).problem
    assert "no such file" in only_error(tmp_path / "absent").problem


def test_toml_faults_name_the_line(tmp_path: Any) -> None:
    assert "line 2" in only_error(write(tmp_path, 'name = "a"\n[args\n')).problem
    assert "nest" in only_error(write(tmp_path, "a = " + "[" * 5000 + "]" * 5000)).problem


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Any) -> None:
    text = b"\xef\xbb\xbf" + SMALL.format(name="a").replace("\n", "\r\n").encode()
    assert load_manifests(write(tmp_path, text))[0].name == "a"


ARGS: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"name": None}, "name"),
        ({"name": "1a"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "é"}, "name"),
        ({"name": "a" * 129}, "name"),
        ({"name": 3}, "name"),
        ({"name": "final_answer"}, "name"),
        ({"version": 1.0}, "version"),
        ({"description": 3}, "description"),
        ({"description": {"en": 3}}, "description.en"),
        ({"args": None}, "args"),
        ({"args": {"type": "string"}}, "args.type"),
        ({"args": {"properties": []}}, "args.properties"),
        ({"args": {"properties": {"a": {"type": "text"}}}}, "args.properties.a.type"),
        ({"args": {"properties": {"a": {"minLength": -1}}}}, "args.properties.a.minLength"),
        ({"args": {"properties": {"a": {"minLength": float("nan")}}}}, "args.properties.a.minLength"),
        ({"args": {"properties": {"a": {"required": True}}}}, "args.properties.a.required"),
        ({"args": {"properties": {"a": {"pattern": "("}}}}, "args.properties.a.pattern"),
        ({"args": {"properties": {"a": {"description": {"it": 3}}}}}, "args.properties.a.description.it"),
        ({"args": {"properties": {"a": {"$ref": "#/$defs/b"}}}}, "args.properties.a.$ref"),
        ({"args": {"$ref": "#"}}, "args.$ref"),
        ({"args": {**ARGS, "allOf": [{"anyOf": [{"$ref": "#"}]}]}}, "args.allOf[0].anyOf[0].$ref"),
        ({"args": {**ARGS, "required": ["b"]}}, "args.required"),
        ({"args": {**ARGS, "requires_one_of": ["a"]}}, "args.requires_one_of[0]"),
        ({"args": {**ARGS, "requires_one_of": [[]]}}, "args.requires_one_of[0]"),
        ({"args": {**ARGS, "requires_one_of": [["b"]]}}, "args.requires_one_of[0]"),
        ({"args": {"properties": {"a": {"requires_one_of": None}}}}, "args.properties.a.requires_one_of"),
        ({"args": {"properties": {"a": {"requires_one_of": [1]}}}}, "args.properties.a.requires_one_of[0]"),
        ({"args": {"properties": {"f": {"type": "integer", "fills": "x"}}}}, "args.properties.f.fills"),
        ({"args": {"properties": {"a": {}, "f": {"fills": "a"}}}}, "args.properties.f.type"),
        ({"args": {"properties": {"a": {"type": "null"}, "f": {"type": "integer", "fills": "a"}}}}, "args.properties.f.fills"),  # noqa: E501  # one case a line
        ({"args": {"properties": {"a": {"runtime_resolved": "yes"}}}}, "args.properties.a.runtime_resolved"),
        ({"offer": 3}, "offer"),
        ({"offer": {"role": 3}}, "offer.role"),
        ({"offer": {"markers": "undo"}}, "offer.markers"),
        ({"offer": {"markers": ["undo", "!"]}}, "offer.markers[1]"),
        ({"offer": {"not_in": "undo"}}, "offer.not_in"),
        ({"offer": {"unless_canonical_at_least": 0}}, "offer.unless_canonical_at_least"),
        ({"offer": {"always": "yes"}}, "offer.always"),
        ({"offer": {"after": "read_files"}}, "offer.after"),
        ({"offer": {"after": ["read_files", "a tool"]}}, "offer.after[1]"),
        ({"offer": {"terminal": 1}}, "offer.terminal"),
        ({"run": []}, "run"),
        ({"run": {"effect": "both"}}, "run.effect"),
        ({"run": {"confirm": "yes"}}, "run.confirm"),
        ({"run": {"timeout_s": -1}}, "run.timeout_s"),
        ({"run": {"timeout_s": True}}, "run.timeout_s"),
        ({"run": {"env": "HOME"}}, "run.env"),
        ({"run": {"env": ["HOME", 3]}}, "run.env[1]"),
        ({"run": {"env": ["1A"]}}, "run.env[0]"),
        ({"run": {"env": ["A\n"]}}, "run.env[0]"),
        ({"run": {"memory_mb": 63}}, "run.memory_mb"),
        ({"run": {"memory_mb": 512.5}}, "run.memory_mb"),
        ({"run": {"memory_mb": True}}, "run.memory_mb"),
        ({"offer": {"not_in": ["undone", 3]}}, "offer.not_in[1]"),
        ({"args": {"properties": {"a": {"$ref": "https://example.org/s"}}}}, "args.properties.a.$ref"),
        ({"run": {"max_result_kb": 0}}, "run.max_result_kb"),
        ({"run": {"max_result_kb": True}}, "run.max_result_kb"),
    ],
)  # fmt: skip
def test_each_fault_names_its_key(change: Any, key: Any) -> None:
    content = {"name": "a", "description": "d", "args": ARGS, **change}
    content = {name: value for name, value in content.items() if value is not None}
    with pytest.raises(ManifestError) as caught:
        Tool.from_mapping(content, Path("x.toml"))
    assert caught.value.key == key
    assert str(caught.value).startswith(f"x.toml: {key}: ")


def test_a_manifest_of_another_runtime_loads(tmp_path: Any) -> None:
    file = write(
        tmp_path,
        """
        name = "wild"
        description = "d"
        affinity = { weight = 3 }
        placement = "edge"
        [args]
        type = "object"
        semantic_type = "query"
        requires = 2026-01-01
        [args.properties.when]
        type = "string"
        default = 2026-01-01
        [args.properties.name]
        [args.properties.items]
        enum = [{ runtime_resolved = true }]
        [offer]
        audience = "all"
        [run]
        cost = 3
        [[tests]]
        input = "x"
        """,
    )
    (tool,) = load_manifests(file)
    assert tool.args["properties"]["when"]["default"] == "2026-01-01"
    assert tool.model_args() == tool.args
    assert tool.affinity == ()
    assert tool.extra == {
        "placement": "edge",
        "tests": [{"input": "x"}],
        "affinity": {"weight": 3},
        "offer": {"audience": "all"},
        "run": {"cost": 3},
    }
    assert (tool.run.effect, tool.run.confirm) == ("write", False)


def test_what_is_declared_elsewhere_may_be_required() -> None:
    declared = {
        "$defs": {"d": {"properties": {"b": {}}}},
        "allOf": [{"$ref": "#/$defs/d"}],
        "required": ["b"],
    }
    branches = {**ARGS, "anyOf": [{"required": ["a"]}, {"required": ["n"]}]}
    recursive = {"properties": {"child": {"$ref": "#"}, "list": {"type": "array", "items": {"$ref": "#"}}}}
    anchored = {"$defs": {"d": {"$anchor": "there"}}, "properties": {"a": {"$ref": "#there"}}}
    for args in (declared, branches, recursive, anchored):
        assert Tool.from_mapping({"name": "a", "args": args}).args == {"type": "object", **args}


def test_runtime_resolved_arguments_are_removed_from_every_list() -> None:
    properties = {name: {"type": "string"} for name in "abc"} | {"r": {"runtime_resolved": True}}
    args = {"properties": properties, "required": ["a", "r"], "requires_one_of": [["b", "r"], ["r"]]}
    tool = Tool.from_mapping({"name": "a", "args": args})
    assert tool.runtime_resolved == {"r"}
    assert tool.model_args()["required"] == ["a"]
    assert tool.model_args()["requires_one_of"] == [["b"]]
    assert tool.model_args() is tool.model_args()


def test_step_references_say_what_they_fill() -> None:
    tools = {tool.name: tool for tool in load_manifests(BUNDLED)}
    assert dict(tools["read_files"].step_references) == {"from_step": "paths"}
    assert dict(tools["find_files"].step_references) == {}
    unnamed = Tool.from_mapping({"name": "a", "args": {"properties": {"from_step": {"type": "integer"}}}})
    assert dict(unnamed.step_references) == {"from_step": None}


@pytest.mark.slow
@pytest.mark.parametrize("depth", [10, 80, 20_000])
@pytest.mark.parametrize("keyword", ["items", "const", "x"])
def test_a_mapping_nested_deeply_is_read_or_refused(depth: int, keyword: str) -> None:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {keyword: schema}
    mapping = {"name": "a", "args": {"properties": {"p": schema}}}
    if depth == 10:
        assert Tool.from_mapping(mapping).args["properties"]["p"] == schema
    else:
        with pytest.raises(ManifestError, match="nested deeper"):
            Tool.from_mapping(mapping)


def test_equal_content_is_one_value() -> None:
    content = {"name": "a", "description": "d", "args": ARGS}
    one, other = Tool.from_mapping(content), Tool.from_mapping(copy.deepcopy(content))
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert dataclasses.replace(one) == one
    changes: list[dict[str, Any]] = [{"name": "b"}, {"description": "e"}, {"args": {}}, {"x": 1}]
    for change in (*changes, {"run": {"confirm": True}}):
        assert Tool.from_mapping({**content, **change}) != one
    swapped = {"type": "object", "properties": dict(reversed(ARGS["properties"].items()))}
    assert Tool.from_mapping({**content, "args": swapped}) != one  # the order is what the model writes


@pytest.mark.parametrize(
    ("language", "text"), [("en", "e"), ("it", "i"), ("it-IT", "i"), ("it_CH", "i"), ("de", "e")]
)
def test_descriptions_fall_back_to_english(language: Any, text: Any) -> None:
    tool = Tool.from_mapping({"name": "a", "description": {"it": "i", "en": "e"}, "args": {}})
    assert tool.description(language) == text


def test_the_built_in_names_are_reserved() -> None:
    assert {tool.name for tool in BUILT_IN_TOOLS} == RESERVED_NAMES
    assert FINAL_ANSWER.args["required"] == ["message"]
    assert list(ASK_USER.args["properties"]) == ["question", "options"]


def test_the_run_section_of_a_manifest_is_kept() -> None:
    run = {"env": ["A", "_b2"], "memory_mb": 0, "max_result_kb": 1, "other": 1}
    content = {"name": "a", "description": "d", "args": ARGS}
    tool = Tool.from_mapping({**content, "run": run})
    assert (tool.run.env, tool.run.memory_mb, tool.run.max_result_kb) == (("A", "_b2"), 0, 1)
    assert tool.extra == {"run": {"other": 1}}
    assert tool != Tool.from_mapping(content)
