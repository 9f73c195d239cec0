"""Diagnostics of GBNF text: what llama.cpp refuses, and what it takes for something else than was meant.

`lint` is a pure function of a text, for the command line and for editors. Errors come from the parser, which
reads on after each; what is remarked on a grammar that llama.cpp takes is found here.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal as OneOf
from typing import NamedTuple

from lark import Token, Tree

from gbnf.errors import GrammarError
from gbnf.grammar.analysis import cheapest_costs, in_cycles, is_nullable, nullable, strong_components
from gbnf.grammar.code_points import EscapeError, class_members, parse_class
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import EPSILON, Alt, Expr, Literal, Ref, Repeat, Rules, Seq
from gbnf.grammar.parse import MISSPELT, GbnfReader, read_gbnf
from gbnf.grammar.stacks import MAX_STACKS, is_bounded

Severity = OneOf["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class LintRule:
    """One kind of diagnostic. `engine`: what llama.cpp does with a grammar that has an error of this kind."""

    code: str
    name: str
    severity: Severity
    summary: str
    engine: str = ""


def _rules() -> Iterator[LintRule]:
    refuses, misreads, hangs, endless = "refuses it", "reads something else", "hangs or crashes", "never ends"
    for code, name, engine, summary in (
        ("G001", "unexpected-text", refuses, "Text that is no part of a rule."),
        ("G002", "missing-definition-symbol", refuses, "`::=` is missing or misspelt, as in `:=`."),
        ("G003", "unclosed-literal", refuses, "A literal, class or repetition is never closed."),
        ("G004", "unbalanced-parenthesis", refuses, "A parenthesis is never closed, or never opened."),
        ("G005", "invalid-repetition", refuses, "A repetition is malformed, or has nothing to repeat."),
        ("G006", "invalid-name", refuses, "A rule name has an underscore or a character outside ASCII."),
        ("G007", "leading-pipe", refuses, "A line outside parentheses begins with `|`."),
        ("G008", "invalid-escape", refuses, "GBNF does not have this escape."),
        ("G009", "deep-nesting", hangs, "Groups or repetitions are nested too deep."),
        ("G010", "reversed-bounds", hangs, "A repetition ends before it begins, as in `{3,2}`."),
        ("G011", "too-many-repetitions", "refuses it or drops the bound", "More repetitions than 2,000."),
        ("G012", "empty-class", misreads, "A class is empty or can match no character."),
        ("G013", "reversed-range", misreads, "A range of a class is reversed, as in `[z-a]`."),
        ("G014", "unmatchable-character", misreads, "NUL or a surrogate, which no text contains."),
        ("G015", "invalid-token", refuses, "A token terminal is malformed, or its id too large."),
        ("G101", "missing-root", refuses, "There is no rule `root`."),
        ("G102", "undefined-rule", refuses, "A rule is used, but not defined."),
        ("G103", "duplicate-rule", misreads, "A rule is defined twice: the last definition counts."),
        ("G104", "left-recursion", "refuses it or hangs", "A rule can begin with itself."),
        ("G105", "empty-loop", refuses, "What an unbounded repetition repeats can be empty at once."),
        ("G106", "endless-rule", endless, "No text of a rule ends: it always refers to itself."),
        ("G107", "exploding-ambiguity", endless, "The derivations of a text multiply with its length."),
    ):
        yield LintRule(code, name, "error", summary, engine)
    for code, name, summary in (
        ("G201", "unused-rule", "Nothing refers to a rule."),
        ("G202", "unreachable-rule", "Only rules that are not used themselves refer to a rule."),
        ("G203", "empty-rule", "A rule matches the empty text only."),
        ("G204", "duplicate-alternative", "Two alternatives are the same."),
        ("G205", "overlapping-class", "Members of a class overlap."),
        ("G206", "nullable-loop", "What an unbounded repetition repeats can be empty."),
        ("G207", "empty-literal", '`""` beside other items has no effect.'),
        ("G208", "line-break-in-literal", "A line break inside a literal or class; often a missing quote."),
        ("G209", "split-character", "A class or escapes split a character into its parts or its bytes."),
        ("G210", "letters-with-symbols", "A range such as `A-z` has symbols among its letters."),
    ):
        yield LintRule(code, name, "warning", summary)
    for code, name, summary in (
        ("G301", "unbounded-end", "A text may go on without end: nothing forces the model to stop."),
        ("G302", "empty-text", "The grammar accepts the empty text."),
        ("G303", "negated-non-ascii", "A negated class with members outside ASCII refuses tokens of bytes."),
    ):
        yield LintRule(code, name, "note", summary)


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
    found = _Linter(read_gbnf(text, root)).run()
    return sorted(found, key=lambda each: (each.start, each.code))


def apply_fixes(text: str, root: str = "root") -> str:
    """Return the text with the fixes of its diagnostics applied, and of those that they lead to."""
    for _ in range(_MOST_PASSES):
        edits: list[Edit] = []
        for found in lint(text, root):
            if not any(
                each.start < edit.end and edit.start < each.end for each in edits for edit in found.fix
            ):
                edits += found.fix
        if not edits:
            break
        pieces, position = list[str](), 0
        for edit in sorted(edits):
            pieces += [text[position : edit.start], edit.text]
            position = edit.end
        text = "".join([*pieces, text[position:]])
    return text


_MOST_FOUND = 1000
_MOST_PASSES = 20
_MOST_SEARCHES = 20  # for the rule whose derivations multiply
_MODIFIERS = re.compile("[\u200d\ufe0f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]")
_BYTES = re.compile(r"(?:\\x[89a-fA-F][0-9a-fA-F])+")


def _fix_definition(reader: GbnfReader, start: int, _end: int) -> tuple[Edit, ...]:
    found = MISSPELT.match(reader.text, start)
    return (Edit(start, found.end(), "::="),) if found else ()


def _fix_name(reader: GbnfReader, start: int, _end: int) -> tuple[Edit, ...]:
    """Rename a rule everywhere: in camelCase, unless another one has that name."""
    names = [*reader.uses, *reader.definitions]
    name = next((str(name) for name in names if 0 <= start - (name.start_pos or 0) < len(name)), "")
    new = _camel_case(name)
    alike = [other for other in {*map(str, names)} if _camel_case(other) == new]
    if reader.broken or len(alike) != 1 or not new.isascii():
        return ()
    return tuple(Edit(at, at + len(name), new) for one in names if one == name for at in [one.start_pos or 0])


def _camel_case(name: str) -> str:
    return re.sub(r"_+(.?)", lambda found: found[1].upper(), name) or name


def _fix_pipe(reader: GbnfReader, start: int, _end: int) -> tuple[Edit, ...]:
    before = reader.text[:start].rstrip()
    if "#" in before.rpartition("\n")[2]:
        return ()
    return (Edit(len(before), start + 1, f" |{reader.text[len(before) : start]}"),)


def _fix_breaks(reader: GbnfReader, start: int, end: int) -> tuple[Edit, ...]:
    token = reader.text[start:end]
    new = token.replace("\r", "\\r").replace("\n", "\\n")
    return () if "::=" in token else (Edit(start, end, new),)


def _fix_class(reader: GbnfReader, start: int, end: int) -> tuple[Edit, ...]:
    read = parse_class(reader.text[start:end])
    new = emit_expr(read)
    return (Edit(start, end, new),) if parse_class(new) == read else ()


def _fix_empty_literal(_reader: GbnfReader, start: int, end: int) -> tuple[Edit, ...]:
    return (Edit(start, end, " "),)


_FIXES = {
    "G002": _fix_definition,
    "G006": _fix_name,
    "G007": _fix_pipe,
    "G205": _fix_class,
    "G207": _fix_empty_literal,
    "G208": _fix_breaks,
}


class _Linter:
    """Finds what is doubtful in a grammar that was read."""

    def __init__(self, reader: GbnfReader) -> None:
        self._reader, self._text = reader, reader.text
        self._found: list[Diagnostic] = []
        self._lines = [0, *(found.end() for found in re.finditer("\n", self._text))]
        rules = reader.rules
        undefined = {str(name): Literal("x") for name in reader.uses if name not in rules.productions}
        self._rules = Rules({**rules.productions, **undefined}, rules.root)
        self._nullable = nullable(self._rules)

    def run(self) -> list[Diagnostic]:
        """Return all diagnostics, in no order."""
        for error in self._reader.errors:
            self._add(error.code, error.start, error.end, error.problem, error.hint)
        for token in self._reader.terminals:
            self._check_terminal(token)
        for tree, items in self._reader.joined:
            if tree.data == "alternation":
                self._check_alternatives(tree, items)
            else:
                self._check_sequence(tree)
        self._check_loops()
        for name, expr in self._reader.rules.productions.items():
            if expr == EPSILON:
                self._add_rule(
                    "G203", name, f"the rule {name} matches the empty text only", "Remove its uses."
                )
        self._check_endless()
        if not self._reader.broken and self._rules.root in self._reader.rules.productions:
            self._check_reachable()
            self._check_root()
        if not self._reader.errors:
            self._check_stacks()
        return self._found

    def _add(
        self, code: str, start: int, end: int, message: str, hint: str, fix: tuple[Edit, ...] = ()
    ) -> None:
        end = max(start, min(end, len(self._text)))
        if code in _FIXES:
            fix = _FIXES[code](self._reader, start, end)
        line = bisect(self._lines, start)
        column = start - self._lines[line - 1] + 1
        if len(self._found) < _MOST_FOUND:
            self._found.append(Diagnostic(code, start, end, line, column, message, hint, fix))

    def _add_token(self, code: str, token: Token, message: str, hint: str) -> None:
        start = token.start_pos or 0
        self._add(code, start, start + len(token), message, hint)

    def _add_rule(self, code: str, name: str, message: str, hint: str) -> None:
        start = self._reader.positions[name]
        self._add(code, start, start + len(name), message, hint)

    def _check_terminal(self, token: Token) -> None:
        if "\n" in token or "\r" in token:
            kind = "class" if token.startswith("[") else "literal"
            self._add_token(
                "G208", token, f"a line break inside a {kind}", r"Write \n, or close it on its line."
            )
        for found in _BYTES.finditer(token):
            raw = bytes.fromhex(found[0].replace("\\x", ""))
            meant = raw.decode(errors="ignore")
            if len(raw) > 1 and meant:
                message = f"{found[0]} is {len(raw)} characters, {raw.decode('latin-1')!r}, and not {meant}"
                self._add_token("G209", token, message, f"Write {meant}: escapes are code points, not bytes.")
                break
        if token.startswith("["):
            self._check_class(token)

    def _check_class(self, token: Token) -> None:
        try:
            members, read = list(class_members(token)), parse_class(token)
        except EscapeError:
            return
        last, overlapping = -1, ""
        for start, end, low, high in sorted(members, key=lambda member: member[2:]):
            shown = token[start:end]
            overlapping = shown if low <= last and not overlapping else overlapping
            last = max(last, high)
            if "A" <= chr(low) <= "Z" and "a" <= chr(high) <= "z":
                message = f"the range {shown} also has the symbols between Z and a"
                self._add_token("G210", token, message, "Write A-Za-z.")
        if overlapping:
            self._add_token(
                "G205", token, f"{overlapping} overlaps another member of the class", "Remove it."
            )
        for before, char in pairwise(token[1:-1]):
            if before not in "^-" and (unicodedata.combining(char) or _MODIFIERS.match(char)):
                message = f"{before + char} is several characters, and a class matches one of them"
                self._add_token("G209", token, message, f'Write alternatives: ("{before + char}" | …).')
                break
        if read.negated and read.ranges and read.ranges[-1][1] > 0x7F:
            message = f"where a token ends inside a character, llama.cpp refuses more than {token} excludes"
            self._add_token("G303", token, message, "List the characters to match, without ^.")

    def _check_alternatives(self, tree: Tree[Token], items: list[Expr]) -> None:
        seen: dict[Expr, None] = {}
        for index, (branch, expr) in enumerate(zip(tree.children, items, strict=True)):
            if expr not in seen:
                seen[expr] = None
                continue
            previous = tree.children[index - 1]
            assert isinstance(branch, Tree)
            assert isinstance(previous, Tree)
            meta = tree.meta if branch.meta.empty else branch.meta
            fix: tuple[Edit, ...] = ()
            if not branch.meta.empty and not previous.meta.empty:
                gap = self._text[previous.meta.end_pos : branch.meta.start_pos]
                fix = () if "#" in gap else (Edit(previous.meta.end_pos, branch.meta.end_pos, ""),)
            message = "this alternative is the same as an earlier one"
            self._add("G204", meta.start_pos, meta.end_pos, message, "Remove it.", fix)

    def _check_sequence(self, tree: Tree[Token]) -> None:
        texts = [item.children for item in tree.children if isinstance(item, Tree)]
        if any(text != ['""'] for text in texts):
            for text in texts:
                if text == ['""'] and isinstance(text[0], Token):
                    self._add_token("G207", text[0], '"" has no effect here', "Remove it.")

    def _check_loops(self) -> None:
        refused = {error.start for error in self._reader.errors}
        for suffix, item, expr in self._reader.repetitions:
            is_loop = isinstance(expr, Repeat) and expr.maximum is None
            if is_loop and suffix.start_pos not in refused and is_nullable(item, self._nullable):
                message = f"what {suffix} repeats can be empty, so there are many ways to match the same text"
                self._add_token("G206", suffix, message, "Repeat something that has at least one character.")

    def _check_endless(self) -> None:
        costs = cheapest_costs(self._rules)
        endless = {name: uses for name, uses in self._rules.references.items() if name not in costs}
        cycles = list(in_cycles({n: [one for one in uses if one in endless] for n, uses in endless.items()}))
        for name in cycles or endless:
            hint = f"Give it an alternative without {name}, such as one item." if cycles else "Shorten it."
            self._add_rule("G106", name, f"no text of the rule {name} ever ends", hint)

    def _check_reachable(self) -> None:
        references = self._rules.references
        reached = {self._rules.root}
        pending = list(reached)
        while pending:
            new = set(references[pending.pop()]) - reached
            reached |= new
            pending += new
        used = {used for name, uses in references.items() for used in uses if used != name}
        for name in self._reader.rules.productions:
            if name not in used and name not in reached:
                self._add_rule("G201", name, f"nothing refers to the rule {name}", "Remove it, or use it.")
            elif name not in reached:
                message = f"only rules that are not used themselves refer to {name}"
                self._add_rule("G202", name, message, "Remove them all, or use one.")

    def _check_root(self) -> None:
        root = self._rules.root
        if root in self._nullable:
            self._add_rule(
                "G302", root, "the grammar accepts the empty text", "Use + where one item is required."
            )
        suffixes = {id(expr): suffix for suffix, _, expr in self._reader.repetitions}
        seen: set[str] = set()
        pending: list[Expr] = [Ref(root)]
        while pending:
            match pending.pop():
                case Ref(name) if name not in seen:
                    seen.add(name)
                    pending.append(self._rules.productions[name])
                case Alt(items):
                    pending += items
                case Seq(items):
                    for item in reversed(items):
                        pending.append(item)
                        if not is_nullable(item, self._nullable):
                            break
                case Repeat(item, _, maximum) as expr:
                    if maximum is not None:
                        pending.append(item)
                    elif id(expr) in suffixes:
                        message = "a text may end with any number of these: nothing forces the model to stop"
                        hint = "Put a terminator behind it, or bound it, as in {0,20}."
                        self._add_token("G301", suffixes.pop(id(expr)), message, hint)

    def _check_stacks(self) -> None:
        try:
            if is_bounded(self._rules):
                return
        except GrammarError:
            return
        recursive = set(in_cycles(self._rules.references))
        inner = (n for component in strong_components(self._rules.references) for n in component)
        tried = islice((name for name in inner if name in recursive), _MOST_SEARCHES)
        guilty = next((name for name in tried if not is_bounded(self._below(name))), self._rules.root)
        message = f"llama.cpp keeps more than {MAX_STACKS:,} derivations of how some texts of {guilty} begin"
        hint = "Let alternatives begin differently, and give no text two derivations, not even the empty one."
        self._add_rule("G107", guilty, message, hint)

    def _below(self, name: str) -> Rules:
        reached = {name: None}
        for one in (pending := [name]):
            pending += [used for used in self._rules.references[one] if used not in reached]
            reached.update(dict.fromkeys(pending))
        return Rules({one: self._rules.productions[one] for one in reached}, name)
