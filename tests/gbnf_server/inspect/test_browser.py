"""The page in a real browser: Chromium, driven by playwright; skipped where one of them is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import (
    Watched,
    browser,
    check_states,
    new_context,
    served,
    sync_api,
    wait_until_idle,
    watched,
)
from support.effort import pairwise

__all__ = ["browser", "watched"]

pytestmark = pytest.mark.slow

KINDS = ["tools_url", "schema_url", "file_url"]
LAYOUTS = ([360, 3840], ["light", "dark"], [True, False])
"""Widths, colour schemes, and whether axe-core judges."""
NATIVE_CALL = '{"name": "create_dirs", "arguments": {"paths": ["a"]}}'
SCHEMA = {
    "title": "</title><script>document.title = 'wrong'</script>",
    "type": "object",
    "required": ["count"],
    "properties": {
        "count": {"type": "integer", "minimum": 5},
        "child": {"$ref": "#"},
        "<img src=x onerror=\"document.title = 'wrong'\">": {"enum": [f"value {n}" for n in range(40)]},
        "free": {"type": "object"},
        "unique": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
}
REFUSED = (
    '{"name": "create_events", "arguments": {"title": "a", "starts": ["2026-01-01"], "duration_minutes": 3}}'
)


@pytest.fixture(scope="module")
def tools_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("tools"))


@pytest.fixture(scope="module")
def native_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("native"), "--call-format", "native")


@pytest.fixture(scope="module")
def schema_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("schema")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    yield from served(folder, "--schema", "schema.json")


@pytest.fixture(scope="module")
def file_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("file")
    subprocess.run(
        [sys.executable, "-m", "gbnf_server", "inspect", "--html", "page.html"],
        check=True, cwd=folder, env={**os.environ, "GBNF_CONFIG": ""}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return (folder / "page.html").as_uri()


def lit(page: Any, selector: str) -> list[str]:
    return page.eval_on_selector_all(  # type: ignore[no-any-return]
        f"{selector}.lit", "all => all.map(one => one.dataset.pointer ?? one.dataset.rule)"
    )


@pytest.mark.parametrize(("kind", "width", "scheme", "axe"), pairwise(KINDS, *LAYOUTS))
def test_it_fits_every_width_and_is_accessible(
    browser: Any, request: pytest.FixtureRequest, kind: str, width: int, scheme: str, axe: bool
) -> None:
    url = request.getfixturevalue(kind)
    check_states(browser, url, states, width=width, scheme=scheme, axe=axe)


def states(page: Any) -> Iterator[None]:
    """Show each tab."""
    page.hover(".schema a.key >> nth=3")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    for tab in page.query_selector_all("[role=tab]"):
        tab.click()
        if tab.get_attribute("id") == "tab-text":
            page.fill("#text", REFUSED)
            page.wait_for_selector(".verdict")
        wait_until_idle(page)
        assert len(page.query_selector_all("[role=tabpanel]:not([hidden])")) == 1
        yield


@pytest.mark.parametrize("kind", ["schema_url", "file_url"])
def test_keywords_light_their_rules_and_rules_their_keywords(
    watched: Watched, request: pytest.FixtureRequest, kind: str
) -> None:
    url = request.getfixturevalue(kind)
    page = watched.page
    page.goto(url)
    keyword = "/properties/count/minimum"
    if kind == "file_url":
        page.click("#tools a:has-text('create_events')")
        keyword = "/properties/duration_minutes/minimum"
    page.hover(f"li[data-pointer='{keyword}'] a.key")
    rules = lit(page, ".gbnf > li")
    assert rules
    assert set(rules) == set(lit(page, "figure"))
    assert page.eval_on_selector_all(".gbnf .lit", "all => all.length") < 20
    page.hover(f"#g-{rules[-1]} .rule")
    assert keyword in lit(page, ".schema > li")
    page.hover("h1")
    assert lit(page, "li") == []
    watched.check(url)


def test_the_keyboard_is_enough(watched: Watched, schema_url: str) -> None:
    page = watched.page
    page.goto(schema_url)
    page.focus(".schema a.key[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    pointer = page.evaluate("document.activeElement.closest('li').dataset.pointer")
    assert pointer == "/properties"
    assert "root" in lit(page, ".gbnf > li")
    assert "rules root" in page.text_content("#status")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.rule") == "root"
    page.focus("#tab-grammar")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#text")
    assert page.get_attribute("#tab-text", "aria-selected") == "true"
    watched.check(schema_url)


def test_rules_of_a_large_grammar_are_drawn_on_demand(watched: Watched, tmp_path: Path) -> None:
    properties = {f"p{n}": {"type": "integer", "minimum": n} for n in range(500)}
    (tmp_path / "large.json").write_text(json.dumps({"type": "object", "properties": properties}))
    page = watched.page
    for url in served(tmp_path, "--schema", "large.json"):
        page.goto(url)
        drawn = set(page.eval_on_selector_all("figure", "all => all.map(one => one.dataset.rule)"))
        listed = page.eval_on_selector_all(".gbnf > li", "all => all.map(one => one.dataset.rule)")
        [name, *_] = [rule for rule in listed if rule not in drawn]
        page.click(f"#g-{name} > .rule")
        page.wait_for_selector(f"#d-{name} svg")
        assert page.evaluate("document.activeElement.id") == f"d-{name}"
        page.hover("h1")
        page.hover(f"#g-{name} > .rule")
        assert name in lit(page, "figure")
        watched.check(url)


def test_links_in_diagrams_lead_to_rules(watched: Watched, schema_url: str) -> None:
    page = watched.page
    page.goto(schema_url)
    link = page.locator("#d-root svg a").first
    name = link.get_attribute("href").removeprefix("#d-")
    link.click()
    assert page.evaluate("document.activeElement.id") == f"d-{name}"
    assert page.is_visible(f"#d-{name}")
    assert page.is_visible("#d-root .recursive")
    watched.check(schema_url)


def test_a_tool_opens_by_its_link_and_its_address(watched: Watched, tools_url: str) -> None:
    page = watched.page
    page.goto(tools_url)
    page.fill("#filter", "free slots")
    assert page.locator("#tools li:visible").count() == 1
    page.click("#tools li:visible a")
    page.wait_for_selector("h2:has-text('find_events_empty')")
    assert page.evaluate("document.activeElement.id") == "grammar-title"
    page.reload()
    page.wait_for_selector("h2:has-text('find_events_empty')")
    watched.check(tools_url)


def test_a_text_is_judged_as_it_is_typed(watched: Watched, tools_url: str) -> None:
    page = watched.page
    page.goto(tools_url)
    page.click("#tab-text")
    page.fill("#text", REFUSED)
    page.wait_for_selector(".verdict.bad")
    said = page.text_content(".verdict.bad")
    assert "a number at /arguments/duration_minutes (integer, ≥ 5, ≤ 1440)" in said
    assert page.text_content("mark") == "}}"
    assert "must be at least 5" in page.text_content(".lines.bad")
    page.fill("#text", REFUSED.replace(" 3}", " 30}"))
    page.wait_for_selector(".verdict.ok:has-text('Accepted')")
    page.fill("#text", '{"name": "<img src=x onerror=alert(1)>')
    page.wait_for_selector(".verdict.bad")
    watched.check(tools_url)


def test_a_pool_is_filtered_and_sorted(watched: Watched, tools_url: str) -> None:
    page = watched.page
    page.goto(tools_url)
    page.click("#tab-pool")
    page.wait_for_selector("#pool-result table")
    page.fill("#request", "find notes about the trip")
    page.fill("#limit", "3")  # the last change: what shows it, shows both, and no later table replaces it
    page.wait_for_selector("b:has-text('3 of 15 tools')")
    assert page.locator("tr.dropped").count() == 12
    page.click("th button:has-text('Grammar bytes')")
    sizes = [int(text) for text in page.locator("tbody tr td:nth-child(5)").all_text_contents()]
    assert sizes == sorted(sizes, reverse=True)
    page.click("th button:has-text('Grammar bytes')")
    assert page.get_attribute("th:has-text('Grammar bytes')", "aria-sort") == "ascending"
    page.click("#pool-result a:has-text('find_files') >> nth=0")
    page.wait_for_selector("#panel-grammar h2:has-text('find_files')")
    watched.check(tools_url)


def test_a_server_that_has_stopped_is_reported(browser: Any, tmp_path: Path) -> None:
    running = served(tmp_path)
    context = new_context(browser)
    page = context.new_page()
    page.goto(next(running))
    running.close()  # type: ignore[attr-defined]  # it is a generator
    page.click("#tab-text")
    page.fill("#text", "{")
    page.wait_for_selector(".problem:has-text('was stopped')")
    context.close()


# a text: a call is built by its continuations, in each call format


def insert(page: Any, words: str) -> None:
    before = page.input_value("#text")
    page.locator(f"#text-result button[title='{words}']").click()
    sync_api.expect(page.locator("#text")).not_to_have_value(before)
    page.wait_for_selector("#text-result:not([aria-busy])")


def test_a_call_is_built_by_clicking(watched: Watched, tools_url: str) -> None:
    page = watched.page
    page.goto(tools_url)
    page.click("#tab-text")
    for words in ("an object", '"create_events"', 'the property "title"'):
        insert(page, words)
    page.type("#text", "Lunch")
    for words in ("the closing quote", 'the property "starts"'):
        page.wait_for_selector(f"#text-result button[title='{words}']")
        insert(page, words)
    page.press("#text", "Control+End")  # where a focused text has its caret depends on the browser's version
    page.type("#text", "2026-01-01")
    page.wait_for_selector("#text-result button[title='the closing quote']")
    insert(page, "the closing quote")
    insert(page, "the end of the array")
    page.wait_for_selector("#text-result button[title='the end of the object']")
    assert page.evaluate("document.activeElement.matches('#text-result .options button')")
    insert(page, "the end of the object")
    page.wait_for_selector(".verdict.ok:has-text('Accepted')")
    call = {"name": "create_events", "arguments": {"title": "Lunch", "starts": ["2026-01-01"]}}
    assert json.loads(page.input_value("#text")) == call
    assert page.evaluate("document.activeElement.id") == "text"
    watched.check(tools_url)


def test_a_continuation_is_inserted_at_the_end_of_the_accepted_part(watched: Watched, tools_url: str) -> None:
    page = watched.page
    page.goto(tools_url)
    page.click("#tab-text")
    page.fill("#text", '{"name": "get_now", \U0001f600 nonsense')
    page.wait_for_selector(".verdict.bad")
    page.focus("#text-result button[title='the property \"arguments\"']")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#text")).to_have_value(re.compile("arguments"))
    assert page.input_value("#text") == '{"name": "get_now", "arguments": {\U0001f600 nonsense'
    selected = page.evaluate(
        "(t => t.value.slice(t.selectionStart, t.selectionEnd))(document.querySelector('#text'))"
    )
    assert selected == "\U0001f600 nonsense"
    assert "inserted" in page.text_content("#status")
    watched.check(tools_url)


def test_a_text_in_the_models_call_format_is_judged(watched: Watched, native_url: str) -> None:
    page = watched.page
    page.goto(native_url)
    assert page.is_visible(".gbnf")
    page.click("#tab-text")
    page.fill("#text", NATIVE_CALL)
    page.wait_for_selector(".verdict.ok:has-text('Accepted')")
    assert "a call of create_dirs" in page.text_content("#text-result")
    page.fill("#text", NATIVE_CALL.replace('"a"', "5"))
    page.wait_for_selector(".verdict.bad")
    assert "at /arguments/paths/0" in page.text_content(".verdict.bad")
    watched.check(native_url)


def test_continuations_fit_a_small_width_and_are_accessible(browser: Any, native_url: str) -> None:
    def begun(page: Any) -> Iterator[None]:
        page.click("#tab-text")
        page.fill("#text", NATIVE_CALL[:30])
        page.wait_for_selector("#text-result button:has-text('ents')")
        yield

    for scheme in ("light", "dark"):
        check_states(browser, native_url, begun, width=360, scheme=scheme, axe=True)
