"""Make the figures of the README: an animated SVG of a decoding, and screenshots of `gbnf inspect`.

    python docs/figures.py FOLDER [REQUEST]     decoding.svg, and inspect-light.png and inspect-dark.png

The bundled model decodes the request with the grammar. The screenshots need playwright and Chromium.
"""

# ruff: noqa: INP001, T201  # a program that prints

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

from gbnf import load_manifests
from gbnf_server.backends.in_process import InProcess
from gbnf_server.inspect.live_decoding import DecodingOptions, LiveDecoder
from gbnf_server.inspect.step_rendering import visible
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.token_values import TracedToken
from gbnf_server.system.folders import manifests_path

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
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole}" width="{WIDTH}" '
        f'height="{whole}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"<style>{' '.join(css)}</style>"
        f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{whole - 1}" rx="8"/>'
        f'<text class="words" x="{MARGIN}" y="28">{escape(request)}</text>{"".join(body)}</svg>\n'
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
    request = sys.argv[2] if len(sys.argv) > 2 else REQUEST
    folder.mkdir(parents=True, exist_ok=True)
    decoder = LiveDecoder(lambda: InProcess(model_path(), threads=1), "", load_manifests(manifests_path()))
    (call,) = asyncio.run(decoder.decode(DecodingOptions(request, ("json",))))
    (folder / "decoding.svg").write_text(figure(request, call.trace), "utf-8")
    print(folder / "decoding.svg")
    screenshots(folder, request)


if __name__ == "__main__":
    main()
