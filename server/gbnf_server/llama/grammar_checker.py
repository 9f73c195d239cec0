"""Check grammars and texts with llama.cpp's own grammar engine, on a vocabulary alone.

No weights are needed: a text is tokenized, each token is tested against the grammar and accepted, and at the
end the end-of-generation token is tested.

Invariant: the process survives any grammar. The engine hangs on some grammars (inverted repetition bounds),
uses all memory for others (left recursion hidden behind rules that may be empty) and overflows its stack on
the deepest. So GBNF text is parsed by `Grammar.parse` before the engine sees it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from gbnf import Grammar
from gbnf.errors import GrammarSyntaxError
from gbnf.schema_caches import schema_cache
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar, native_grammar
from gbnf_server.system.errors import GrammarRefusedError, ModelLoadError


@dataclass(frozen=True, slots=True)
class EngineMatch:
    """The engine's result for a text.

    `accepted`: the text is a prefix of the language. `complete`: the text is in the language.
    `position`: how many characters the engine accepted, so the index of the first character that does not
    fit, if there is one.
    """

    accepted: bool
    complete: bool
    position: int


class GrammarChecker:
    """The grammar engine over a vocabulary. Thread-safe."""

    def __init__(self, model: NativeModel) -> None:
        if not model.end_tokens:
            raise ModelLoadError(f"{model.path} has no end-of-generation token, so a text could not end.")
        self.model = model
        self._end = min(model.end_tokens)

    @staticmethod
    def load(path: Path | str, *, vocab_only: bool = True) -> GrammarChecker:
        """Load a GGUF, by default without its weights. Raises ModelLoadError."""
        return GrammarChecker(NativeModel(path, vocab_only=vocab_only))

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def check(self, grammar: Grammar | str) -> None:
        """Return if the engine accepts the grammar. Raises GrammarRefusedError with llama.cpp's own reason.

        GBNF text reaches the engine only if `Grammar.parse` accepts it.
        """
        with self._parse(grammar):
            pass

    def match(self, grammar: Grammar | str, text: str) -> EngineMatch:
        """Match one text against one grammar. Raises GrammarRefusedError as `check` does."""
        return self.match_many(grammar, [text])[0]

    def match_many(self, grammar: Grammar | str, texts: Iterable[str]) -> list[EngineMatch]:
        """Match texts against one grammar, parsed once. Raises GrammarRefusedError as `check` does."""
        with self._parse(grammar) as native:
            return [self._replay(native, text) for text in texts]

    def _parse(self, grammar: Grammar | str) -> NativeGrammar:
        return native_grammar(self.model, _parsed(grammar) if isinstance(grammar, str) else grammar)

    def _replay(self, grammar: NativeGrammar, text: str) -> EngineMatch:
        """Match the text token by token, as a model would write it.

        If a token is refused, its characters are tried one by one: that finds the exact position, and accepts
        a text that only another tokenization can spell (such as the name of an end-of-generation token, which
        some vocabularies tokenize to that token).
        """
        encodable = re.split("[\ud800-\udfff]", text, maxsplit=1)[0]  # UTF-8 has no surrogates
        raw = encodable.encode()
        controls = grammar.tokens.control_texts if grammar.tokens else ()
        token_at = self._token_starts(encodable, raw, controls)
        offset = 0

        def refused() -> EngineMatch:
            position = len(raw[:offset].decode(errors="ignore"))
            return EngineMatch(accepted=False, complete=False, position=position)

        with grammar.clone() as state:
            while offset < len(raw):
                token = token_at.get(offset)
                if token is not None and self._take(state, token):
                    offset += len(self.model.piece(token))
                    continue
                if _is_inside_character(raw, offset):
                    return refused()
                end = offset + 1
                while _is_inside_character(raw, end):
                    end += 1
                for part in self.model.speller.spell(raw[offset:end]) or (None,):
                    if part is None or not self._take(state, part):
                        return refused()
                offset = end
            if len(encodable) < len(text):
                return refused()
            return EngineMatch(accepted=True, complete=state.allows(self._end), position=len(text))

    def _take(self, state: NativeGrammar, token: int) -> bool:
        if token in self.model.end_tokens or not state.allows(token):
            return False
        state.accept(token)
        return True

    def _token_starts(self, text: str, raw: bytes, controls: Collection[str]) -> dict[int, int]:
        """Return the text's tokens by byte offset; {} if the tokens do not spell the text.

        Names of special tokens are tokenized as ordinary text, since a grammar describes text, except for
        those of token terminals.
        """
        starts, offset = {}, 0
        for token in self.model.tokenize_with(text, controls):
            piece = self.model.piece(token)
            if not raw.startswith(piece, offset):
                return {}
            starts[offset] = token
            offset += len(piece)
        return starts if offset == len(raw) else {}


@schema_cache(maxsize=64)
def _parsed(gbnf: str) -> Grammar:
    try:
        return Grammar.parse(gbnf)
    except GrammarSyntaxError as error:
        raise GrammarRefusedError(str(error)) from error


def _is_inside_character(raw: bytes, offset: int) -> bool:
    return offset < len(raw) and raw[offset] & 0b1100_0000 == 0b1000_0000
