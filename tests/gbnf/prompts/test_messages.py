"""The texts that the model reads: always JSON, short enough, and nothing of the runtime's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.prompts.descriptions import argument_list, type_text
from gbnf.prompts.messages import RESULT_LIMIT, call_text, error_text, result_text, system_prompt
from gbnf.tools import Tool
from support.json_values import SIMPLE, nested
from support.pools import BUNDLED

values = nested(
    SIMPLE | st.floats() | st.text(st.characters(), max_size=30),
    st.text(max_size=8),
    items=6,
    most=5,
    size=30,
)
results = st.dictionaries(st.text(max_size=8), values, max_size=5)
_KEYWORDS = ["type", "properties", "items", "enum", "const", "anyOf", "allOf", "prefixItems", "$ref"]
schemas = nested(
    st.none() | st.booleans() | st.text(max_size=4), st.sampled_from(_KEYWORDS) | st.text(max_size=3), size=20
)


@given(st.integers(1, 99), results, st.integers(50, 400))
def test_results_are_json_and_within_the_limit(step: Any, result: Any, limit: Any) -> None:
    text = result_text(step, result, limit=limit)
    text.encode()
    read = json.loads(text, parse_constant=pytest.fail)
    assert read["step"] == step
    assert "\n" not in text
    assert len(json.dumps(read["result"], ensure_ascii=False)) <= limit
    if "left_out" not in read:
        assert list(read["result"]) == [key.encode("utf-8", "replace").decode() for key in result]
    else:
        assert read["left_out"]


@given(
    st.lists(
        st.text('ab \n"é', min_size=1) | st.text("xy", min_size=300, max_size=400) | st.just("z" * 1500),
        max_size=5,
    )
)
def test_a_shortened_text_keeps_its_ends_and_counts_the_removed_characters(texts: list[str]) -> None:
    whole = result_text(1, {"entries": texts})
    text = result_text(1, {"entries": texts}, limit=300, keep_ends=True)
    assert len(text) <= len(whole)
    for original, shown in zip(texts, json.loads(text)["result"].get("entries", []), strict=False):
        mark = re.search(r"\[shortened: ([\d,]+) of ([\d,]+) characters removed\]", shown)
        if mark is None:
            assert shown == original
            continue
        before, after = shown[: mark.start()], shown[mark.end() :]
        assert original.startswith(before)
        assert original.endswith(after)
        assert int(mark[1].replace(",", "")) == len(original) - len(before) - len(after)
        assert int(mark[2].replace(",", "")) == len(original)


@given(st.text(st.characters()), st.integers(1, 99))
def test_errors_are_json(error: Any, step: Any) -> None:
    text = error_text(step, error)
    text.encode()
    assert set(json.loads(text)) == {"step", "error"}


@given(schemas)
def test_any_schema_has_a_type(schema: Any) -> None:
    args = {"type": "object", "properties": {"a": schema}}
    if all(isinstance(held, dict) for held in find(schema, "properties")):
        assert isinstance(type_text(schema, args), str)


def find(schema: Any, key: Any) -> list[Any]:
    """What stands below `key` anywhere in `schema`."""
    if isinstance(schema, list):
        return [held for member in schema for held in find(member, key)]
    if isinstance(schema, dict):
        below = [held for member in schema.values() for held in find(member, key)]
        return [*below, *([schema[key]] if key in schema else [])]
    return []


def test_the_minimal_prompt_is_one_line_a_tool() -> None:
    tools = [tool for tool in BUNDLED if tool.name in ("find_files", "get_now", "undo_last_turn")]
    assert system_prompt(tools, style="minimal") == (
        "Tools:\nfind_files(base_path, pattern?, patterns?)\nget_now(timezone?)\nundo_last_turn()"
    )


@pytest.mark.parametrize(("language", "name"), [("en", "tool"), ("it", "strumento")])
def test_without_a_grammar_the_example_has_the_name_of_an_only_tool(language: str, name: str) -> None:
    only, *others = BUNDLED
    example = f'{{"name": "{name}"'
    asked: dict[str, Any] = {"language": language, "endings": [only.name]}
    assert example in system_prompt([only], **asked)
    assert example in system_prompt([only, *others], **asked, constrained=False)
    in_text = system_prompt([only], **asked, constrained=False)
    assert example not in in_text
    assert f'{{"name": "{only.name}", "arguments": {{…}}}}' in in_text
    for pool in ([only], [only, *others]):
        has_references = any(each.step_references for each in pool)
        assert ("from_step" in system_prompt(pool, **asked, constrained=False)) == has_references


def test_the_full_prompt_describes_tools_and_arguments() -> None:
    prompt = system_prompt(BUNDLED)
    assert '{"name": "final_answer", "arguments": {"message": "…"}}' in prompt
    assert "from_step" in prompt.split("Tools:")[0]
    assert (
        "find_files(base_path: string, pattern?: string, patterns?: string[])\n"
        "  Search files by glob pattern, recursively.\n"
        '  base_path: Start directory, relative to the workspace; "." is the workspace\n'
    ) in prompt
    assert "  needs at least one of pattern, patterns\n" in prompt
    assert "\n  dialog[].schema.kind: Kind of field\n" in prompt
    assert "files: {path: string, content: string}[]" in prompt
    assert "Cerca file per modello glob" in system_prompt(BUNDLED, language="it-IT")
    assert system_prompt(BUNDLED, language="de") == prompt


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"enum": ["a", "b", 1, None]}, '"a"|"b"|1|null'),
        ({"const": {"a": 1}}, '{"a": 1}'),
        ({"type": ["string", "null"]}, "string|null"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a"|"b")[]'),
        ({"type": "array", "items": {"enum": ["a|b"]}}, '"a|b"[]'),
        ({"type": "array"}, "any[]"),
        ({"prefixItems": [{"type": "string"}, True], "type": "array"}, "[string, any]"),
        (
            {"properties": {"a b": {}, "c": {"type": "integer"}}, "required": ["c"]},
            '{"a b"?: any, c: integer}',
        ),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "{[key]: number}"),
        ({"anyOf": [{"type": "string"}, {"type": "string"}, {"type": "null"}]}, "string|null"),
        ({"$ref": "#/$defs/d"}, "boolean"),
        ({"$ref": "#/$defs/absent"}, "any"),
        (False, "never"),
    ],
)
def test_types(schema: Any, text: Any) -> None:
    assert type_text(schema, {"$defs": {"d": {"type": "boolean"}}}) == text


def test_huge_and_recursive_types_stay_short() -> None:
    root = {"type": "object", "properties": {"child": {"$ref": "#"}, "many": {"enum": list(range(10_000))}}}
    assert len(argument_list(root, types=True)) < 3000
    assert argument_list(root, types=True).count("…") > 1


def test_descriptions_take_one_line() -> None:
    tool = Tool.from_mapping({"name": "a", "description": "one\n  two\nthree", "args": {}})
    assert "\n  one two three" in system_prompt([tool])


def test_calls_and_short_results_are_written_plainly() -> None:
    call = {"name": "create_dirs", "arguments": {"paths": ["è"]}}
    assert call_text(call) == '{"name": "create_dirs", "arguments": {"paths": ["è"]}}'
    assert result_text(1, {"entries": ["trips"]}) == '{"step": 1, "result": {"entries": ["trips"]}}'
    assert error_text(2, "no") == '{"step": 2, "error": "no"}'


def test_integers_that_python_does_not_write_in_digits_are_text() -> None:
    read = json.loads(result_text(1, {"n": 10**5000, "m": 10**4000}))
    assert int(read["result"]["n"].rstrip("…"), 16) > 0
    assert read["left_out"]


def test_of_many_paths_the_first_stay_whole() -> None:
    paths = [f"folder/file_{index}.txt" for index in range(1000)]
    read = json.loads(result_text(1, {"entries": paths, "count": 1000}))
    kept = read["result"]["entries"]
    assert kept == paths[: len(kept)]
    assert len(kept) > 50
    assert read["result"]["count"] == 1000
    assert read["left_out"] == f"{1000 - len(kept)} entries"


def test_of_a_long_text_the_beginning_stays() -> None:
    read = json.loads(result_text(1, {"entries": ["x" * 10_000], "paths": ["a.txt"]}))
    (entry,) = read["result"]["entries"]
    assert RESULT_LIMIT - 100 < len(entry) <= RESULT_LIMIT
    assert read["result"]["paths"] == ["a.txt"]
    assert "characters" in read["left_out"]
