"""Values that repeat end where the grammar allows it, and the answer goes on after them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar, Tool, compile_schema
from gbnf.grammar.ir import Rules
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama import repetition
from gbnf_server.llama.decoder import Decoder
from support.effort import scaled
from support.grammars import grammars
from support.oracle import engine
from support.smollm2 import model_file, requires_smollm2
from support.tool_formats import KEY_VALUE, TAGS, XML, Family
from support.wires import closed

ASK: list[Message] = [{"role": "user", "content": "hello"}]
LONG = 6000  # tokens


@pytest.fixture(scope="module")
def backend(random_model: Path) -> Iterator[InProcess]:
    with InProcess(random_model, threads=1, prompt_style="minimal", context_length=LONG + 200) as model:
        yield model


@contextmanager
def wanting(next_text: Callable[[str], str]) -> Iterator[None]:
    """Let the model prefer the text that follows the answer so far; "" for its end."""

    def next_logits(self: Decoder, prompt: Sequence[int], drafts: Any) -> Any:
        del prompt, drafts
        model = self.model
        logits = np.zeros(model.size, dtype=np.float32)
        text = next_text(self._answer.text)
        wanted = model.tokenize(text[:40], special=False)[:1] if text else model.end_tokens
        logits[list(wanted)] = 1
        return logits

    with patch.object(Decoder, "_next_logits", next_logits):
        yield


def writing(text: str) -> Callable[[str], str]:
    """Write a text, and then its end; after something else, `"`, `]` and `}` wherever they are allowed."""
    return lambda so_far: text[len(so_far) :] if text.startswith(so_far) else '"]}'[len(so_far) % 3]


def decode(backend: InProcess, grammar: Grammar | None, next_text: Callable[[str], str]) -> Completion:
    with wanting(next_text):
        return backend.complete(Request(ASK, grammar=grammar, max_tokens=LONG))


STRINGS = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True)
class Case:
    """What a model writes: `before`, then `unit` without an end, with a counter for each #.

    `after`: what has to follow the last one.
    """

    schema: dict[str, Any]
    before: str
    unit: str
    after: str
    least: int = 1

    def __repr__(self) -> str:
        return self.before + self.unit

    @property
    def endless(self) -> str:
        return self.before + "".join(self.unit.replace("#", str(count)) for count in range(90, 3090))


def shape(text: str) -> str:
    return re.sub(r"\d+", "#", text)


CASES = [
    Case(closed(["text"], text={"type": "string"}), '{"text": "', "github.", '"}'),
    Case(closed(["text"], text={"type": "string"}), '{"text": "', "\\n", '"}'),
    Case(closed(["days"], days=STRINGS), '{"days": ["today"', ', "tomorrow", "today"', "]}"),
    Case(closed(["days"], days=STRINGS), '{"days": ["', "today, ", '"]}'),
    Case({**STRINGS, "minItems": 300}, '["today"', ', "tomorrow", "today"', "]", 300),
    Case({"type": "array", "items": STRINGS}, '[["today"]', ', ["today"]', "]"),
    Case(
        {"type": "array", "items": closed(["name"], name={"type": "string"}, day={"type": "integer"})},
        '[{"name": "lunch", "day": 3}',
        ', {"name": "lunch", "day": 3}',
        "]",
    ),
    Case({"type": "array", "items": {"type": "integer"}}, "[0", ", 0", "]"),
    Case(closed(["text"], text={"type": "string"}), '{"text": "', "abs(-#) == #, ", '"}'),
    Case(closed(["text"], text={"type": "string"}), '{"text": "', "row # of #\\n", '"}'),
    Case(closed(["files"], files=STRINGS), '{"files": ["a.txt"', ', "file#.txt"', "]}"),
    Case({**STRINGS, "minItems": 300}, '["a.txt"', ', "file#.txt"', "]", 300),
    Case(
        {"type": "array", "items": closed(["name", "day"], name={"type": "string"}, day={"type": "integer"})},
        '[{"name": "lunch", "day": 3}',
        ', {"name": "lunch", "day": #}',
        "]",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "jumps"), [*zip(CASES, cycle([True, False])), (CASES[0], False)])
def test_a_value_ends_where_the_grammar_allows_it(backend: InProcess, case: Case, jumps: bool) -> None:
    grammar = compile_schema(case.schema)
    endless = case.endless
    with patch.object(backend, "_jumps", jumps):
        found = decode(backend, grammar, writing(endless))
    assert found.finish_reason == "stop"
    assert found.shortened_at is not None
    assert found.text.endswith(case.after)
    assert endless.startswith(found.text.removesuffix(case.after))
    assert found.shortened_at <= len(found.text) - len(case.after)
    assert shape(found.repeated) in shape(case.unit) * 2
    assert engine().match(grammar, found.text).complete
    value = json.loads(found.text)
    jsonschema.validate(value, case.schema)
    assert len(value) >= case.least
    if "days" in value and case.unit.startswith(", "):  # entries are not cut
        assert set(value["days"]) == {"today", "tomorrow"}


@pytest.mark.parametrize("least", [50, 110, 111, 112, 920])
def test_numbers_may_get_longer_up_to_where_the_value_can_end(backend: InProcess, least: int) -> None:
    """The text repeats from about the 30th entry on; the numbers get longer at the 10th and the 910th."""
    case = Case({**STRINGS, "minItems": least}, '["a.txt"', ', "#a.txt"', "]", least)
    with patch.multiple(repetition, _LEAST=128, _LEAST_COUNTED=1, _MOST_REPEATS=20):
        found = decode(backend, compile_schema(case.schema), writing(case.endless))
    value = json.loads(found.text)
    assert shape(found.repeated) in shape(case.unit) * 2
    assert max(least, 20) <= len(value) <= max(least, 50) + 1
    assert case.endless.startswith(found.text.removesuffix("]"))


def test_strings_as_long_as_they_must_be(backend: InProcess) -> None:
    schema = closed(["text"], text={"type": "string", "minLength": 2000})
    found = decode(backend, compile_schema(schema), writing('{"text": "' + "github." * 3000))
    assert 2000 <= len(json.loads(found.text)["text"]) <= 2020
    jsonschema.validate(json.loads(found.text), schema)


def test_the_answer_goes_on_after_the_value(backend: InProcess) -> None:
    schema = closed(["days"], days=STRINGS, text={"type": "string"}, n={"type": "integer"})
    start, rest = '{"days": ["today"' + ', "today"' * 3000, ', "text": "and on", "n": 7}'

    def next_text(so_far: str) -> str:
        if start.startswith(so_far):
            return start[len(so_far) :]
        end = so_far.find("]") + 1
        return (so_far[:end] + rest)[len(so_far) :] if end else "]"

    found = decode(backend, compile_schema(schema), next_text)
    assert json.loads(found.text) | {"days": []} == {"days": [], "text": "and on", "n": 7}
    assert found.finish_reason == "stop"


def test_each_value_that_repeats_ends(backend: InProcess) -> None:
    schema = closed(["a", "b"], a={"type": "string"}, b={"type": "string"})

    def next_text(so_far: str) -> str:
        start = '{"a": "'
        if len(so_far) < len(start):
            return start[len(so_far) :]
        second = re.search(r'", ?"b": ?"', so_far)
        if '",' in so_far and not second:
            return '"'
        body = so_far[second.end() if second else len(start) :]
        return "github."[len(body) % 7 :]

    found = decode(backend, compile_schema(schema), next_text)
    value = json.loads(found.text)
    assert all(512 <= len(text) < 540 for text in value.values())


def test_closing_texts_of_several_characters_are_written_whole(backend: InProcess) -> None:
    """As raw parameters of native formats: the text contains the first characters of what closes it."""
    text = '([^\\n] | "\\n" ([^<\\n] | "<" [^/\\n]))*'
    grammar = Grammar.parse(f'root ::= "<content>\\n" {text} "\\n</content>" ("<more>" [a-z]+ "</more>")?')
    found = decode(backend, grammar, writing("<content>\n" + "next line <b>\n" * 2000))
    assert found.shortened_at is not None
    assert found.text[found.shortened_at :].startswith("</content>")
    assert engine().match(grammar, found.text).complete


@pytest.mark.parametrize("family", [TAGS, XML, KEY_VALUE], ids=repr)
def test_arguments_in_native_formats_end(backend: InProcess, family: Family) -> None:
    """One is JSON, the others raw text between tags."""
    args = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    grammar = family.form.grammar([Tool("note", args=args)], tool_choice="required")
    found = decode(backend, grammar, writing(family.write([("note", {"text": "github." * 3000})])))
    assert found.finish_reason == "stop"
    assert found.shortened_at is not None
    assert engine().match(grammar, found.text).complete
    _, ((name, arguments),) = family.split(found.text, ["text"])
    assert name == "note"
    assert 512 <= len(arguments["text"].strip("\n")) < 560
    assert arguments["text"].strip("\n") in "github." * 100


def test_text_that_may_end_anywhere_is_truncated(backend: InProcess) -> None:
    for grammar in (None, Grammar.parse("root ::= [a-z. ]*")):
        found = decode(backend, grammar, writing("why not? "[:3] + " github." * 3000))
        assert found.finish_reason == "length"
        assert found.shortened_at == len(found.text) < 560
        assert found.repeated.strip(" ")


def test_nesting_without_an_end_is_closed(backend: InProcess) -> None:
    schema = {"$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "$ref": "#/$defs/node"}
    grammar = compile_schema(schema)
    with patch.object(repetition, "_LEAST_WITHOUT_WORDS", 512):
        found = decode(backend, grammar, lambda so_far: "]" if "]" in so_far else "[")
    assert found.shortened_at is not None
    assert engine().match(grammar, found.text).complete


LOW: dict[str, Any] = {
    "_LEAST": 4, "_LEAST_WITHOUT_WORDS": 4, "_LEAST_COUNTED": 1, "_REPEATS": 2, "_MOST_REPEATS": 2,
    "_TAIL": 2, "_STRIDE": 1,
}  # fmt: skip


@settings(max_examples=scaled(40))
@given(
    rules=grammars(), temperature=st.sampled_from([0.0, 0.5]), seed=st.integers(0, 99), jumps=st.booleans()
)
def test_whatever_the_grammar_nothing_else_changes(
    backend: InProcess, rules: Rules, temperature: float, seed: int, jumps: bool
) -> None:
    """With thresholds so low that nearly every text repeats somewhere."""
    grammar = Grammar(rules)
    request = Request(ASK, grammar=grammar, max_tokens=200, temperature=temperature, seed=seed)
    with patch.object(backend, "_jumps", jumps):
        with patch.object(repetition, "_LEAST", 10**9):
            free = backend.complete(request)
        with patch.multiple(repetition, **LOW):
            found = backend.complete(request)
    match = engine().match(grammar, found.text)
    if not found.repeated:
        assert (found.text, found.finish_reason) == (free.text, free.finish_reason)
        return
    assert found.shortened_at is not None
    assert free.text.startswith(found.text[: found.shortened_at])
    assert match.complete or (
        found.finish_reason == "length" and found.usage.completion_tokens == 200 and match.accepted
    )


@pytest.mark.slow
@requires_smollm2
def test_a_real_model_that_repeats() -> None:
    schema = closed(["days"], days=STRINGS)
    text = "Write today, tomorrow, today, tomorrow, and go on without an end."
    with InProcess(model_file() or "", threads=1) as model:
        found = model.complete(
            Request([{"role": "user", "content": text}], grammar=compile_schema(schema), max_tokens=400)
        )
    assert (found.finish_reason, "today" in found.repeated * 2) == ("stop", True)
    assert found.usage.completion_tokens < 400
    jsonschema.validate(json.loads(found.text), schema)
