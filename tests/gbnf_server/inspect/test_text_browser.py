"""The tab of a text in a real browser: a call is built by its continuations, in each call format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.browser import AXE, Watched, browser, check_accessibility, served, watched

__all__ = ["browser", "watched"]

pytestmark = pytest.mark.slow

NATIVE_CALL = '{"name": "create_dirs", "arguments": {"paths": ["a"]}}'


@pytest.fixture(scope="module")
def tools_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("tools"))


@pytest.fixture(scope="module")
def native_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("native"), "--call-format", "native")


def insert(page: Any, words: str) -> None:
    before = page.input_value("#text")
    page.locator(f"#text-result button[title='{words}']").click()
    page.wait_for_function("before => document.querySelector('#text').value != before", arg=before)
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
    page.wait_for_function("document.querySelector('#text').value.includes('arguments')")
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


@pytest.mark.skipif(not AXE.is_file(), reason=f"there is no {AXE}: npm install --prefix … axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_continuations(browser: Any, native_url: str, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(native_url)
    page.evaluate(AXE.read_text("utf-8"))
    page.click("#tab-text")
    page.fill("#text", NATIVE_CALL[:30])
    page.wait_for_selector("#text-result button:has-text('ents')")
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()
