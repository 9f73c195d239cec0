"""The compilers that are compared, each with the engine that checks its grammars.

A contender compiles a schema's text (`compile`), and loads the result into a checker of texts (`load`). GBNF
is checked by llama.cpp's engine, llguidance's grammars by its own matcher, over the same vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from llama_cpp.llama_grammar import json_schema_to_gbnf

from gbnf.compiler.schema import compile_schema
from gbnf.errors import GbnfError
from gbnf.findings import Finding
from gbnf_server.inference.native import NativeGrammar, NativeModel

#: Takes a text and says whether it is in the language.
Judge = Callable[[str], bool]


class Contender(Protocol):
    """`errors` are what `compile` raises where it can't hold a schema."""

    name: str
    errors: tuple[type[Exception], ...]

    def compile(self, schema_text: str) -> Any: ...

    def load(self, compiled: Any) -> Judge:
        """Raise GrammarRefused where the engine does not take it."""
        ...

    def report(self, compiled: Any) -> tuple[bool, Sequence[Finding]] | None:
        """Whether it says to be exact, and what it reports; None of a contender that says neither."""
        ...


def open_model(path: Path) -> NativeModel:
    """Return a vocabulary, with all that judging needs of it at hand."""
    model = NativeModel(path, vocab_only=True)
    assert model.end_tokens, f"{path} has no end-of-generation token"
    return model


def gbnf_judge(model: NativeModel, text: str) -> Judge:
    """llama.cpp's engine on a grammar: test each token alone, accept it, at the end test the end.

    Raises GrammarRefused.
    """
    grammar = NativeGrammar.parse(model, text)
    end = min(model.end_tokens)

    def accepts(instance: str) -> bool:
        with grammar.clone() as state:
            for token in _tokens(model, instance):
                if token in model.end_tokens or not state.allows(token):
                    return False
                state.accept(token)
            return state.allows(end)

    return accepts


def _tokens(model: NativeModel, text: str) -> list[int]:
    """Return a text's tokens.

    For a text with an unpaired surrogate, return an end token only.
    """
    try:
        return model.tokenize(text, special=False)
    except UnicodeEncodeError:
        return [min(model.end_tokens)]


class Gbnf:
    """This project's compiler. `options` go to `compile_schema`."""

    name = "gbnf"
    errors: tuple[type[Exception], ...] = (GbnfError,)

    def __init__(self, model: NativeModel, **options: Any) -> None:
        self._model, self._options = model, options
        compile_schema(True, **options)  # raise once for invalid options

    def compile(self, schema_text: str) -> Any:
        grammar = compile_schema(json.loads(schema_text), **self._options)
        assert str(grammar)
        return grammar

    def load(self, compiled: Any) -> Judge:
        return gbnf_judge(self._model, str(compiled))

    def report(self, compiled: Any) -> tuple[bool, Sequence[Finding]]:
        return compiled.exact, compiled.report


class LlamaCpp:
    """The converter that comes with llama-cpp-python. It says of no grammar what it leaves out."""

    name = "llama-cpp"
    errors: tuple[type[Exception], ...] = (Exception,)

    def __init__(self, model: NativeModel) -> None:
        self._model = model

    def compile(self, schema_text: str) -> Any:
        return json_schema_to_gbnf(schema_text)

    def load(self, compiled: Any) -> Judge:
        return gbnf_judge(self._model, compiled)

    def report(self, compiled: Any) -> None:  # noqa: ARG002  # the contenders' common form
        return None


class Llguidance:
    """llguidance: compiling is reading the schema, building its grammar and its lexer, ready for a mask."""

    errors: tuple[type[Exception], ...] = (ValueError,)

    def __init__(self, model: NativeModel, *, lenient: bool = False) -> None:
        try:
            from llguidance import LLMatcher  # noqa: PLC0415  # an optional peer
            from llguidance.llamacpp import lltokenizer_from_vocab  # noqa: PLC0415  # likewise
        except ImportError as error:
            raise SystemExit("llguidance is not installed: pip install llguidance") from error
        self.name = "llguidance-lenient" if lenient else "llguidance"
        self._model, self._lenient = model, lenient
        self._matcher = LLMatcher
        self._tokenizer = lltokenizer_from_vocab(model.vocabulary)

    def compile(self, schema_text: str) -> Any:
        grammar = self._matcher.grammar_from_json_schema(schema_text, overrides={"lenient": self._lenient})
        matcher = self._matcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def load(self, compiled: Any) -> Judge:
        def accepts(instance: str) -> bool:
            state, tokens = compiled.deep_copy(), _tokens(self._model, instance)
            return bool(state.try_consume_tokens(tokens) == len(tokens) and state.is_accepting())

        return accepts

    def report(self, compiled: Any) -> None:  # noqa: ARG002  # the contenders' common form
        return None


#: By name; each takes the vocabulary.
CONTENDERS: dict[str, Callable[[NativeModel], Contender]] = {
    "gbnf": Gbnf,
    "llama-cpp": LlamaCpp,
    "llguidance": Llguidance,
    "llguidance-lenient": lambda model: Llguidance(model, lenient=True),
}
