"""Findings: their text, and which are kept."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf.compiler.numbers import MAX_DIVISOR
from gbnf.compiler.repetitions import MAX_BOUND
from gbnf.compiler.report import Report
from gbnf.compiler.schema import compile_schema
from gbnf.errors import SchemaError
from gbnf.findings import Finding


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (
            Finding("find", "/x", "pattern", "unenforced", "too long"),
            "find: /x: pattern: too long (the validator checks it)",
        ),
        (
            Finding("", "", "format", "unenforced", "unknown", validator=False),
            "/: format: unknown (nothing checks it)",
        ),
        (Finding("find", "", "type", "free_form", "any value"), "find: /: type: any value"),
    ],
)
def test_the_text_of_a_finding(finding: Finding, text: str) -> None:
    assert str(finding) == text


def test_the_first_finding_of_a_pointer_and_keyword_is_kept() -> None:
    report = Report("find")
    report.add("unenforced", "/x", "pattern", "first")
    report.add("free_form", "/x", "pattern", "second")
    report.add("free_form", "/y", "pattern", "third")
    assert [(each.pointer, each.kind, each.reason) for each in report] == [
        ("/x", "unenforced", "first"),
        ("/y", "free_form", "third"),
    ]


NULLS = {"type": "array", "items": {"type": "null"}}
MANY = {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 100, "maxItems": 300}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "minLength": MAX_BOUND}, []),
        ({"type": "string", "minLength": MAX_BOUND + 1}, [("/minLength", "unenforced")]),
        ({"type": "string", "maxLength": MAX_BOUND + 1}, [("/maxLength", "unenforced")]),
        ({**NULLS, "maxItems": MAX_BOUND + 1}, []),
        ({**NULLS, "maxItems": MAX_BOUND + 2}, [("/maxItems", "unenforced")]),
        ({"type": "string", "pattern": "^a*$", "maxLength": 5000}, [("/maxLength", "unenforced")]),
        ({"type": "integer", "multipleOf": MAX_DIVISOR}, []),
        ({"type": "integer", "multipleOf": MAX_DIVISOR + 1}, [("/multipleOf", "unenforced")]),
        (
            {**MANY, "contains": {"const": 1}, "minContains": 50, "maxContains": 60},
            [("/contains", "unenforced"), ("/maxContains", "unenforced"), ("/minContains", "unenforced")],
        ),
        (
            {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "array", "items": False, "uniqueItems": True}],
            },
            [("/items", "free_form")],
        ),
        (
            {
                "type": "array",
                "prefixItems": [{"type": "null"}, {"type": "object", "minProperties": 10**9}],
                "items": False,
            },
            [("/prefixItems/1/minProperties", "unenforced")],
        ),
    ],
)
def test_what_is_not_enforced_is_reported_at_its_keyword(
    schema: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = compile_schema(schema).report
    assert [(finding.pointer, finding.kind) for finding in found] == expected


def test_pointers_are_escaped() -> None:
    schema = {"properties": {"a/b": {"properties": {"c~/d": True}}}}
    pointers = {finding.pointer for finding in compile_schema({"type": "object", **schema}).report}
    assert "/properties/a~1b/properties/c~0~1d" in pointers


@pytest.mark.parametrize(
    ("required", "reason"),
    [
        (["b"], "it requires itself without end"),
        (["a"], "no value satisfies all keywords at '/properties/a'"),
    ],
)
def test_a_schema_without_values_is_reported_with_what_it_requires(required: list[str], reason: str) -> None:
    properties = {"a": {"type": "string", "minLength": 5, "maxLength": 2}, "b": {"$ref": "#"}}
    with pytest.raises(SchemaError, match=reason):
        compile_schema({"type": "object", "properties": properties, "required": required})
