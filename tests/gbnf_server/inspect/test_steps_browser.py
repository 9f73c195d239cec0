"""Decodings and runs in a real browser; skipped without one (see `support.browser`)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import Watched, browser, check_states, served, watched
from support.oracle import CHECKOUT

__all__ = ["browser", "watched"]

pytestmark = pytest.mark.slow

EVIL = "</script><img src=x onerror=\"document.title = 'wrong'\">"
KINDS = ["sampled", "sampled", "sampled", "drafted", "forced"]
LONG = 2000


def entry(number: int, token: Any, kind: str, *, refused: bool = False) -> list[Any]:
    if kind == "forced":
        return [token, kind, number / 100, LONG - number, None, None, []]
    candidates = [["wanted", 0.5, "grammar"]] if refused else []
    candidates += [[token, 0.3, None], ["other", 0.1, None], ["long", 0.05, "limit"]]
    return [token, kind, number / 100, LONG - number, 0.3, 0.4, candidates]


def call(step: int, tokens: list[Any], grammar: str = "", kinds: list[str] | None = None) -> dict[str, Any]:
    """A call of the model; every seventh token is changed."""
    chosen = kinds or [KINDS[number % len(KINDS)] for number in range(len(tokens))]
    trace = [
        entry(number, token, kind, refused=number % 7 == 6)
        for number, (token, kind) in enumerate(zip(tokens, chosen, strict=True))
    ]
    text = "".join(token for token in tokens if isinstance(token, str))
    about = {"grammar": grammar, "text": text, "finish_reason": "stop", "step": step, "max_tokens": LONG}
    messages = [{"role": "user", "content": EVIL}]
    return {**about, "messages": messages, "trace": [*trace, ["", "end", 1, 3, 0.9, 1.0, []]]}


def long_call(step: int, changed: int | None = None) -> dict[str, Any]:
    chance = random.Random(1)
    tokens = [chance.choice(["word ", "é", "{", '"', "\n", " ", "trip ", "12"]) for _ in range(LONG)]
    if changed is not None:
        tokens[changed] = "DIFFERENT"
    return call(step, tokens)


WORDS = [EVIL, " ", "\n", {"bytes": "e2"}, "a ", "b ", "c ", "d "]
RUN = {
    "outcome": "interrupted", "query": f"a run {EVIL}", "error": "the run was interrupted", "events": [],
    "decodings": [
        call(1, WORDS, "root ::= [a]"),
        call(2, [*WORDS[:4], "a b ", "x ", "c ", "d "]),
        {"text": "of a server", "finish_reason": "stop", "step": 3},
        {"text": "", "error": "nobody answers", "step": 4},
    ],
}  # fmt: skip


def write_page(folder: Path, *arguments: str) -> str:
    subprocess.run(
        [sys.executable, "-m", "gbnf_server", "inspect", *arguments, "--html", "page.html"],
        check=True, cwd=folder, env={**os.environ, "GBNF_CONFIG": ""}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return (folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def file_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "a.json").write_text(json.dumps(RUN), "utf-8")
    subprocess.run(
        [sys.executable, "-m", "gbnf_server", "run", "create a folder trips", "--record", "b.json", "--yes"],
        check=True, cwd=folder, env={**os.environ, "GBNF_CONFIG": ""}, capture_output=True,
    )  # fmt: skip
    return write_page(folder, str(CHECKOUT / "manifests"), "--run", "a.json", "--run", "b.json")


@pytest.fixture(scope="module")
def long_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("long")
    run = {**RUN, "decodings": [long_call(1), long_call(2, changed=1500)]}
    (folder / "long.json").write_text(json.dumps(run), "utf-8")
    return write_page(folder, "--run", "long.json")


@pytest.fixture(scope="module")
def live_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("live"))


def current(page: Any, slot: int = 0) -> int:
    """The number of the current token."""
    return int(page.locator(".slot output").nth(slot).text_content().split()[0])


def opened(watched: Watched, url: str, left: str = "0", right: str = "") -> Any:
    page = watched.page
    page.goto(url)
    page.click("#tab-decoding")
    page.select_option("#left", left)
    page.select_option("#right", right)
    return page


def test_the_keys_scrub(watched: Watched, file_url: str) -> None:
    page = opened(watched, file_url)
    page.click(".line .t >> nth=2")
    assert current(page) == 3
    for key, number in [
        ("ArrowRight", 4), ("ArrowLeft", 3), ("End", 9), ("ArrowRight", 9), ("Home", 1), ("ArrowLeft", 1),
        ("ArrowDown", 9), ("ArrowUp", 1), ("n", 7), ("n", 7), ("Home", 1), ("p", 7),
    ]:  # fmt: skip
        page.keyboard.press(key)
        assert current(page) == number
        focused = "[...document.querySelectorAll('.line .t')].indexOf(document.activeElement)"
        assert page.evaluate(focused) == number - 1
    assert page.locator(".line .t[tabindex='0']").count() == 1
    assert "token 7 of 9" in page.text_content("#status")
    assert "changed here" in page.text_content("#status")
    watched.check(file_url)


def test_the_range_and_the_button_scrub(watched: Watched, file_url: str) -> None:
    page = opened(watched, file_url)
    page.focus("input[type=range]")
    page.keyboard.press("End")
    assert current(page) == 9
    assert "end of the text" in page.text_content(".now")
    page.click("button.next")
    assert current(page) == 7
    assert "Changed here: the model preferred wanted, refused by the grammar." in page.text_content(".now")
    watched.check(file_url)


def test_the_details_of_a_token(watched: Watched, file_url: str) -> None:
    page = opened(watched, file_url)
    page.click(".line .t >> nth=5")
    now = page.text_content(".now")
    for part in ("b  sampled", "before the mask30.0 %", "after the mask75.0 %", "tokens left1995", "50.0 ms"):
        assert part in now
    rows = [row.split("\t") for row in page.locator(".now tbody tr").all_inner_texts()]
    assert [row[-1] for row in rows] == ["75.0 % ✓ chosen", "25.0 %", "✗ refused by the token limit"]
    page.click(".line .t >> nth=4")
    assert "allows nothing else" in page.text_content(".now")
    page.click(".line .t >> nth=3")
    assert "bytes e2" in page.text_content(".now")
    assert page.locator(".line .t").nth(1).text_content() == "␣"
    watched.check(file_url)


def test_two_decodings_are_aligned(watched: Watched, file_url: str) -> None:
    page = opened(watched, file_url, "0", "1")
    differ = "all => all.filter(one => one.classList.contains('v')).map(one => one.textContent)"
    assert page.eval_on_selector_all(".slot:first-child .line .t", differ) == []
    assert page.eval_on_selector_all(".slot:last-child .line .t", differ) == ["x "]
    page.click(".slot:first-child .line .t >> nth=7")
    assert (current(page), current(page, 1)) == (8, 8)
    assert page.locator(".t[aria-selected=true]").all_text_contents() == ["d ", "d "]
    page.click(".slot:last-child .line .t >> nth=1")
    assert (current(page), current(page, 1)) == (2, 2)
    watched.check(file_url)


def test_calls_without_tokens(watched: Watched, file_url: str) -> None:
    page = opened(watched, file_url, "2", "3")
    assert "a server tells only the text" in page.text_content("#pair")
    assert page.text_content(".slot .line") == "of a server"
    assert page.text_content(".slot .problem") == "nobody answers"
    watched.check(file_url)


def test_a_run_leads_to_its_tokens_and_grammars_and_those_of_offered_tools(
    watched: Watched, file_url: str
) -> None:
    page = watched.page
    page.goto(file_url)
    assert page.locator("details.run").count() == 2
    page.click("summary.title >> nth=1")
    timeline = page.locator("article.timeline").nth(1)
    assert timeline.locator("ol.steps > li").count() == 2
    assert timeline.locator("svg.bar").count() == 5
    timeline.locator("summary:has-text('GBNF')").first.click()
    assert timeline.locator(".lines-of li").first.text_content().startswith("root ::= ")
    timeline.locator("a[data-decoding]").first.click()
    assert page.is_visible("#panel-decoding")
    assert page.input_value("#left") == "4"
    assert page.evaluate("document.activeElement.getAttribute('role')") == "option"
    page.reload()
    assert page.is_visible("#panel-decoding")
    assert page.input_value("#left") == "4"
    page.click("#tab-run")
    page.click("summary.title >> nth=1")
    page.click(".offered summary >> nth=0")
    page.click(".offered a:has-text('create_dirs')")
    assert page.is_visible("h2:has-text('create_dirs')")
    assert page.evaluate("document.activeElement.id") == "grammar-title"
    watched.check(file_url)


def test_a_request_is_decoded_live(watched: Watched, live_url: str) -> None:
    page = watched.page
    page.goto(live_url)
    page.click("#tab-decoding")
    page.fill("#decode-request", "create a folder trips")
    page.click("#decode button")
    page.wait_for_selector(".slot + .slot")
    titles = page.locator(".slot h2").all_text_contents()
    assert titles == ["JSON, with the grammar", "JSON, without a grammar"]
    assert "create_dirs" in page.text_content(".slot .line")
    page.select_option("#decode-right", "")
    page.fill("#decode-temperature", "1")
    page.press("#decode-request", "Enter")
    page.wait_for_selector(".slot:only-child")
    assert "temperature 1, seed 0" in page.text_content(".slot")
    watched.check(live_url)
    page.fill("#decode-seed", "-1")
    page.click("#decode button")
    page.press("#decode-request", "Enter")
    assert page.locator(".slot").count() == 1  # the browser refuses the value
    page.fill("#decode-seed", "0")
    page.fill("#decode-tokens", "99999")
    page.evaluate("document.querySelector('#decode').noValidate = true")
    page.press("#decode-request", "Enter")
    page.wait_for_selector(".problem:has-text('it must be from 1 to 2000')")


def test_a_long_decoding_is_scrubbed(watched: Watched, long_url: str) -> None:
    """No times here, since the machine may be busy: see bench/inspect_page.py."""
    page = opened(watched, long_url, "0", "1")
    assert page.locator(".slot:first-child .line .t").count() == LONG + 1
    differ = "all => all.map(one => one.textContent)"
    assert page.eval_on_selector_all(".slot:last-child .line .t.v", differ) == ["DIFFERENT"]
    page.click(".slot:first-child .line .t >> nth=0")
    for _ in range(150):
        page.keyboard.press("ArrowDown")
    assert current(page) == 1501
    assert current(page, 1) in (1501, 1502)
    page.keyboard.press("End")
    assert (current(page), current(page, 1)) == (LONG + 1, LONG + 1)
    box, frame = (
        page.locator(".t[aria-selected=true]").first.bounding_box(),
        page.locator(".line").first.bounding_box(),
    )
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"]
    watched.check(long_url)


@pytest.mark.parametrize(
    ("kind", "width", "scheme"),
    [("file_url", 360, "dark"), ("file_url", 3840, "light"), ("live_url", 360, "light")],
)
def test_it_fits_every_width_and_is_accessible(
    browser: Any, request: pytest.FixtureRequest, kind: str, width: int, scheme: str
) -> None:
    url = request.getfixturevalue(kind)
    check_states(browser, url, states, width=width, scheme=scheme, axe=True)


def states(page: Any) -> Iterator[None]:
    """Show the runs, and some tokens of two decodings."""
    if page.locator("#tab-run").count():
        page.evaluate("document.querySelectorAll('#panel-run details').forEach(one => { one.open = true; })")
        yield
        page.click("#tab-decoding")
        page.select_option("#right", "1")
    else:
        page.click("#tab-decoding")
        yield
        page.fill("#decode-request", "create a folder trips")
        page.click("#decode button")
        page.wait_for_selector(".slot + .slot")
    page.evaluate("document.querySelectorAll('#pair details').forEach(one => { one.open = true; })")
    for number in (4, 6):  # a forced token, and one that the grammar changed
        page.locator(".line .t").nth(min(number, page.locator(".line .t").count() - 1)).click()
        yield
