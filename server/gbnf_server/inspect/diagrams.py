"""Rules as railroad diagrams: SVG, in the style of the page's stylesheet.

Large rules are shortened: of an alternation the first alternatives, of a long literal or class the beginning.
What is left out is listed beside the diagram (`RuleDiagram.folded`) or is the title of its box.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import railroad

from gbnf.errors import clip
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import EPSILON, Alt, CharClass, Expr, Literal, Ref, Repeat, Seq, TokenTerminal

SHOWN_ALTERNATIVES = 12
SHOWN_CHARACTERS = 28
ROW_WIDTH = 620.0
"""Pixels, above which a rule goes on in the next row; inside, the library would draw rows over others."""
_MOST_BOXES = 150
_CHARACTER = 8.0
_NO_LENGTH = re.compile(r'<path d="M[\d.]+ [\d.]+(?:h-?0(?:\.0)?)+" />')
"""Lines that are not seen: a third of the drawing's text."""
railroad.INTERNAL_ALIGNMENT = "left"  # the library has no other way; it draws only here


@dataclass(frozen=True, slots=True)
class RuleDiagram:
    """The SVG of a rule, and the alternatives that it leaves out, as GBNF, in groups."""

    svg: str
    folded: tuple[tuple[str, ...], ...] = ()


def diagram(name: str, production: Expr, href: Callable[[str], str | None]) -> RuleDiagram:
    """Return the diagram of a rule. `href`: the link to another rule's; None where it has none."""
    drawing = _Drawing(href, name)
    item = drawing.item(production, depth=0)
    out = io.StringIO()
    drawn = railroad.Diagram(item, type="complex")
    drawn.attrs |= {"role": "group", "aria-label": f"Diagram of {name}"}
    drawn.format(6).writeSvg(out.write)
    return RuleDiagram(_NO_LENGTH.sub("", out.getvalue()), tuple(drawing.folded))


class _Drawing:
    """The boxes of one rule, which are counted."""

    def __init__(self, href: Callable[[str], str | None], name: str) -> None:
        self._href = href
        self._name = name
        self._boxes = count(1)
        self.folded: list[tuple[str, ...]] = []

    def item(self, expr: Expr, depth: int) -> railroad.DiagramItem:
        if next(self._boxes) > _MOST_BOXES:
            return _Box("…", "more", title=clip(emit_expr(expr), 2000))
        match expr:
            case Ref(name):
                kind = "reference self" if name == self._name else "reference"
                return _Box(clip(name, SHOWN_CHARACTERS), kind, self._href(name), name)
            case Literal(text):
                return _terminal(text, emit_expr(expr))
            case CharClass() | TokenTerminal():
                written = emit_expr(expr)
                return _Box(clip(written, SHOWN_CHARACTERS), "class", title=written)
            case Seq(items):
                return self._sequence([self.item(item, depth + 1) for item in items], depth)
            case Alt(items):
                return self._choice(items, depth)
            case Repeat(item, minimum, maximum):
                return self._repeat(item, minimum, maximum, depth)

    def _sequence(self, items: list[railroad.DiagramItem], depth: int) -> railroad.DiagramItem:
        if not items:
            return railroad.Skip()
        rows: list[list[railroad.DiagramItem]] = [[]]
        width = 0.0
        for item in items:
            if depth == 0 and rows[-1] and width + item.width > ROW_WIDTH:
                rows.append([])
                width = 0.0
            rows[-1].append(item)
            width += item.width + 20
        if len(rows) == 1:
            return railroad.Sequence(*items)
        return railroad.Stack(*(railroad.Sequence(*row) for row in rows))

    def _choice(self, alternatives: tuple[Expr, ...], depth: int) -> railroad.DiagramItem:
        shown = alternatives[:SHOWN_ALTERNATIVES]
        items = [self.item(choice, depth + 1) if choice != EPSILON else railroad.Skip() for choice in shown]
        if rest := alternatives[SHOWN_ALTERNATIVES:]:
            if len(rest) == 1:
                items.append(self.item(rest[0], depth + 1))
            else:
                self.folded.append(tuple(emit_expr(choice) for choice in rest))
                items.append(_Box(f"{len(rest)} more", "more"))
        return railroad.Choice(0, *items) if len(items) > 1 else items[0]

    def _repeat(self, item: Expr, minimum: int, maximum: int | None, depth: int) -> railroad.DiagramItem:
        inner = self.item(item, depth + 1)
        if (minimum, maximum) == (0, 1):
            return railroad.Optional(inner)
        loop = railroad.OneOrMore if minimum else railroad.ZeroOrMore
        match minimum, maximum:
            case 0 | 1, None:
                return loop(inner)
            case _, None:
                times = f"at least {minimum}"
            case 0, _:
                times = f"at most {maximum}"
            case _:
                times = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
        return loop(inner, railroad.Comment(f"{times}×"))


class _Box(railroad.DiagramItem):  # type: ignore[misc]  # the library ships no types
    """A box with a text, as the library's; those write the text of a link twice."""

    def __init__(self, text: str, kind: str, href: str | None = None, title: str = "") -> None:
        super().__init__("g", {"class": kind})
        self._text, self._href, self._title = text, href, title if title != text else ""
        self._corner = 4 if kind.startswith(("reference", "more")) else 11
        self.width = len(text) * _CHARACTER + 20
        self.up = self.down = 11
        self.needsSpace = True

    def format(self, x: float, y: float, width: float) -> railroad.DiagramItem:
        """Add the box to the drawing, as the library asks its items."""
        railroad.Path(x + self.width, y).h(width - self.width).addTo(self)
        parts: list[railroad.DiagramItem] = []
        if self._title:
            parts.append(railroad.DiagramItem("title", {}, self._title))
        box = {
            "x": x, "y": y - 11, "width": self.width, "height": 22, "rx": self._corner,
            "ry": self._corner,
        }  # fmt: skip
        parts.append(railroad.DiagramItem("rect", box))
        parts.append(railroad.DiagramItem("text", {"x": x + self.width / 2, "y": y + 4}, self._text))
        parent: railroad.DiagramItem = self
        if self._href is not None:
            parent = railroad.DiagramItem("a", {"href": self._href})
            parent.addTo(self)
        for part in parts:
            part.addTo(parent)
        return self


def _terminal(text: str, written: str) -> railroad.DiagramItem:
    shown = written[1:-1].replace('\\"', '"')
    return _Box(
        clip(shown, SHOWN_CHARACTERS),
        "terminal",
        title="" if shown == text and len(text) <= SHOWN_CHARACTERS else written,
    )
