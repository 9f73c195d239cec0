"""Diagnostics of GBNF text: what llama.cpp refuses, and what it takes for something else than was meant.

`lint` is a pure function of a text, for the command line and for editors. Errors come from the parser, which
reads on after each; what is remarked on a grammar that llama.cpp takes is found here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal as OneOf
from typing import NamedTuple

from lark import Token, Tree

from gbnf.errors import line_and_column
from gbnf.grammar.analysis import cheapest_costs, in_cycles, is_nullable, nullable, strong_components
from gbnf.grammar.code_points import EscapeError, class_members, parse_class
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import EPSILON, Alt, Expr, Literal, Ref, Repeat, Rules, Seq
from gbnf.grammar.parse import MISSPELT, GbnfReader, read_gbnf
from gbnf.grammar.stacks import is_bounded

Severity = OneOf["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class LintRule:
    """One kind of diagnostic. `engine`: what llama.cpp does with a grammar that has an error of this kind."""

    code: str
    name: str
    severity: Severity
    summary: str
    hint: str = ""
    engine: str = ""


def _rules() -> Iterator[LintRule]:
    refuses, misreads, hangs, endless = "refuses it", "reads something else", "hangs or crashes", "never ends"
    for code, name, engine, summary in (
        ("G001", "unexpected-text", refuses, "text that is no part of a rule"),
        ("G002", "missing-definition-symbol", refuses, "`::=` is missing or misspelt, as in `:=`"),
        ("G003", "unclosed-literal", refuses, "a literal, class or repetition is never closed"),
        ("G004", "unbalanced-parenthesis", refuses, "a parenthesis is never closed, or never opened"),
        ("G005", "invalid-repetition", refuses, "a repetition is malformed, or has nothing to repeat"),
        ("G006", "invalid-name", refuses, "a rule name has an underscore or a character outside ASCII"),
        ("G007", "leading-pipe", refuses, "a line outside parentheses begins with a pipe"),
        ("G008", "invalid-escape", refuses, "GBNF does not have this escape"),
        ("G009", "deep-nesting", hangs, "groups or repetitions are nested too deep"),
        ("G010", "reversed-bounds", hangs, "a repetition ends before it begins, as in `{3,2}`"),
        ("G011", "too-many-repetitions", "refuses it or drops the bound", "more repetitions than 2,000"),
        ("G012", "empty-class", misreads, "a class is empty or can match no character"),
        ("G013", "reversed-range", misreads, "a range of a class is reversed, as in `[z-a]`"),
        ("G014", "unmatchable-character", misreads, "NUL or a surrogate, which no text contains"),
        (
            "G015",
            "invalid-token",
            f"{refuses}; up to b11063, reads another id",
            "a token terminal is malformed, or its id too large",
        ),
        ("G101", "missing-root", refuses, "there is no rule `root`"),
        ("G102", "undefined-rule", refuses, "a rule is used, but not defined"),
        ("G103", "duplicate-rule", misreads, "a rule is defined twice: the last definition counts"),
        ("G104", "left-recursion", "refuses it or hangs", "a rule can begin with itself"),
        ("G105", "empty-loop", refuses, "what an unbounded repetition repeats can be empty at once"),
    ):
        yield LintRule(code, name, "error", summary, engine=engine)
    item, begin = "Repeat an item with at least one character.", "Let alternatives begin differently."
    end, listing = "Add an end: an alternative without itself.", "List what to match."
    for code, name, summary, hint in (
        ("G106", "endless-rule", "no text of this rule ends within a million bytes", end),
        ("G107", "exploding-ambiguity", "the derivations of some texts of this rule multiply", begin),
        ("G201", "unused-rule", "nothing refers to this rule", "Remove it, or use it."),
        ("G202", "unreachable-rule", "only unused rules refer to this rule", "Remove them all, or use one."),
        ("G203", "empty-rule", "this rule matches the empty text only", "Remove its uses."),
        ("G204", "duplicate-alternative", "this is the same as an earlier alternative", "Remove it."),
        ("G205", "overlapping-class", "members of this class overlap", "Write each character once."),
        ("G206", "nullable-loop", "what is repeated without bound can be empty", item),
        ("G207", "empty-literal", '`""` beside other items has no effect', "Remove it."),
        ("G208", "line-break", "a line break inside quotes or brackets", r"Write \n, or close them."),
        ("G209", "split-character", "a character is split into its parts or bytes", ""),
        ("G210", "letters-with-symbols", "this range of letters has symbols, too", "Write A-Za-z."),
        ("G211", "adjacent-loops", "the item before this one repeats the same without bound", "Keep one."),
        ("G301", "unbounded-end", "nothing forces the model to stop here", "Bound it, or add a terminator."),
        ("G302", "empty-text", "the grammar accepts the empty text", "Use + where one item is required."),
        ("G303", "negated-non-ascii", "tokens that end inside a character are refused", listing),
    ):
        severity: Severity = "error" if code < "G2" else "warning" if code < "G3" else "note"
        yield LintRule(code, name, severity, summary, hint, endless if code < "G2" else "")


LINT_RULES = {rule.code: rule for rule in _rules()}
"""All rules by code. A code never changes its meaning."""


class Edit(NamedTuple):
    """Replace the text from `start` to `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A remark on the text from `start` to `end`. `line` and `column` count from 1; `hint` may be empty.

    `fix`: the edits that remove the cause, and leave the texts of the grammar the same, if it had any.
    """

    code: str
    start: int
    end: int
    line: int
    column: int
    message: str
    hint: str = ""
    fix: tuple[Edit, ...] = ()

    @property
    def rule(self) -> LintRule:
        """The kind of diagnostic."""
        return LINT_RULES[self.code]

    @property
    def severity(self) -> Severity:
        """The severity of the rule."""
        return self.rule.severity


def lint(text: str, root: str = "root") -> list[Diagnostic]:
    """Return what is wrong or doubtful in a grammar, in the order of the text.

    Without an error, llama.cpp accepts the grammar. After a syntax error, what is said of the other rules may
    be incomplete.
    """
    diagnostics = _Linter(read_gbnf(text, root)).run()
    return sorted(diagnostics, key=lambda diagnostic: (diagnostic.start, diagnostic.code))


def apply_fixes(text: str, root: str = "root") -> str:
    """Return the text with the fixes of its diagnostics applied, and of those that they lead to."""
    for _ in range(_MOST_PASSES):
        edits: list[Edit] = []
        for fix in [diagnostic.fix for diagnostic in lint(text, root)]:
            if not any(old.start < new.end and new.start < old.end for old in edits for new in fix):
                edits += fix
        if not edits:
            break
        pieces, position = list[str](), 0
        for edit in sorted(edits):
            pieces += [text[position : edit.start], edit.text]
            position = edit.end
        text = "".join([*pieces, text[position:]])
    return text


_MOST_DIAGNOSTICS = 1000
_MOST_PASSES = 20
_MOST_SEARCHES = 20  # for the rule whose derivations multiply
_MODIFIERS = re.compile("[\u200d\ufe0f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]")
_BYTES = re.compile(r"(?:\\x[89a-fA-F][0-9a-fA-F])+")


class _Linter:
    """Finds what is doubtful in a grammar that was read."""

    def __init__(self, reader: GbnfReader) -> None:
        self._reader, self._text = reader, reader.text
        self._diagnostics: list[Diagnostic] = []
        defined = reader.rules.productions
        undefined = {str(name): Literal("x") for name in reader.uses if name not in defined}
        self._rules = Rules({**defined, **undefined}, reader.rules.root)
        self._names = {str(name): name for name in reader.definitions}
        self._nullable = nullable(self._rules)

    def run(self) -> list[Diagnostic]:
        """Return all diagnostics, in no order."""
        for error in self._reader.errors:
            self._add(error.code, *error.span, error.problem, error.hint)
        for token in self._reader.terminals:
            self._check_terminal(token)
        for tree, items in self._reader.joined:
            if tree.data == "alternation":
                self._check_alternatives(tree, items)
            else:
                self._check_sequence(_trees(tree), items)
        refused = {error.span[0] for error in self._reader.errors}
        for suffix, repeated, expr in self._reader.repetitions:
            is_loop = isinstance(expr, Repeat) and expr.maximum is None
            if is_loop and suffix.start_pos not in refused and is_nullable(repeated, self._nullable):
                self._mark("G206", suffix)
        self._check_rules()
        if not self._reader.errors and not is_bounded(self._rules):
            self._mark("G107", self._names[self._ambiguous()])
        return self._diagnostics

    def _add(
        self, code: str, start: int, end: int, message: str = "", hint: str = "", fix: tuple[Edit, ...] = ()
    ) -> None:
        """Add a diagnostic, by default with the message and the hint of its rule."""
        rule, end = LINT_RULES[code], max(start, min(end, len(self._text)))
        fix = fix or self._fix(code, start, end)
        if len(self._diagnostics) < _MOST_DIAGNOSTICS:
            place = line_and_column(self._text, start)
            diagnostic = Diagnostic(code, start, end, *place, message or rule.summary, hint or rule.hint, fix)
            self._diagnostics.append(diagnostic)

    def _mark(self, code: str, token: Token, hint: str = "") -> None:
        start = token.start_pos or 0
        self._add(code, start, start + len(token), hint=hint)

    def _fix(self, code: str, start: int, end: int) -> tuple[Edit, ...]:
        """Return the edits that correct what a code marks; () if there is no single correction."""
        shown, before = self._text[start:end], self._text[:start].rstrip()
        match code:
            case "G002" if MISSPELT.fullmatch(shown):
                return (Edit(start, end, "::="),)
            case "G006":
                return self._renaming(start)
            case "G007" if before and before[-1] not in "|=(" and "#" not in before.rpartition("\n")[2]:
                return (Edit(len(before), end, f" |{self._text[len(before) : start]}"),)
            case "G205" if parse_class(new := emit_expr(read := parse_class(shown))) == read:
                return (Edit(start, end, new),)
            case "G207":
                return (Edit(start, end, " "),)
            case "G208" if "::=" not in shown:
                return (Edit(start, end, shown.replace("\r", "\\r").replace("\n", "\\n")),)
        return ()

    def _renaming(self, position: int) -> tuple[Edit, ...]:
        """Return how to rename a rule everywhere: in camelCase, unless another one has that name."""
        names = [*self._reader.uses, *self._reader.definitions]
        old = next((str(name) for name in names if 0 <= position - (name.start_pos or 0) < len(name)), "")
        new = _camel_case(old)
        alike = [other for other in {*map(str, names)} if _camel_case(other) == new]
        if self._reader.broken or len(alike) != 1 or not new.isascii():
            return ()
        places = [name.start_pos or 0 for name in names if name == old]
        return tuple(Edit(place, place + len(old), new) for place in places)

    def _check_terminal(self, token: Token) -> None:
        if "\n" in token or "\r" in token:
            self._mark("G208", token)
        for escapes in _BYTES.finditer(token):
            raw = bytes.fromhex(escapes[0].replace("\\x", ""))
            if len(raw) > 1 and (meant := raw.decode(errors="ignore")):
                self._mark("G209", token, f"Write {meant}: escapes are code points, not bytes.")
                break
        if not token.startswith("["):
            return
        try:
            members, read = list(class_members(token)), parse_class(token)
        except EscapeError:
            return
        if any("A" <= chr(low) <= "Z" and "a" <= chr(high) <= "z" for _, _, low, high in members):
            self._mark("G210", token)
        ranges = sorted(member[2:] for member in members)
        if any(high >= low for (_, high), (low, _) in pairwise(ranges)):
            self._mark("G205", token)
        for before, char in pairwise(token[1:-1]):
            if before not in "^-" and (unicodedata.combining(char) or _MODIFIERS.match(char)):
                self._mark("G209", token, f'Write alternatives: ("{before + char}" | …).')
                break
        if read.negated and read.ranges and read.ranges[-1][1] > 0x7F:
            self._mark("G303", token)

    def _check_sequence(self, trees: list[Tree[Token]], items: list[Expr]) -> None:
        if any(item.children != ['""'] for item in trees):
            for item in trees:
                if item.children == ['""']:
                    self._add("G207", item.meta.start_pos, item.meta.end_pos)
        for (before, first), (item, second) in pairwise(zip(trees, map(self._loop, items), strict=True)):
            if first and second and first.item == second.item:
                end, meta = before.meta.end_pos, item.meta
                is_removable = not second.minimum and "#" not in self._text[end : meta.start_pos]
                fix = (Edit(end, meta.end_pos, ""),) if is_removable else ()
                self._add("G211", meta.start_pos, meta.end_pos, fix=fix)

    def _loop(self, expr: Expr) -> Repeat | None:
        """Return the unbounded repetition that an item is, by itself or as a rule: `ws` of `ws ::= [ ]*`."""
        seen: set[str] = set()
        while isinstance(expr, Ref) and expr.name not in seen:
            seen.add(expr.name)
            expr = self._rules.productions[expr.name]
        return expr if isinstance(expr, Repeat) and expr.maximum is None else None

    def _check_alternatives(self, tree: Tree[Token], items: list[Expr]) -> None:
        seen: set[Expr] = set()
        end = None
        for branch, expr in zip(_trees(tree), items, strict=True):
            meta = tree.meta if branch.meta.empty else branch.meta
            if expr in seen:
                is_removable = end and meta is branch.meta and "#" not in self._text[end : meta.start_pos]
                fix = (Edit(end, meta.end_pos, ""),) if end and is_removable else ()
                self._add("G204", meta.start_pos, meta.end_pos, fix=fix)
            seen.add(expr)
            end = None if branch.meta.empty else meta.end_pos

    def _check_rules(self) -> None:
        costs, references, root = cheapest_costs(self._rules), self._rules.references, self._rules.root
        endless = {name: uses for name, uses in references.items() if name not in costs}
        cycles = list(in_cycles({n: [use for use in uses if use in endless] for n, uses in endless.items()}))
        empty = [name for name, expr in self._rules.productions.items() if expr == EPSILON]
        for code, names in (("G106", cycles or endless), ("G203", empty)):
            for name in names:
                self._mark(code, self._names[name])
        if self._reader.broken or root not in self._names:
            return
        reached = self._rules.reached(root)
        used = {used for name, uses in references.items() for used in uses if used != name}
        for name, token in self._names.items():
            if name not in reached:
                self._mark("G202" if name in used else "G201", token)
        if root in self._nullable:
            self._mark("G302", self._names[root])
        self._check_end()

    def _check_end(self) -> None:
        """Mark the loops that a text may end with: repetitions, and rules that may end with themselves."""
        suffixes = {id(expr): suffix for suffix, _, expr in self._reader.repetitions}
        ends: dict[str, set[tuple[str, bool]]] = {}  # what may end a rule, and whether it may be left out
        names = [self._rules.root]
        seen = {*names}
        for name in names:
            ends[name] = set()
            pending = [(self._rules.productions[name], False)]
            while pending:
                expr, is_optional = pending.pop()
                is_optional = is_optional or is_nullable(expr, self._nullable)
                match expr:
                    case Ref(end):
                        ends[name].add((end, is_optional))
                    case Alt(items):
                        begins = {_parts(item) for item in items}
                        lengths = {len(begin) for begin in begins}
                        pending += [(item, is_optional or _extends(item, begins, lengths)) for item in items]
                    case Seq(items):
                        for item in reversed(items):
                            pending.append((item, is_optional))
                            if not is_nullable(item, self._nullable):
                                break
                    case Repeat(item, minimum, maximum):
                        if maximum is not None:
                            pending.append((item, is_optional or minimum < maximum))
                        elif id(expr) in suffixes:
                            self._mark("G301", suffixes.pop(id(expr)))
            new = {end for end, _ in ends[name]} - seen
            names += sorted(new)
            seen |= new
        for component in strong_components({name: [end for end, _ in ends[name]] for name in names}):
            for name in component:
                if any(is_optional and end in component for end, is_optional in ends[name]):
                    self._mark("G301", self._names[name])

    def _ambiguous(self) -> str:
        """Return the innermost rule, of those that are searched, whose derivations multiply."""
        recursive = set(in_cycles(self._rules.references))
        inner = (n for component in strong_components(self._rules.references) for n in component)
        for name in islice((name for name in inner if name in recursive), _MOST_SEARCHES):
            below = self._rules.only(self._rules.reached(name))
            if not is_bounded(Rules(below.productions, name)):
                return name
        return self._rules.root


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in tree.children if isinstance(child, Tree)]


def _extends(item: Expr, begins: Container[tuple[Expr, ...]], lengths: Iterable[int]) -> bool:
    """Return whether an alternative begins with another one as a whole."""
    parts = _parts(item)
    return any(length < len(parts) and parts[:length] in begins for length in lengths)


def _parts(expr: Expr) -> tuple[Expr, ...]:
    return expr.items if isinstance(expr, Seq) else (expr,)


def _camel_case(name: str) -> str:
    return re.sub(r"_+(.?)", lambda match: match[1].upper(), name) or name
