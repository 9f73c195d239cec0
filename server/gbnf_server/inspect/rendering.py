"""The views as HTML. Everything that comes from a schema, a tool or a person is escaped by the templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from gbnf_server.inspect.diagrams import RuleDiagram, diagram
from gbnf_server.inspect.grammar_view import GrammarView, RuleView
from gbnf_server.inspect.pages import rendering as pages
from gbnf_server.inspect.pages.rendering import GbnfToken, tokens
from gbnf_server.inspect.schema_lines import SchemaLine

_SHOWN_CHARACTERS = 1500
"""Of a rule or a value, before the rest is folded."""
_MOST_DIAGRAMS = 400
_MOST_LISTED = 300_000
"""Characters of rules, beyond which each is cut."""
_CUT_CHARACTERS = 120
_MOST_LEVELS = 12
_MOST_ORIGINS = 4
_OF_A_LINE = ("key", "pointer", "kind", "state", "has_effect", "findings")
_WORDS = {
    "unenforced": "not enforced:",
    "free_form": "left free:",
    "inexpressible": "cannot be written:",
    "disputed": "judged differently elsewhere:",
    "loosened": "removed, since it is malformed:",
    "left_out": "the tool is left out:",
    "unknown_key": "unknown:",
    "undeclared": "undeclared:",
    "not_executable": "not executable:",
    "unreachable": "unreachable:",
}


@dataclass(frozen=True, slots=True)
class Tab:
    """A view of the page: a key for the browser, a label and the HTML of its panel."""

    key: str
    label: str
    html: Markup


def render_template(template: str, **values: Any) -> Markup:
    """Return a template of the page with values."""
    return pages.render_template(template, "gbnf_server.inspect", **values)


@cache
def _assets(kind: str) -> str:
    """Return the page's scripts ("js") or style sheets ("css"), as one."""
    shared = ("base", "timeline") if kind == "css" else ("grammar_lines",)
    names = [(pages.PAGES, name) for name in shared]
    names += [("gbnf_server.inspect", name) for name in ("page", "steps")]
    return pages.read_assets(*((package, f"{name}.{kind}") for package, name in names))


@cache
def content_security_policy(*, live: bool) -> str:
    """Return the policy of the page: nothing from elsewhere, its own script and style sheet only."""
    more = ("connect-src 'self'", "frame-ancestors 'none'") if live else ()
    return pages.content_security_policy(css=_assets("css"), js=_assets("js"), more=more)


def render_page(
    title: str,
    tabs: Sequence[Tab],
    *,
    token: str = "",
    templates: Sequence[Markup] = (),
    shared: Markup | None = None,
) -> str:
    """Return the whole page; live with a token.

    `templates`: the grammars that a file can open, `shared`: the rules that they have in common.
    """
    return str(
        render_template(
            "page.html.j2",
            title=title,
            tabs=tabs,
            token=token,
            templates=templates,
            shared=shared,
            policy=content_security_policy(live=False),
            css=_assets("css"),
            js=_assets("js"),
        )
    )


def render_shared_rules(views: Iterable[GrammarView]) -> Markup:
    """Return the rules that grammars share, each once, for a page of grammars with `common` ones."""
    rules = {rule.name: rule for view in views for rule in view.rules if rule.is_shared}
    rows = [_rule(rule, {}, rules.keys(), draw=True) for rule in rules.values()]
    return render_template("grammar.html.j2", only="shared", shared=rows)


def render_diagram(view: GrammarView, rule: RuleView) -> Markup:
    """Return the diagram of one rule of a grammar."""
    row = _rule(rule, _numbers(view), frozenset(rule.name for rule in view.rules), draw=True)
    return render_template("grammar.html.j2", only="diagram", drawn=[row])


def render_grammar(view: GrammarView, *, common: bool = False, live: bool = False) -> Markup:
    """Return what is shown of one grammar.

    With `common`, the page has the shared rules, for all grammars. With `live`, the page asks for diagrams
    that are left out (`render_diagram`).
    """
    numbers = _numbers(view)
    own = [rule for rule in view.rules if not rule.is_shared]
    shared = [rule for rule in view.rules if rule.is_shared]
    names = frozenset(rule.name for rule in view.rules)
    lengths = accumulate(len(rule.text) for rule in own)
    rows = [
        _rule(rule, numbers, names, draw=number < _MOST_DIAGRAMS, full=length < _MOST_LISTED)
        for number, (rule, length) in enumerate(zip(own, lengths, strict=True))
    ]
    states = Counter(line.state for line in view.lines if line.state and line.key)
    return render_template(
        "grammar.html.j2",
        only="",
        common=common,
        live=live,
        view=view,
        rules=rows,
        drawn=[row for row in rows if row["diagram"] is not None],
        undrawn=max(len(rows) - _MOST_DIAGRAMS, 0),
        shared=[_rule(rule, numbers, names, draw=not common) for rule in shared],
        lines=[_line(line, numbers, view.main_rules) for line in view.lines],
        counts={state: states[state] for state in ("enforced", "reported", "free")},
        words=_WORDS,
    )


def _numbers(view: GrammarView) -> dict[str, int]:
    """Return the numbers by which the elements of the page refer to the parts of the schema."""
    return {pointer: number for number, pointer in enumerate(view.main_rules)}


def _rule(
    rule: RuleView, numbers: Mapping[str, int], names: AbstractSet[str], *, draw: bool, full: bool = True
) -> dict[str, Any]:
    head: list[tuple[GbnfToken, str]] = []
    rest: list[tuple[GbnfToken, str]] = []
    shown = 0
    text = rule.text if full else rule.text[:_CUT_CHARACTERS]
    plain = [GbnfToken("rule", rule.name), GbnfToken("space", text[len(rule.name) :])]
    for index, token in enumerate(tokens(text) if full else plain):
        shown += len(token.text)
        marks = " ".join(str(numbers[pointer]) for pointer in rule.marks.get(index, ()) if pointer in numbers)
        (head if not head or shown <= _SHOWN_CHARACTERS else rest).append((token, marks))
    drawing: RuleDiagram | None = None
    if draw:
        drawing = diagram(rule.name, rule.production, lambda name: f"#d-{name}" if name in names else None)
    where = rule.origins
    more = len(where) - _MOST_ORIGINS
    return {
        "name": rule.name,
        "origins": [numbers[pointer] for pointer in rule.origins],
        "is_recursive": rule.is_recursive,
        "where": ", ".join([*where[:_MOST_ORIGINS], *([f"{more} more"] if more > 0 else [])]),
        "head": head,
        "cut": len(rule.text) - len(text),
        "rest": rest,
        "rest_length": sum(len(token.text) for token, _ in rest),
        "diagram": drawing,
    }


def _line(line: SchemaLine, numbers: Mapping[str, int], rules: Mapping[str, str]) -> dict[str, Any]:
    is_source = line.kind in ("keyword", "name", "branch") and line.origin is not None
    return {
        **{name: getattr(line, name) for name in _OF_A_LINE},
        "level": min(line.indent // 2, _MOST_LEVELS),
        "text": line.text[:_SHOWN_CHARACTERS],
        "rest": line.text[_SHOWN_CHARACTERS:],
        "origin": numbers.get(line.origin or "") if is_source else None,
        "href": f"#d-{rules[line.origin or '']}" if is_source and (line.origin or "") in rules else "",
    }
