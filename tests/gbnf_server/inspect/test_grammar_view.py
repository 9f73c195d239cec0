"""The view of a grammar: the schema's lines, the words of the GBNF, the diagrams, the recursive rules."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings

from gbnf import SchemaError
from gbnf.findings import Finding
from gbnf.grammar.ir import Alt, Ref, Repeat, Seq, alt, literal, seq
from gbnf.tools import Tool
from gbnf_server.inspect import diagrams
from gbnf_server.inspect.diagrams import SHOWN_ALTERNATIVES, diagram
from gbnf_server.inspect.grammar_view import view_schema, view_tool
from gbnf_server.inspect.pages.rendering import tokens
from gbnf_server.inspect.rendering import render_grammar
from gbnf_server.inspect.schema_lines import schema_lines
from support.effort import scaled
from support.pools import BUNDLED
from support.schemas import SCHEMAS

HOSTILE = {
    "title": "</title><script>alert(1)</script>",
    "description": '<img src=x onerror="alert(1)">',
    "properties": {"</script><em>": {"enum": ["<i>", "'\"&", "</svg><script>"]}, "javascript:alert(1)": True},
}


class Elements(HTMLParser):
    """The names of the elements of a page, and the attributes that could run something."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.bad = [each for each in self.attributes if re.match("on|style$|src$", each[0])]
        self.ids = [value or "" for name, value in self.attributes if name == "id"]
        self.links = {value or "" for name, value in self.attributes if name == "href"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


@given(SCHEMAS)
def test_the_lines_of_a_schema_are_its_json(schema: Any) -> None:
    lines = schema_lines(schema)
    assert json.loads("\n".join(map(str, lines))) == schema
    assert list(map(str, lines)) == [line.rstrip() for line in map(str, lines)]


@pytest.mark.parametrize(
    ("pointer", "keyword", "line"),
    [
        ("/properties/a/pattern", "pattern", '"pattern"'),
        ("/properties/a", "pattern", '"pattern"'),
        ("/properties/a", "type", '"a"'),
        ("/properties/gone/items", "items", '"properties"'),
        ("", "type", ""),
    ],
)
def test_where_a_finding_is_shown(pointer: str, keyword: str, line: str) -> None:
    schema = {"properties": {"a": {"pattern": "x"}}}
    finding = Finding("", pointer, keyword, "unenforced", "it is too large")
    (found,) = [one for one in schema_lines(schema, (), [finding]) if one.findings]
    assert (found.key, found.state) == (line, "reported")


def test_a_schema_that_only_a_reference_leads_to_has_its_findings() -> None:
    view = view_schema("any", {"other": {"free": {"type": "object"}}, "items": {"$ref": "#/other/free"}})
    assert ("/other/free", "free") in [(line.pointer, line.state) for line in view.lines if line.findings]


def test_a_schema_may_be_nested_deeply() -> None:
    schema: Any = {"type": "string"}
    for _ in range(300):
        schema = {"items": schema}
    lines = schema_lines(schema)
    assert json.loads("\n".join(map(str, lines))) == schema
    assert len(lines) < 300


def test_keywords_are_told_from_names_and_annotations() -> None:
    schema = {"title": "t", "properties": {"minimum": {"minimum": 1}}, "enum": [{"type": 1}]}
    kinds = {(line.key, line.pointer): line.kind for line in schema_lines(schema) if line.key}
    assert kinds == {
        ('"title"', "/title"): "annotation",
        ('"properties"', "/properties"): "keyword",
        ('"minimum"', "/properties/minimum"): "name",
        ('"minimum"', "/properties/minimum/minimum"): "keyword",
        ('"enum"', "/enum"): "keyword",
    }


@pytest.mark.slow
@pytest.mark.parametrize("tool", BUNDLED, ids=lambda tool: tool.name)
def test_words_are_the_text_and_links_lead_somewhere(tool: Tool) -> None:
    view = view_tool(tool)
    for rule in view.rules:
        words = list(tokens(rule.text))
        assert "".join(word.text for word in words) == rule.text
        assert {word.text for word in words if word.kind == "reference"} == set(rule.references)
    page = Elements(render_grammar(view))
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert page.bad == []


@pytest.mark.slow
@settings(max_examples=scaled(40))
@given(SCHEMAS)
def test_each_finding_is_at_one_line_and_a_rule_is_recursive_if_it_reaches_itself(schema: Any) -> None:
    try:
        view = view_schema("any", schema)
    except SchemaError:
        return
    assert sorted(finding for line in view.lines for finding in line.findings) == list(view.findings)
    below = {rule.name: set(rule.references) for rule in view.rules}
    for rule in view.rules:
        reached, pending = set[str](), [*below[rule.name]]
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += below.get(name, ())
        assert rule.is_recursive == (rule.name in reached)


def overlapping(svg: str) -> bool:
    """Whether a box of a drawing is over another."""
    boxes = []
    for found in re.finditer(r"<rect ([^>]*)>", svg):
        at = {name: float(value) for name, value in re.findall(r'(\w+)="([-\d.]+)"', found[1])}
        boxes.append((at["x"], at["y"], at["x"] + at["width"], at["y"] + at["height"]))
    return any(
        one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
        for number, one in enumerate(boxes)
        for other in boxes[number + 1 :]
    )


@pytest.mark.parametrize("width", [200.0, diagrams.ROW_WIDTH])
@pytest.mark.parametrize("tool", BUNDLED[::2], ids=lambda tool: tool.name)
def test_no_box_of_a_diagram_is_over_another(
    tool: Tool, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagrams, "ROW_WIDTH", width)
    for rule in view_tool(tool).rules:
        assert not overlapping(diagram(rule.name, rule.production, lambda name: f"#{name}").svg)


def test_large_alternations_are_folded_and_recursion_is_marked() -> None:
    texts = [f"value {number}" for number in range(100)]
    drawn = diagram(
        "rule", alt(*map(literal, texts), seq(literal("["), Ref("rule"))), lambda name: f"#{name}"
    )
    assert len(drawn.folded[0]) == 101 - SHOWN_ALTERNATIVES
    assert f"{101 - SHOWN_ALTERNATIVES} more" in drawn.svg
    assert drawn.folded[0][-1] == '"[" rule'
    assert 'href="#rule"' in diagram("rule", seq(literal("["), Ref("rule")), lambda name: f"#{name}").svg


def test_long_texts_are_shortened_with_the_whole_as_title() -> None:
    drawn = diagram("rule", literal("x" * 500), lambda _: None)
    assert f'<title>"{"x" * 500}"</title>' in drawn.svg.replace("&quot;", '"')
    assert float(re.findall(r'svg[^>]* width="([\d.]+)"', drawn.svg)[0]) < 400


def test_a_huge_rule_has_a_small_diagram() -> None:
    deep: Any = literal("x")
    for _ in range(60):
        deep = Seq((literal("a"), Alt((deep, Repeat(literal("b"), 2, 5), literal("c")))))
    assert len(diagram("rule", deep, lambda _: None).svg) < 200_000


def test_nothing_from_a_schema_is_markup() -> None:
    page = Elements(render_grammar(view_schema("<script>", HOSTILE)))
    assert page.names.isdisjoint({"script", "img", "em", "i", "iframe"})
    assert page.bad == []
    assert all(link.startswith("#") for link in page.links)


@pytest.mark.slow
def test_a_huge_grammar_has_a_page_of_bounded_size() -> None:
    words = [f"{number:05} {'x' * (number % 90)}" for number in range(8_000)]
    schema = {"properties": {f"p{number}": {"enum": words[number::16]} for number in range(16)}}
    view = view_schema("any", schema)
    page = render_grammar(view)
    assert view.sizes["bytes"] > 400_000
    assert len(page) < 2_500_000
    assert all(f'id="g-{rule.name}"' in page for rule in view.rules)


def test_a_tool_that_cannot_be_compiled_says_why() -> None:
    tool = Tool(name="no", args={"type": "object", "required": ["a"], "properties": {"a": {"allOf": 3}}})
    view = view_tool(tool)
    assert view.grammar is None
    assert "no grammar" in render_grammar(view)
    assert any(line.findings for line in view.lines)
