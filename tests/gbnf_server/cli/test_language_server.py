"""`gbnf lsp` over stdio, with the client of pygls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

pytestmark = pytest.mark.slow

GRAMMAR = '# 𝄞\nroot ::= "𝄞" item+ # 𝄞\nitem ::= [a-z]\n  # \u2028two\nlast::="x" | itm\n'
MANIFEST = """\
name = "roll"
description.en = '''
required = ["text"]'''

[args]
type = "object"
required = ["text"]

[args.properties.text]
type = "string"
pattern = '(a)\\1'
maxLength = 5

[run]
timeout_s = 3
timeout = 4
"""


class Editor:
    """An editor, with the diagnostics that it was sent last."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.client, self.folder, self.published = client, folder, asyncio.Queue[Any]()

        def published(params: lsp.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

        client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(published)

    def named(self, name: str) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier((self.folder / name).as_uri())

    async def open(self, name: str, text: str) -> list[lsp.Diagnostic]:
        item = lsp.TextDocumentItem(self.named(name).uri, "gbnf", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return list((await asyncio.wait_for(self.published.get(), 60)).diagnostics)

    async def change(self, name: str, text: str) -> list[lsp.Diagnostic]:
        document = lsp.VersionedTextDocumentIdentifier(2, self.named(name).uri)
        changes = [lsp.TextDocumentContentChangeWholeDocument(text)]
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, changes))
        return list((await asyncio.wait_for(self.published.get(), 60)).diagnostics)

    async def hover(self, name: str, line: int, character: int) -> str:
        position = lsp.Position(line, character)
        found = await self.client.text_document_hover_async(lsp.HoverParams(self.named(name), position))
        return "" if found is None else str(found.contents.value)


def edited(folder: Path, use: Callable[[Editor], Awaitable[None]]) -> None:
    """Use an editor whose server is a process of its own, which must end by itself."""

    async def run() -> None:
        client: Any = LanguageClient("test", "1")
        editor = Editor(client, folder)
        await client.start_io(sys.executable, "-m", "gbnf_server", "lsp")
        server: Any = client._server
        try:
            async with asyncio.timeout(90):
                begun = await client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities()))
                assert begun.capabilities.hover_provider
                assert begun.capabilities.document_formatting_provider
                client.initialized(lsp.InitializedParams())
                await use(editor)
                await client.shutdown_async(None)
                client.exit(None)
                assert await server.wait() == 0
        finally:
            if server.returncode is None:
                server.kill()
            await client.stop()

    asyncio.run(run())


def test_a_grammar(tmp_path: Path) -> None:
    """Columns are in UTF-16, as the protocol has them if nothing else is agreed; so are its lines."""

    async def use(editor: Editor) -> None:
        errors = {each.code: each for each in await editor.open("a.gbnf", GRAMMAR)}
        assert errors["G102"].range == lsp.Range(lsp.Position(4, 13), lsp.Position(4, 16))
        assert errors["G102"].severity == lsp.DiagnosticSeverity.Error
        assert "Did you mean 'item'?" in errors["G102"].message
        assert errors["G201"].severity == lsp.DiagnosticSeverity.Warning
        assert await editor.hover("a.gbnf", 1, 14) == "```gbnf\nitem ::= [a-z]\n  # \u2028two\n```"
        assert await editor.hover("a.gbnf", 1, 10) == ""
        where = lsp.DefinitionParams(editor.named("a.gbnf"), lsp.Position(1, 18))
        found = await editor.client.text_document_definition_async(where)
        assert found == lsp.Location(
            editor.named("a.gbnf").uri, lsp.Range(lsp.Position(2, 0), lsp.Position(2, 4))
        )
        where = lsp.DefinitionParams(editor.named("a.gbnf"), lsp.Position(4, 14))
        assert await editor.client.text_document_definition_async(where) is None
        asked = lsp.CompletionParams(editor.named("a.gbnf"), lsp.Position(1, 15))
        names = await editor.client.text_document_completion_async(asked)
        assert isinstance(names, list)
        assert [one.label for one in names] == ["root", "item", "last"]
        assert await editor.change("a.gbnf", 'root::="a"') == []
        layout = lsp.DocumentFormattingParams(
            editor.named("a.gbnf"), lsp.FormattingOptions(2, insert_spaces=True)
        )
        edits = await editor.client.text_document_formatting_async(layout)
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 10))
        assert list(edits or ()) == [lsp.TextEdit(whole, 'root ::= "a"\n')]
        twice = await editor.change("a.gbnf", 'root ::= "a" ws ws "b"\nws ::= [ ]*\n')
        assert [each.code for each in twice] == ["G211"]
        fixes = await editor.client.text_document_code_action_async(
            lsp.CodeActionParams(editor.named("a.gbnf"), twice[0].range, lsp.CodeActionContext(twice))
        )
        (fix,) = list(fixes or [])
        assert isinstance(fix, lsp.CodeAction)
        assert fix.edit is not None
        between = lsp.Range(lsp.Position(0, 15), lsp.Position(0, 18))
        (found_edits,) = dict(fix.edit.changes or {}).values()
        assert list(found_edits) == [lsp.TextEdit(between, "")]
        assert await editor.change("a.gbnf", 'root ::= "a')
        assert not await editor.client.text_document_formatting_async(layout)

    edited(tmp_path, use)


def test_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "executor.py").touch()

    async def use(editor: Editor) -> None:
        found = {each.code: each for each in await editor.open("manifest.toml", MANIFEST)}
        assert found["unenforced"].range == lsp.Range(lsp.Position(10, 0), lsp.Position(10, 8))
        assert found["unenforced"].severity == lsp.DiagnosticSeverity.Information
        assert found["unknown_key"].range.start.line == 15
        assert found["unknown_key"].severity == lsp.DiagnosticSeverity.Warning
        assert "pattern" in await editor.hover("manifest.toml", 10, 2)
        assert await editor.hover("manifest.toml", 11, 2) == "`maxLength`: the grammar enforces it."
        assert await editor.hover("manifest.toml", 6, 2) == "`required`: the grammar enforces it."
        assert await editor.hover("manifest.toml", 14, 2) == "seconds, 0 for no limit."
        assert await editor.hover("manifest.toml", 0, 1) == ""
        (syntax,) = await editor.change("manifest.toml", MANIFEST.replace('type = "string"', "type ="))
        assert (syntax.range.start, syntax.severity) == (lsp.Position(9, 0), lsp.DiagnosticSeverity.Error)
        assert "invalid TOML" in syntax.message
        (wrong,) = await editor.change("manifest.toml", MANIFEST.replace("timeout_s = 3", "timeout_s = 'x'"))
        assert wrong.range.start == lsp.Position(14, 0)
        (line,) = await editor.change("manifest.toml", "\n[a=1 #]\n[args]")
        assert line.range == lsp.Range(lsp.Position(1, 0), lsp.Position(1, 7))
        assert await editor.hover("manifest.toml", 1, 2) == ""
        (missing,) = await editor.change("manifest.toml", "")
        assert missing.range.start == lsp.Position(0, 0)

    edited(tmp_path, use)
