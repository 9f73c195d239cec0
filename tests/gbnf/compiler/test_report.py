"""Findings: their text, and which are kept."""

from __future__ import annotations

import pytest

from gbnf.compiler.report import Report
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
    report.unenforced("/x", "pattern", "first")
    report.free_form("/x", "pattern", "second")
    report.free_form("/y", "pattern", "third")
    assert [(each.pointer, each.kind, each.reason) for each in report] == [
        ("/x", "unenforced", "first"),
        ("/y", "free_form", "third"),
    ]
