"""The compilers that are compared, each with the engine that checks its grammars.

A contender compiles a schema's text (`compile`), and loads the result into a checker of texts (`load`). GBNF
is checked by llama.cpp's engine, llguidance's grammars by its own matcher, over the same vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gbnf.compiler.schema import compile_schema
from gbnf.errors import GbnfError
from gbnf.findings import Finding
from gbnf_server.llama.grammar_engines import llguidance_tokenizer
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar

#: Takes a text and says whether it is in the language.
Judge = Callable[[str], bool]


class Contender(Protocol):
    """A compiler of JSON Schema and the engine of its grammars. `errors` are the exceptions of `compile`."""

    name: str
    errors: tuple[type[Exception], ...]

    def compile(self, schema_text: str) -> Any:
        """Return the compiled schema. Raises one of `errors`."""
        ...

    def load(self, compiled: Any) -> Judge:
        """Return a judge of instances. Raises GrammarRefusedError if the engine refuses the grammar."""
        ...

    def report(self, compiled: Any) -> tuple[bool, Sequence[Finding]] | None:
        """Return whether the grammar is exact, and the findings; None if the contender has no report."""
        ...


def open_model(path: Path) -> NativeModel:
    """Return the vocabulary of a GGUF file, without its weights."""
    model = NativeModel(path, vocab_only=True)
    assert model.end_tokens, f"{path} has no end-of-generation token"
    return model


def gbnf_judge(model: NativeModel, text: str) -> Judge:
    """Return a judge that tests each token with llama.cpp's engine, and the end token after the last.

    Raises GrammarRefusedError.
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


def calls_schema(arguments: Mapping[str, Any]) -> str:
    """Return one JSON Schema of the calls of tools. `arguments`: their schemas, by the tool's name."""
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": schema},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name, schema in arguments.items()
    ]
    return json.dumps({"anyOf": calls})


class Gbnf:
    """This project's compiler. `options` go to `compile_schema`."""

    name = "gbnf"
    errors: tuple[type[Exception], ...] = (GbnfError,)

    def __init__(self, model: NativeModel, **options: Any) -> None:
        self._model, self._options = model, options
        compile_schema(True, **options)  # raise once for invalid options

    def compile(self, schema_text: str) -> Any:
        """Return the grammar of a schema."""
        grammar = compile_schema(json.loads(schema_text), **self._options)
        assert str(grammar)
        return grammar

    def load(self, compiled: Any) -> Judge:
        """Return a judge that tests instances with llama.cpp's engine."""
        return gbnf_judge(self._model, str(compiled))

    def report(self, compiled: Any) -> tuple[bool, Sequence[Finding]]:
        """Return whether the grammar is exact, and its findings."""
        return compiled.exact, compiled.report


class LlamaCpp:
    """The converter of llama-cpp-python. It does not report keywords that it ignores."""

    name = "llama-cpp"
    errors: tuple[type[Exception], ...] = (Exception,)

    def __init__(self, model: NativeModel) -> None:
        try:
            from llama_cpp.llama_grammar import json_schema_to_gbnf  # noqa: PLC0415  # an optional peer
        except ImportError as error:
            raise SystemExit("llama-cpp-python is not installed: pip install '.[compiled]'") from error
        self._model, self._convert = model, json_schema_to_gbnf

    def compile(self, schema_text: str) -> Any:
        """Return the GBNF text of a schema."""
        return self._convert(schema_text)

    def load(self, compiled: Any) -> Judge:
        """Return a judge that tests instances with llama.cpp's engine."""
        return gbnf_judge(self._model, compiled)

    def report(self, compiled: Any) -> None:  # the contenders' common form
        """Return None: the converter has no report."""


class Llguidance:
    """llguidance. Compiling includes the grammar and the lexer, so that a mask can be computed next."""

    errors: tuple[type[Exception], ...] = (ValueError,)

    def __init__(self, model: NativeModel, *, lenient: bool = False) -> None:
        try:
            from llguidance import LLMatcher  # noqa: PLC0415  # an optional peer
        except ImportError as error:
            raise SystemExit("llguidance is not installed: pip install llguidance") from error
        self.name = "llguidance-lenient" if lenient else "llguidance"
        self._model, self._lenient = model, lenient
        self._matcher = LLMatcher
        self._tokenizer = llguidance_tokenizer(model)

    def compile(self, schema_text: str) -> Any:
        """Return a matcher for a schema. Raises ValueError."""
        grammar = self._matcher.grammar_from_json_schema(schema_text, overrides={"lenient": self._lenient})
        matcher = self._matcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def load(self, compiled: Any) -> Judge:
        """Return a judge that tests instances with the matcher."""

        def accepts(instance: str) -> bool:
            state, tokens = compiled.deep_copy(), _tokens(self._model, instance)
            return bool(state.try_consume_tokens(tokens) == len(tokens) and state.is_accepting())

        return accepts

    def report(self, compiled: Any) -> None:  # the contenders' common form
        """Return None: llguidance has no report."""


#: By name; each takes the vocabulary.
CONTENDERS: dict[str, Callable[[NativeModel], Contender]] = {
    "gbnf": Gbnf,
    "llama-cpp": LlamaCpp,
    "llguidance": Llguidance,
    "llguidance-lenient": lambda model: Llguidance(model, lenient=True),
}
