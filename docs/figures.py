"""Make the figures of the README and of the pages.

python docs/figures.py FOLDER [FIGURE …]    all of them, or those named

results     results.svg: what docs/results.md says of this toolkit and its peers
run         first-run.svg: a recording of the README's first command
decoding    decoding.svg: the tokens of an answer; the bundled model decodes a request with the grammar
inspect     inspect-light.png, inspect-dark.png: screenshots of `gbnf inspect` (playwright, Chromium)
"""

# ruff: noqa: INP001, T201  # a program that prints

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text

from gbnf import load_manifests
from gbnf_server.backends.in_process import InProcess
from gbnf_server.inspect.live_decoding import DecodingOptions, LiveDecoder
from gbnf_server.inspect.step_rendering import visible
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.token_values import TracedToken
from gbnf_server.system.folders import manifests_path

ROOT = Path(__file__).parents[1]
REQUEST = "create an event lunch today for 2 minutes"
WIDTH, MARGIN, CHARACTER, ROW, BARS = 760, 20, 8.4, 30, 5
TOKEN_S, PAUSE_S = 1.1, 2.5
STYLE = """
:root { --ground: #fff; --text: #1c2024; --quiet: #5b636b; --line: #dfe3e8; --bar: #0b6e59;
 --drafted: #0b5cad; --forced: #8a3b9c; --changed: #a34a00; }
@media (prefers-color-scheme: dark) { :root { --ground: #15181b; --text: #e4e7ea; --quiet: #a2abb3;
 --line: #32393f; --bar: #5fd0ae; --drafted: #82b7f5; --forced: #d9a3e8; --changed: #f0a15e; } }
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: var(--text);
 white-space: pre; }
.ground { fill: var(--ground); stroke: var(--line); }
.words { font: 13px system-ui, sans-serif; fill: var(--quiet); }
line { stroke: var(--quiet); stroke-width: 2; }
.drafted text { fill: var(--drafted); } .drafted line { stroke: var(--drafted); stroke-dasharray: 5 3; }
.forced text { fill: var(--forced); } .forced line { stroke: var(--forced); stroke-dasharray: 1 3; }
.changed text { fill: var(--changed); font-weight: 700; } .changed line { stroke: var(--changed); }
.head { font: 600 14px system-ui, sans-serif; } .label, .value { font: 13px system-ui, sans-serif; }
.label { text-anchor: end; } .bar.peer { fill: var(--quiet); fill-opacity: .5; }
.dim { fill: var(--quiet); } .bold { font-weight: 700; }
.color2 { fill: var(--bar); } .color6 { fill: var(--drafted); }
.bar { fill: var(--bar); } .refused { fill: var(--changed); } .refused.bar { fill-opacity: .45; }
"""


def figure(request: str, trace: tuple[TracedToken, ...]) -> str:
    """Return the animated SVG of a decoding. Where motion is not wanted it shows the last state."""
    tokens = [entry for entry in trace if entry.kind != "end"]
    total = len(tokens) * TOKEN_S + PAUSE_S
    places, height = _places(tokens)
    bars_top = height + 24
    whole = bars_top + 22 * BARS + 34
    css, body = [STYLE], []
    for number, (entry, (x, y)) in enumerate(zip(tokens, places, strict=True)):
        begin, end = 100 * number * TOKEN_S / total, 100 * (number + 1) * TOKEN_S / total
        last = number == len(tokens) - 1
        css.append(
            f"@keyframes t{number} {{ 0%, {begin:.2f}% {{ opacity: 0 }} "
            f"{begin + 0.01:.2f}%, 100% {{ opacity: 1 }} }}"
        )
        hidden = "" if last else f"{end:.2f}%, 100% {{ opacity: 0 }}"
        css.append(
            f"@keyframes c{number} {{ 0%, {begin:.2f}% {{ opacity: 0 }} "
            f"{begin + 0.01:.2f}%, {100 if last else end - 0.01:.2f}% {{ opacity: 1 }} {hidden} }}"
        )
        css.append(f".t{number} {{ animation: t{number} {total:.1f}s infinite }}")
        css.append(f".c{number} {{ animation: c{number} {total:.1f}s infinite; opacity: {int(last)} }}")
        body.append(_token(entry, number, x, y))
        body.append(_candidates(entry, number, bars_top))
    css.append("@media (prefers-reduced-motion: reduce) { g { animation: none !important } }")
    title = f"The tokens of an answer to “{request}”, as the grammar allows them"
    return _svg(
        title, whole, css, [f'<text class="words" x="{MARGIN}" y="28">{escape(request)}</text>', *body]
    )


class Panel(NamedTuple):
    """A bar chart of `results.svg`: rows of a name and a number, of which the first is this toolkit's."""

    title: str
    words: str
    rows: Sequence[tuple[str, float]]
    form: str


def results_figure(page: str) -> str:
    """Return the SVG of the comparisons in the page of results."""
    passing = {row[0]: float(row[2].rstrip(" %")) for row in _rows(page, "Real schemas")}
    native = {"gbnf": Counter[str](), "llama-server": Counter[str]()}
    for templates, side, valid, *others in _rows(page, "Native tool-call formats"):
        if not templates.startswith("no tools"):
            native[side] += Counter(valid=int(valid), all=int(valid) + sum(map(int, others)))
    calls = {side: 100 * counts["valid"] / counts["all"] for side, counts in native.items()}
    decoding = {row[0]: float(row[2]) for row in _rows(page, "Speed of decoding")}
    masks = {row[0]: float(row[2]) for row in _rows(page, "From tools to the first mask")}
    panels = [
        Panel(
            "Real schemas that pass",
            "% of the cases of MaskBench; longer is better",
            [
                ("gbnf", passing["gbnf, any order"]),
                ("llguidance, lenient", passing["llguidance, lenient"]),
                ("llguidance", passing["llguidance"]),
                ("llama.cpp's converter", passing["llama.cpp's converter"]),
            ],
            ".1f",
        ),
        Panel(
            "Valid calls in the formats of chat templates",
            "%, from a model of random weights; longer is better",
            [("gbnf", calls["gbnf"]), ("llama-server's tools", calls["llama-server"])],
            ".0f",
        ),
        Panel(
            "From 16 tools to the first token mask",
            "ms; shorter is better",
            [
                ("gbnf", masks["gbnf"]),
                ("llguidance", masks["llguidance"]),
                ("llama.cpp's converter", masks["llama-cpp"]),
                ("XGrammar", masks["xgrammar"]),
            ],
            ".1f",
        ),
        Panel(
            "Time to generate a call",
            "÷ the time without a grammar; shorter is better",
            [("gbnf", decoding["ours"]), ("llama-cpp-python", decoding["llama-cpp-python's grammar"])],
            ".2f",
        ),
    ]
    body = [
        part
        for number, panel in enumerate(panels)
        for part in _bars(panel, MARGIN + 370 * (number % 2), 10 + 158 * (number // 2))
    ]
    return _svg("Comparisons of gbnf with llama.cpp, llguidance and XGrammar", 316, [STYLE], body)


def _bars(panel: Panel, left: float, top: float) -> Iterator[str]:
    yield f'<text class="head" x="{left}" y="{top + 18}">{escape(panel.title)}</text>'
    yield f'<text class="words" x="{left}" y="{top + 37}">{escape(panel.words)}</text>'
    longest = max(value for _, value in panel.rows)
    for row, (name, value) in enumerate(panel.rows):
        y, width = top + 62 + 22 * row, 150 * value / longest
        yield f'<text class="label" x="{left + 142}" y="{y}">{escape(name)}</text>'
        kind = "bar peer" if row else "bar"
        yield f'<rect class="{kind}" x="{left + 150}" y="{y - 12}" width="{width:.1f}" height="15"/>'
        yield f'<text class="value" x="{left + 156 + width:.1f}" y="{y}">{value:{panel.form}}</text>'


def _rows(page: str, heading: str) -> Iterator[list[str]]:
    """Yield the rows of the first table below a heading of a page, without its head."""
    text = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    table = re.search(r"^\|[- |]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table, heading
    before = ""
    for line in table[1].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        before = cells[0] = cells[0] or before  # an empty cell repeats the one above it
        yield cells


class Line(NamedTuple):
    """A line of a recording: when it came, in seconds, and its text with colours."""

    at: float
    text: Text


def record(arguments: Sequence[str]) -> list[Line]:
    """Run `gbnf` in an empty folder, and return what it prints, without spinners."""
    command = [sys.executable, "-m", "gbnf_server", *arguments]
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "200"}
    lines = []
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603  # the README's own command
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        assert process.stdout is not None
        began = time.monotonic()
        for line in map(bytes.decode, process.stdout):
            if "\x1b[?25l" not in line:  # a spinner, which the next line replaces
                last = line.rpartition("\x1b[2K")[2].rstrip().replace(folder, "…")
                lines.append(Line(time.monotonic() - began, Text.from_ansi(last)))
    assert process.returncode == 0, lines
    return lines


def run_figure(command: str, lines: Sequence[Line]) -> str:
    """Return the SVG of a recording, which plays once: each line stays a while, whatever the machine took."""
    console, columns = Console(), 84
    shown = [(0.0, row) for row in Text(f"$ {command}").wrap(console, columns)]
    at = before = 0.0
    for line in lines:
        at, before = at + min(max(line.at - before, 0.3), 1), line.at
        shown += [(at, row) for row in line.text.wrap(console, columns)]
    css = [STYLE, "@keyframes come { 0%, 99% { opacity: 0 } 100% { opacity: 1 } }"]
    css.append("@media (prefers-reduced-motion: reduce) { text { animation: none !important } }")
    body = []
    for number, (at, row) in enumerate(shown):
        y = 34 + 20 * number
        spans = "".join(
            f'<tspan class="{kind}">{escape(segment.text)}</tspan>'
            for segment in row.render(console)
            if segment.text.strip("\n")
            for kind in [_kind(segment.style)]
        )
        body.append(f'<text style="animation: come {at:.2f}s" x="{MARGIN}" y="{y}">{spans}</text>')
    return _svg(f"What {command} prints", 34 + 20 * len(shown), css, body)


def _kind(style: Style | None) -> str:
    if style is None:
        return ""
    names = {f"color{style.color.number}" if style.color else "": True, "dim": style.dim, "bold": style.bold}
    return " ".join(name for name, is_set in names.items() if is_set)


def _svg(title: str, height: float, css: Sequence[str], body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"<style>{' '.join(css)}</style>"
        f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
        f"{''.join(body)}</svg>\n"
    )


def _places(tokens: list[TracedToken]) -> tuple[list[tuple[float, float]], float]:
    """Return where each token is, and the height of all."""
    places = []
    x, y = float(MARGIN), 60.0
    for entry in tokens:
        width = len(_text(entry)) * CHARACTER
        if x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + ROW
        places.append((x, y))
        x += width + 4
    return places, y


def _text(entry: TracedToken) -> str:
    return ("≠" if _is_changed(entry) else "") + visible(entry.token)


def _is_changed(entry: TracedToken) -> bool:
    return bool(entry.candidates) and entry.candidates[0].refused_by is not None


def _token(entry: TracedToken, number: int, x: float, y: float) -> str:
    text = _text(entry)
    kind = "changed" if _is_changed(entry) else entry.kind
    width = len(text) * CHARACTER
    return (
        f'<g class="t{number} {kind}">'
        f'<text x="{x:.1f}" y="{y}" textLength="{width:.1f}">{escape(text)}</text>'
        f'<line x1="{x:.1f}" x2="{x + width:.1f}" y1="{y + 6}" y2="{y + 6}"/></g>'
    )


def _candidates(entry: TracedToken, number: int, top: float) -> str:
    if not entry.candidates:
        words = "forced: the grammar allows nothing else, so the model is not asked"
        return f'<g class="c{number}"><text class="words" x="{MARGIN}" y="{top + 20}">{words}</text></g>'
    rows = []
    for row, each in enumerate(entry.candidates[:BARS]):
        y = top + 20 + 22 * row
        kind = " refused" if each.refused_by else ""
        shown = visible(each.token)
        shown = shown if len(shown) <= 24 else shown[:23] + "…"
        why = f"refused by the {each.refused_by}" if each.refused_by else ""
        rows.append(
            f'<text class="{kind.strip()}" x="{MARGIN}" y="{y}">{escape(shown)}</text>'
            f'<rect class="bar{kind}" x="240" y="{y - 11}" height="13" '
            f'width="{max(260 * each.probability, 1):.1f}"/>'
            f'<text class="words" x="510" y="{y}">{100 * each.probability:.2f} %  {why}</text>'
        )
    return f'<g class="c{number}">{"".join(rows)}</g>'


def screenshots(folder: Path, request: str) -> None:
    """Write the screenshots of the page, light and dark."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # the figure needs none

    command = [sys.executable, "-m", "gbnf_server", "inspect", "--no-open"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,  # noqa: S603  # fixed arguments
        sync_playwright() as playwright,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=scheme)
                page.goto(url)
                page.click("#tab-decoding")
                page.fill("#decode-request", request)
                page.click("#decode button")
                page.wait_for_selector(".slot + .slot")
                page.click("button.next:enabled")
                page.screenshot(path=folder / f"inspect-{scheme}.png")
                print(folder / f"inspect-{scheme}.png")
        finally:
            browser.close()
            server.terminate()


def main() -> None:
    """Write the figures."""
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or ["results", "run", "decoding", "inspect"]
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    if "results" in names:
        made["results.svg"] = results_figure((ROOT / "docs" / "results.md").read_text("utf-8"))
    if "run" in names:
        found = re.search(r"gbnf (run .*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
        assert found
        made["first-run.svg"] = run_figure(f"gbnf {found[1]}", record(shlex.split(found[1])))
    if "decoding" in names:
        decoder = LiveDecoder(
            lambda: InProcess(model_path(), threads=1), "", load_manifests(manifests_path())
        )
        (call,) = asyncio.run(decoder.decode(DecodingOptions(REQUEST, ("json",))))
        made["decoding.svg"] = figure(REQUEST, call.trace)
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")
        print(folder / name)
    if "inspect" in names:
        screenshots(folder, REQUEST)


if __name__ == "__main__":
    main()
