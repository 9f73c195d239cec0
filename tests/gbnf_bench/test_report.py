"""The report of a bench in a real browser; skipped without one (see `support.browser`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.inspect.step_rendering import run_tab
from gbnf_server.planner.runs.run_files import read_runs
from support.browser import AXE, Watched, browser, check_accessibility, new_context, watched

__all__ = ["browser", "watched"]

pytestmark = pytest.mark.slow

SUITE = """
name = "two"
[[cases]]
id = "folder"
query = "create a folder trips"
complexity = "simple"
calls = [{ name = "create_dirs", arguments = { paths = ["trips"] } }]
[[cases]]
id = "wrong"
query = "create a folder <img src=x onerror=alert(1)>"
complexity = "simple"
calls = [{ name = "create_dirs", arguments = { paths = ["elsewhere"] } }]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "two.toml").write_text(SUITE, "utf-8")
    options = ["--suite", "two.toml", "--configuration", "text", "--configuration", "filter", "--label", "x"]
    subprocess.run(
        [sys.executable, "-m", "gbnf_server", "bench", *options, "--out", "."],
        check=True, cwd=folder, env={**os.environ, "GBNF_CONFIG": ""}, capture_output=True,
    )  # fmt: skip
    return folder


def url_of(folder: Path) -> str:
    return (folder / "x.html").as_uri()


def test_a_run_and_the_grammar_of_its_steps_are_a_click_away(watched: Watched, folder: Path) -> None:
    page = watched.page
    page.goto(url_of(folder))
    case = page.locator("details.case").first
    assert not case.locator("article").first.is_visible()
    case.locator("summary").first.focus()
    page.keyboard.press("Enter")
    case.locator("details.run > summary").last.focus()
    page.keyboard.press("Enter")
    assert case.locator("article").last.is_visible()
    assert page.locator(".lines-of").count() == 0
    case.locator("article").last.locator("details[data-lines] > summary").first.click()
    page.wait_for_selector(".lines-of")
    shown = page.locator(".lines-of li").all_text_contents()
    assert shown[0].startswith("root ::= ")
    [_, run, *_] = read_runs(folder / "x.json")
    assert next(iter(run.grammars.values())).splitlines() == shown
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert page.locator(".lines.bad li").count() >= 1  # of the case whose expectation is another folder
    watched.check(url_of(folder))


def test_every_width_and_scheme(browser: Any, folder: Path) -> None:
    context = new_context(browser, bypass_csp=True)
    page = context.new_page()
    page.goto(url_of(folder))
    page.evaluate(  # one case, the one with a fault: all are made alike
        "const last = [...document.querySelectorAll('details.case')].at(-1);"
        "for (const each of [last, ...last.querySelectorAll('details')]) each.open = true"
    )
    page.wait_for_selector(".lines-of")
    for width, scheme, rules in ((3840, "", ()), (360, "light", ()), (1280, "dark", ("color-contrast",))):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        if scheme and AXE.exists():
            page.emulate_media(color_scheme=scheme)
            page.add_script_tag(content=AXE.read_text("utf-8"))
            check_accessibility(page, *rules)
    context.close()


def test_the_page_of_runs_takes_the_files_of_a_bench(folder: Path) -> None:
    names = ["two/folder, text", "two/folder, filter", "two/wrong, text", "two/wrong, filter"]
    stored, logged = read_runs(folder / "x.json"), read_runs(folder / "x.jsonl")
    assert [run.name for run in stored] == names
    assert sorted(run.name for run in logged) == sorted(names)
    assert [bool(run.grammars) for run in stored] == [False, True, False, True]
    assert not any(run.grammars for run in logged)
    by_name = {run.name: run.events for run in logged}
    assert {run.name: run.events for run in stored} == by_name
    html = run_tab(stored).html
    steps = [event for run in stored[1::2] for event in run.events if type(event).__name__ == "StepStarted"]
    assert html.count("data-lines=") == len(steps)
    before_grammars = json.loads((folder / "x.json").read_text("utf-8"))
    del before_grammars["grammars"]
    (folder / "old.json").write_text(json.dumps(before_grammars), "utf-8")
    assert [run.events for run in read_runs(folder / "old.json")] == [run.events for run in stored]
