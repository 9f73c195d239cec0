"""The site that mkdocs builds, its list for language models, and the figures."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]


def program(name: str) -> ModuleType:
    """Import a program of docs/, which is no package."""
    spec = spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_index_names_each_page_once() -> None:
    linked = Counter(re.findall(r"\]\(([^)#:]+\.md)\)", (ROOT / "docs/README.md").read_text("utf-8")))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    outside = {link for link in linked if link.startswith("../")}
    assert set(linked) - outside == pages
    assert set(linked.values()) == {1}


PAGES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("", "docs/", "docs/*/", "examples/")
    for path in ROOT.glob(f"{folder}*.md")
)


def test_the_names_in_the_pages_can_be_imported() -> None:
    unknown = []
    for page in PAGES:
        if page == "CHANGELOG.md":  # it also names what was moved or removed
            continue
        text = (ROOT / page).read_text("utf-8")
        for name in sorted(
            set(re.findall(r"`((?:gbnf|gbnf_server)(?:\.\w+)+)", text)) - {"gbnf.toml", "gbnf.schema.json"}
        ):
            try:
                resolve_name(name)
            except (ImportError, AttributeError):
                unknown.append(f"{page}: {name}")
    assert not unknown


@given(source=st.sampled_from(PAGES), target=st.sampled_from(PAGES), anchor=st.sampled_from(["", "#part"]))
def test_a_link_leads_to_the_same_page_in_the_site(source: str, target: str, anchor: str) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    hooks = program("site_hooks")
    places = {page: hooks.PLACES.get(page, page.removeprefix("docs/")) for page in PAGES}
    assert len({*places.values()}) == len(places)
    link = posixpath.relpath(target, posixpath.dirname(source) or ".")
    text = hooks.with_links(
        f"see [it]({link}{anchor}), not [that](https://example.org/{link})", source, places[source]
    )
    (found,) = re.findall(r"\]\(([^:)]*)\)", text)
    path, _, rest = found.partition("#")
    assert posixpath.normpath(posixpath.join(posixpath.dirname(places[source]), path)) == places[target]
    assert (rest, text.count("https://example.org/")) == (anchor[1:], 1)


class Links(HTMLParser):
    """What a page refers to on the same site."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found = set[str]()
        self.feed(text)

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src", "srcset"} and value and not urlsplit(value).scheme:
                self.found.add(unquote(urlsplit(value).path))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_all_that_the_pages_refer_to_is_in_the_site(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    missing = {
        (str(page.relative_to(site)), link)
        for page in pages
        for link in Links(page.read_text("utf-8")).found
        if link and not (page.parent / link).exists()
    }
    assert missing == set()
    assert len(pages) >= 30


@pytest.mark.slow
def test_llms_txt_lists_the_markdown_of_each_page(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    title, summary, *sections = text.split("\n\n")
    assert (title, summary[:2]) == ("# gbnf-toolkit", "> ")
    assert "## How-to guides" in sections
    listed = re.findall(r"\]\(([^)]+)\)", text)
    pages = {str(path.relative_to(site).with_suffix(".md")) for path in site.rglob("*.html")}
    assert sorted(listed) == sorted(pages - {"404.md", "contents.md"})
    for path in listed:
        page = (site / path).read_text("utf-8")
        assert page.lstrip().startswith("# ")
        links = {link for link in re.findall(r"\]\(([^)#\s]+)", page) if "://" not in link}
        assert [link for link in links if not (site / path).parent.joinpath(link).exists()] == []


@pytest.mark.slow
def test_the_figure_of_the_results_shows_what_the_page_says() -> None:
    figures = program("figures")
    page = (ROOT / "docs/results.md").read_text("utf-8")
    drawn = figures.results_figure(page)
    assert drawn == (ROOT / "docs/figures/results.svg").read_text("utf-8")
    shown = re.findall(r'class="value"[^>]*>([\d.]+)<', drawn)
    drawn_from = {"Real schemas", "Speed of decoding", "From tools to the first mask"}
    sections = [part for part in page.split("\n## ") if part.partition("\n")[0] in drawn_from]
    cells = [number for number in shown if re.search(rf"\| {number}(?: %)? \|", "\n".join(sections))]
    assert len(cells) >= 8  # the others are sums
    for number in cells:
        changed = re.sub(rf"\| {number}( %)? \|", r"| 0.5\1 |", page)
        assert figures.results_figure(changed) != drawn


@pytest.mark.slow
def test_a_recording_has_the_lines_of_the_command_without_its_spinners() -> None:
    figures = program("figures")
    lines = figures.record(["run", "what time is it?"])
    assert any("get_now" in line.text.plain for line in lines)
    assert not any("\x1b" in line.text.plain or "⠋" in line.text.plain for line in lines)
    assert [line.at for line in lines] == sorted(line.at for line in lines)
