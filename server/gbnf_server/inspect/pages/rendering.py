"""Templates, style sheets and scripts of pages that load nothing from elsewhere, and the words of GBNF.

Everything that comes from a schema, a tool or a person is escaped by the templates.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, TypeAlias

import jinja2
from markupsafe import Markup, escape

TokenKind: TypeAlias = Literal["rule", "reference", "literal", "class", "operator", "space"]

_TOKEN = re.compile(
    r"""(?P<literal>"(?:[^"\\]|\\.)*"?)
    |(?P<class>\[(?:[^\]\\]|\\.)*\]?|\.)
    |(?P<reference>[A-Za-z0-9-]+)
    |(?P<operator>::=|\{[\d,]*\}|[|()?*+])
    |(?P<space>\s+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)

PAGES = "gbnf_server.inspect.pages"
"""The package whose templates and assets every page may use."""


def _between_tags(text: str) -> Markup:
    """Escape a text that is not in an attribute: JSON is half as long with its quotes as they are."""
    return Markup(str(escape(text)).replace("&#34;", '"').replace("&#39;", "'"))  # noqa: S704  # < and & are escaped


@cache
def _environment(package: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(name, ".") for name in dict.fromkeys((package, PAGES))]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["between_tags"] = _between_tags
    return environment


def render_template(template: str, /, package: str = PAGES, **values: Any) -> Markup:
    """Return a template of a package, or of this one, with values."""
    return Markup(_environment(package).get_template(template).render(values))  # noqa: S704  # the template escapes


@cache
def read_assets(*names: tuple[str, str]) -> str:
    """Return style sheets, or scripts, as one; each is a package and the name of a file in it."""
    return "\n".join(files(package).joinpath(name).read_text("utf-8") for package, name in names)


def content_security_policy(*, css: str, js: str, more: Sequence[str] = ()) -> str:
    """Return the policy of a page: nothing from elsewhere, this script and this style sheet only."""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    parts = [
        "default-src 'none'",
        f"script-src {source(js)}",
        f"style-src {source(css)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        *more,
    ]
    return "; ".join(parts)


class GbnfToken(NamedTuple):
    """A word; `rule` is the name that a line defines."""

    kind: TokenKind
    text: str


def tokens(line: str) -> Iterator[GbnfToken]:
    """Yield the words of a rule, for highlighting. Joined they are the text."""
    for number, match in enumerate(_TOKEN.finditer(line)):
        kind = match.lastgroup or "other"
        if kind == "reference" and number == 0:
            yield GbnfToken("rule", match[0])
        else:
            yield GbnfToken("operator" if kind == "other" else kind, match[0])  # type: ignore[arg-type]  # the groups' names are the kinds
