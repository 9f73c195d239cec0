"""The language server of `gbnf lsp`, for GBNF files and `manifest.toml`."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate, pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument
from pygls.workspace.position_codec import ServerTextPosition

from gbnf import GrammarSyntaxError, ManifestError
from gbnf.grammar.format import format_grammar
from gbnf.grammar.lint import lint
from gbnf.grammar.parse import read_gbnf
from gbnf.schema.keywords import KEYWORDS
from gbnf.tools.manifest_checks import OfferPolicy, RunPolicy
from gbnf.tools.sources import FILE_NAME, parse_manifest
from gbnf_server.cli.manifests import findings_of

server = LanguageServer("gbnf", "1", text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
_LEVELS = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}
_KEY = re.compile(
    r"^[ \t]*(?:\[\[?(?P<table>[^\n]+?)\]\]?[ \t]*(?:#.*)?$|(?P<key>[^\s=#\[][^=\n]*)=)", re.MULTILINE
)
_POLICIES = {"offer": OfferPolicy, "run": RunPolicy}


class _Opened:
    """An open document. The protocol separates its lines; Python would do so at further characters."""

    def __init__(self, ls: LanguageServer, uri: str) -> None:
        self.document: TextDocument = ls.workspace.get_text_document(uri)
        self.text = self.document.source
        self.is_manifest = self.document.filename == FILE_NAME
        self._lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", self.text)
        self._starts = list(accumulate(map(len, self._lines[:-1]), initial=0))

    def offset(self, position: lsp.Position) -> int:
        converted = self.document.position_codec.position_from_client_units(self._lines, position)
        return self._starts[converted.line] + converted.character

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self._position(start), self._position(end))

    def line(self, number: int) -> tuple[int, int]:
        """Return where the line of a number, from 1, begins and ends."""
        index = min(number, len(self._lines)) - 1
        return self._starts[index], self._starts[index] + len(self._lines[index].rstrip("\r\n"))

    def _position(self, offset: int) -> lsp.Position:
        line = bisect(self._starts, offset) - 1
        place = ServerTextPosition(line, offset - self._starts[line])
        return self.document.position_codec.position_to_client_units(self._lines, place)

    def rule_at(self, position: lsp.Position) -> tuple[str, int, int] | None:
        """Return name, start and end of the rule whose name is at a position."""
        reader, offset = read_gbnf(self.text), self.offset(position)
        names = (*reader.definitions, *reader.uses)
        name = next((str(rule) for rule in names if 0 <= offset - (rule.start_pos or 0) <= len(rule)), "")
        starts = [*(rule.start_pos or 0 for rule in reader.definitions), len(self.text)]
        rules = zip(reader.definitions, pairwise(starts), strict=True)
        return next(((name, *place) for rule, place in rules if rule == name), None)


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
@server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def _changed(ls: LanguageServer, params: Any) -> None:
    opened = _Opened(ls, params.text_document.uri)
    shown = [
        lsp.Diagnostic(opened.range(start, end), message, _LEVELS[level], code, source="gbnf")
        for start, end, level, code, message in (_manifest_remarks if opened.is_manifest else _remarks)(
            opened
        )
    ]
    ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, shown))


@server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
def _closed(ls: LanguageServer, params: lsp.DidCloseTextDocumentParams) -> None:
    ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, []))


@server.feature(lsp.TEXT_DOCUMENT_HOVER)
def _hover(ls: LanguageServer, params: lsp.HoverParams) -> lsp.Hover | None:
    opened = _Opened(ls, params.text_document.uri)
    if opened.is_manifest:
        told = _about_key(opened, opened.offset(params.position))
    elif rule := opened.rule_at(params.position):
        told = f"```gbnf\n{opened.text[rule[1] : rule[2]].strip()}\n```"
    else:
        told = ""
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, told)) if told else None


@server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
def _definition(ls: LanguageServer, params: lsp.DefinitionParams) -> lsp.Location | None:
    opened = _Opened(ls, params.text_document.uri)
    rule = None if opened.is_manifest else opened.rule_at(params.position)
    if rule is None:
        return None
    name, start, _ = rule
    return lsp.Location(params.text_document.uri, opened.range(start, start + len(name)))


@server.feature(lsp.TEXT_DOCUMENT_COMPLETION)
def _completion(ls: LanguageServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    opened = _Opened(ls, params.text_document.uri)
    names = () if opened.is_manifest else map(str, read_gbnf(opened.text).definitions)
    return [lsp.CompletionItem(name, kind=lsp.CompletionItemKind.Function) for name in dict.fromkeys(names)]


@server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
def _formatting(ls: LanguageServer, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    opened = _Opened(ls, params.text_document.uri)
    try:
        new = opened.text if opened.is_manifest else format_grammar(opened.text)
    except GrammarSyntaxError:
        new = opened.text
    return [lsp.TextEdit(opened.range(0, len(opened.text)), new)] if new != opened.text else []


@server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
def _quick_fixes(ls: LanguageServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    uri = params.text_document.uri
    opened = _Opened(ls, uri)
    start, end = opened.offset(params.range.start), opened.offset(params.range.end)
    fixable = () if opened.is_manifest else (remark for remark in lint(opened.text) if remark.fix)
    return [
        lsp.CodeAction(
            f"{remark.code}: {remark.hint or remark.message}",
            lsp.CodeActionKind.QuickFix,
            edit=lsp.WorkspaceEdit(
                {uri: [lsp.TextEdit(opened.range(edit.start, edit.end), edit.text) for edit in remark.fix]}
            ),
        )
        for remark in fixable
        if remark.start <= end and start <= remark.end
    ]


_Remark = tuple[int, int, str, str, str]
"""Where it begins and ends, its level, code and message."""


def _remarks(opened: _Opened) -> Iterator[_Remark]:
    for remark in lint(opened.text):
        text = f"{remark.message}. {remark.hint}".strip()
        yield remark.start, remark.end, remark.severity, remark.code, text


def _manifest_remarks(opened: _Opened) -> Iterator[_Remark]:
    try:
        tool = parse_manifest(opened.text, Path(opened.document.path))
    except ManifestError as error:
        line = re.search(r"at line (\d+)", error.problem)
        place = opened.line(int(line[1])) if line else _place(opened, re.split(r"[.\[]", error.key))
        yield *place, "error", "manifest", f"{error.problem}. {error.hint}"
        return
    for finding in findings_of(tool):
        path = [*finding.pointer.split("/")[1:], finding.keyword]
        place = _place(opened, path if path[0] in _POLICIES else ["args", *path], path)
        severity = "warning" if finding.is_mistake else "note"
        yield *place, severity, finding.kind, f"{finding.keyword}: {finding.reason}"


def _entries(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield where the headers of tables and the keys are, each with its path in the manifest."""
    table: list[str] = []
    for match in _KEY.finditer(text):
        kind, path = str(match.lastgroup), list[str]()
        try:
            inner: Any = tomllib.loads(f"{match[kind]}=0")
        except tomllib.TOMLDecodeError:  # a line of a text
            continue
        while isinstance(inner, dict):
            ((key, inner),) = inner.items()
            path.append(key)
        table = path if kind == "table" else table
        yield match.start(kind), match.end(kind), path if kind == "table" else [*table, *path]


def _place(opened: _Opened, *paths: list[str]) -> tuple[int, int]:
    """Return where one of these paths is, or what comes closest to them; the first line if nothing does."""

    def closeness(entry: tuple[int, int, list[str]]) -> tuple[bool, int]:
        shared = max(len(commonprefix([entry[2], path])) for path in paths)  # noqa: RUF071  # no file paths
        return entry[2] in paths, shared

    best = max(_entries(opened.text), key=closeness, default=None)
    return opened.line(1) if best is None or not closeness(best)[1] else best[:2]


def _about_key(opened: _Opened, offset: int) -> str:
    """Return what a key of `[offer]` and `[run]` means, or whether the grammar enforces a keyword."""
    for start, end, path in _entries(opened.text):
        if not start <= offset <= end:
            continue
        if path[0] in _POLICIES:
            texts = re.findall(r"`(\w+)`: ((?:.+\n)+?)(?= *(?:`|\n|$))", _POLICIES[path[0]].__doc__ or "")
            return " ".join(dict(texts).get(path[-1], "").split())
        if path[0] == "args" and path[-1] in KEYWORDS and path[-2] != "properties":
            remarks = [message for position, *_, message in _manifest_remarks(opened) if position == start]
            return "\n\n".join(remarks) or f"`{path[-1]}`: the grammar enforces it."
    return ""
