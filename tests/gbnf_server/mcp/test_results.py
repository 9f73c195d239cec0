"""Results of MCP tools as JSON objects."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp_types import CallToolResult, ImageContent, TextContent

from gbnf_server.executors import AbsentPerson, Context, Workspace
from gbnf_server.mcp.results import output_fault, result_object
from gbnf_server.system.errors import ExecutorError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return Context(Workspace(tmp_path_factory.mktemp("workspace")), person=AbsentPerson(), settings={})


def object_of(there: Context, *blocks: Any, structured: Any = None, **more: Any) -> dict[str, Any]:
    result = CallToolResult(content=list(blocks), structured_content=structured, **more)
    return result_object("t", result, None, there)


@given(value=JSON)
def test_structured_content_is_kept_and_not_repeated(there: Context, value: Any) -> None:
    text = TextContent(text=json.dumps(value))
    expected = value if isinstance(value, dict) else {"result": value}
    if value is not None:
        assert object_of(there, text, structured=value) == expected
        assert object_of(there, structured=value) == expected


@pytest.mark.parametrize(
    ("texts", "structured", "expected"),
    [
        ([], None, {}),
        (["a"], None, {"text": "a"}),
        (["a", "b"], None, {"text": "a\nb"}),
        (['{"a": 1}'], None, {"text": '{"a": 1}'}),
        (["a"], {"result": "a"}, {"result": "a"}),
        (["a"], {"n": 1}, {"n": 1, "text": "a"}),
        (["a"], {"text": "own"}, {"text": "own"}),
        (["[" * 10_000], {"n": 1}, {"n": 1, "text": "[" * 10_000}),
    ],
)
def test_texts(there: Context, texts: list[str], structured: Any, expected: dict[str, Any]) -> None:
    assert object_of(there, *(TextContent(text=text) for text in texts), structured=structured) == expected


def test_an_error_without_text_has_a_message(there: Context) -> None:
    with pytest.raises(ExecutorError, match="'t' failed: it reported an error without a message"):
        object_of(there, is_error=True)


def test_a_file_is_saved_once_and_no_more_than_twenty(there: Context) -> None:
    images = [
        ImageContent(data=base64.b64encode(bytes([number])).decode(), mime_type="image/png; x=../../../e")
        for number in range(25)
    ]
    result = object_of(there, *images)
    assert len(result["entries"]) == 20
    assert [Path(there.workspace.root, path).read_bytes() for path in result["entries"]] == [
        bytes([number]) for number in range(20)
    ]
    assert all(Path(path).parent == Path("mcp-files") for path in result["entries"])
    assert [file["error"] for file in result["files"][20:]] == ["only 20 files of a result are saved"] * 5


@given(value=JSON)
def test_an_output_fault_is_what_jsonschema_finds(value: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert (output_fault(value, schema) is None) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "strnig"}, "the schema itself is invalid"),
        ({"$ref": "https://example.org/schema"}, "the schema cannot be applied"),
        ({"$ref": "#/$defs/none"}, "the schema cannot be applied"),
        ({"allOf": [{"$ref": "#"}]}, "the schema cannot be applied"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "required": ["a"]}, r"\$: 'a' is a required"),
    ],
)
def test_a_schema_that_is_no_help_is_named(schema: dict[str, Any], fault: str) -> None:
    found = output_fault({}, schema)
    assert found is not None
    assert fault.replace("\\", "") in found


def test_draft_4_means_what_it_meant() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}
    assert output_fault(1, schema) is not None
    assert output_fault(2, schema) is None
    assert output_fault(1, {**schema, "exclusiveMinimum": False}) is None
