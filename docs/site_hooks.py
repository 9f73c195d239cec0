"""Hooks of mkdocs: what the site contains beside the pages of docs/.

The README is the first page, docs/README.md is the navigation, and llms.txt is the same for language models:
beside each page of the site is its Markdown.
"""

# ruff: noqa: INP001  # loaded by path

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PLACES = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "examples/README.md": "examples/index.md",
    **{
        name: f"project/{name.lower()}"
        for name in ("AGENTS.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    },
    **{
        f"server/gbnf_server/llama/{folder}/MODEL_CARD.md": f"project/{folder}.md"
        for folder in ("adapters", "demo_model")
    },
}
"""Where in the site the Markdown files outside docs/ are, and the list of its pages."""

_LINK = re.compile(r"(\]\(|(?:src|srcset|href)=\")([^)\"#\s:]+)(?=[)\"#])")
_ENTRY = re.compile(r"\[([^]]+)\]\(([^)#]+)\)([^[\n]*)")
_markdown: dict[str, str] = {}


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """Return the sections of docs/README.md: each link's title, its page in the site, and what follows."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    text = (ROOT / "docs/README.md").read_text("utf-8")
    for part in text.split("\n## "):
        heading, _, body = part.partition("\n")
        found[heading.removeprefix("# ")] = [
            (title[0].upper() + title[1:], _target("docs/README.md", link), words.strip(" ,.:"))
            for title, link, words in _ENTRY.findall(body)
        ]
    return found


def _target(page: str, link: str) -> str:
    """Return the file in the site that a link in a file of the repository leads to."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return PLACES.get(path, path.removeprefix("docs/"))


def with_links(text: str, page: str, place: str) -> str:
    """Return the Markdown of a file of the repository with the links that it has at its place in the site."""
    folder = posixpath.dirname(place)
    return _LINK.sub(lambda link: link[1] + posixpath.relpath(_target(page, link[2]), folder or "."), text)


def on_config(config: MkDocsConfig) -> None:
    """Set the navigation."""
    (_, tutorial), *rest = sections().items()
    config.nav = [
        {"Home": "index.md"},
        *({title: place} for title, place, _ in tutorial),
        *({heading: [{title: place} for title, place, _ in entries]} for heading, entries in rest),
        {"Contents": "contents.md"},
    ]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are outside docs/, and the examples."""
    files.remove(files.src_uris["README.md"])
    for page, place in PLACES.items():
        files.append(File.generated(config, place, content=(ROOT / page).read_text("utf-8")))
    for path in (ROOT / "examples").rglob("*.*"):
        if path.suffix in {".py", ".ipynb", ".toml"}:
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let the links lead to the site, and remove comments: a table directly behind one would be text."""
    place = page.file.src_uri
    source = next((each for each, at in PLACES.items() if at == place), f"docs/{place}")
    text = re.sub(r"<!--.*?-->\n", "\n", with_links(markdown, source, place), flags=re.DOTALL)
    _markdown[place] = text
    return text


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, and the Markdown of each page."""
    for place, text in _markdown.items():
        Path(config.site_dir, place).write_text(text, "utf-8")
    Path(config.site_dir, "llms.txt").write_text(llms_text(), "utf-8")


def llms_text() -> str:
    """Return the list of the pages for language models, in the form of llmstxt.org."""
    title, summary, *_ = (ROOT / "README.md").read_text("utf-8").split("\n\n")
    lines = [title, "", f"> {summary}", "", "The [README](index.md) shows how to install and use it."]
    for heading, entries in sections().items():
        lines += ["", f"## {heading}", ""]
        lines += [
            f"- [{title}]({place})" + (f": {words}" if words else "") for title, place, words in entries
        ]
    return "\n".join(lines) + "\n"
