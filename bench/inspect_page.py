"""Does the page of `gbnf inspect` stay responsive with long decodings and large pools?

    python bench/inspect_page.py [TOKENS | TOOLS.json …]        by default 200, 2000 and 8000 tokens

For each length, a file with two decodings in Chromium: its size, the first paint, the time until the two are
aligned side by side, and the time of one arrow key, with its layout. For each list of tools (as of OpenAI),
the page while it is served: the first paint, and the times until a tool is opened, until the list of tools
shows the words that are typed, and until the pool of a request is shown, for the first and for another
request. Needs playwright and Chromium.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from gbnf_server.backends.base import Usage
from gbnf_server.inspect.inspection import Inspection
from gbnf_server.llama.token_values import Candidate, TracedToken
from gbnf_server.planner.runs.recording import RecordedCall
from gbnf_server.planner.runs.run_files import RecordedRun
from tables import new_table, show

WORDS = [word.encode() for word in ("the ", "trip ", '"', "{", "}", "\n", " ", "é", "日本", "12", ", ")]
KEYS = 400
PAINTED = """async () => {
  const entries = () => performance.getEntriesByName("first-contentful-paint");
  while (!entries().length) await new Promise((done) => setTimeout(done, 20));
  return entries()[0].startTime;
}"""
CHOOSE = """async () => {
  const started = performance.now();
  const right = document.querySelector("#right");
  right.value = "1";
  right.dispatchEvent(new Event("change"));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - started;
}"""
SCRUB = """async (keys) => {
  const line = document.querySelector(".line");
  const times = [];
  for (let number = 0; number < keys; number++) {
    const started = performance.now();
    const key = number % 40 === 39 ? "ArrowDown" : "ArrowRight";
    line.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    document.body.getBoundingClientRect();
    times.push(performance.now() - started);
    if (number % 10 === 0) await new Promise(requestAnimationFrame);
  }
  return times;
}"""

FILTER = """async () => {
  const started = performance.now();
  const filter = document.querySelector("#filter");
  filter.value = "get a";
  filter.dispatchEvent(new Event("input"));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - started;
}"""
UNTIL_FILLED = """async ([filled, cause, text]) => {
  const element = document.querySelector(cause);
  const before = document.querySelector(filled).firstElementChild;
  const started = performance.now();
  if (text === null) element.click();
  else { element.value = text; element.dispatchEvent(new Event("input")); }
  while (document.querySelector(filled).firstElementChild === before) {
    await new Promise((done) => setTimeout(done, 4));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - started;
}"""


def call(count: int, seed: int) -> RecordedCall:
    """Return a call whose answer has so many tokens; those of other seeds differ here and there."""
    common, own = random.Random(1), random.Random(seed)
    trace = []
    for number in range(count):
        token = common.choice(WORDS) if own.random() < 0.98 else own.choice(WORDS)
        rest = [Candidate(own.choice(WORDS), 0.1 / (1 + n), own.choice(["grammar", None])) for n in range(9)]
        candidates = (Candidate(token, 0.4), *rest)
        trace.append(TracedToken(token, "sampled", number / 100, count - number, 0.4, 0.8, candidates))
    return RecordedCall(text="x", usage=Usage(completion_tokens=count), trace=tuple(trace))


def measure(browser: Any, count: int, folder: Path) -> list[str]:
    """Return a row of the table; the least of three pages, since others use the machine, too."""
    run = RecordedRun("long", "a long run", None, decodings=(call(count, 2), call(count, 3)))
    path = folder / f"{count}.html"
    path.write_text(Inspection("long", runs=[run]).file(), "utf-8")
    rows = []
    for _ in range(3):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(path.as_uri())
        painted = page.evaluate(PAINTED)
        page.click("#tab-decoding")
        chosen = page.evaluate(CHOOSE)
        times = sorted(page.evaluate(SCRUB, min(KEYS, count)))
        rows.append((painted, chosen, median(times), times[int(0.95 * len(times))]))
        page.close()
    best = [min(column) for column in zip(*rows, strict=True)]
    return [str(count), f"{path.stat().st_size / 1e6:.1f}", *(f"{value:.1f}" for value in best)]


def measure_pool(browser: Any, tools: Path) -> list[str]:
    """Return a row of the table of pools; the least of three pages of one server."""
    command = [sys.executable, "-m", "gbnf_server", "inspect", "--no-open", "--tools", str(tools)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        rows = []
        for number in range(3):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(url)
            count = page.locator("#tools a").count()
            painted = page.evaluate(PAINTED)
            opened = page.evaluate(
                UNTIL_FILLED, ["#opened", f"#tools li:nth-child({count - number}) a", None]
            )
            filtered = page.evaluate(FILTER)
            page.click("#tab-pool")
            page.wait_for_selector("body:not(:has([aria-busy]))")
            pools = [
                page.evaluate(UNTIL_FILLED, ["#pool-result", "#request", f"{request} {number}"])
                for request in ("a route with hotels", "the weather in Rome")
            ]
            rows.append((painted, opened, filtered, *pools))
            page.close()
        server.terminate()
    best = [min(column) for column in zip(*rows, strict=True)]
    return [str(count), *(f"{value:.0f}" for value in best)]


def main() -> None:
    """Print a table of decodings, and one of pools."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # its absence is a message of its own

    arguments = sys.argv[1:] or ["200", "2000", "8000"]
    counts = [int(argument) for argument in arguments if argument.isdecimal()]
    pools = [Path(argument) for argument in arguments if not argument.isdecimal()]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if counts:
            table = new_table("tokens|MB|first paint ms|two aligned ms|a key ms|95th percentile")
            for count in counts:
                table.add_row(*measure(browser, count, Path(folder)))
            show(table)
        if pools:
            table = new_table("tools|first paint ms|a tool ms|a filter ms|a pool ms|another ms")
            for pool in pools:
                table.add_row(*measure_pool(browser, pool))
            show(table)
        browser.close()


if __name__ == "__main__":
    main()
