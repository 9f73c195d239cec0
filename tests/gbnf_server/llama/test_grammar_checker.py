"""The engine as a judge: laws against Python's `re` as the naive oracle, then what once broke."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.grammar.ir import Ref, Rules
from gbnf_server.llama.grammar_checker import EngineMatch, GrammarChecker
from gbnf_server.llama.grammar_limits import MOST_RULES
from gbnf_server.llama.native_grammar import NativeGrammar
from gbnf_server.system.errors import GrammarRefusedError, ModelLoadError
from support.effort import scaled
from support.models import make_model
from support.oracle import SHARED

# The same languages, for the engine and for Python.
LANGUAGES = {
    'root ::= [a-c]* "x"? "hello"{0,2}': r"[a-c]*x?(hello){0,2}",
    'root ::= "è" [^\\x00-\\x1F"]* "日"?': '\u00e8[^\x00-\x1f"]*日?',
    'root ::= "hello" (" hello")* | "he" | ""': r"hello( hello)*|he|",
    'root ::= item item\nitem ::= "a" | "ab" | "b😀"': r"(a|ab|b😀)(a|ab|b😀)",
    'root ::= "<|end|>" "a"*': r"<\|end\|>a*",
    'root ::= ("a"? "b"*)*': r"[ab]*",
}
TEXTS = st.lists(
    st.sampled_from(["a", "b", "c", "x", "hello", " ", "è", "日", "😀", '"', "<|end|>", "\n"])
).map("".join)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> GrammarChecker:
    return GrammarChecker.load(tiny_model)


@pytest.fixture(scope="module", params=["tiny", "qwen2", "llama-bpe", "gemma-4"])
def any_engine(request: pytest.FixtureRequest, tiny_model: Path) -> GrammarChecker:
    """The engine on a real vocabulary of each kind, where they are at hand."""
    path = tiny_model if request.param == "tiny" else SHARED / "vocabs" / f"ggml-vocab-{request.param}.gguf"
    if not path.is_file():
        pytest.skip(f"{path.name} is not here: set GBNF_SHARED to the folder that holds vocabs/")
    return GrammarChecker.load(path)


# Laws.


@pytest.mark.slow
@given(st.sampled_from([*LANGUAGES.items()]), TEXTS)
@settings(max_examples=scaled(60))
def test_judges_as_a_regular_expression_does(
    any_engine: GrammarChecker, language: tuple[str, str], text: str
) -> None:
    """The position is the first character that does not fit."""
    grammar, pattern = language
    judgement = any_engine.match(grammar, text)
    assert judgement.complete == bool(re.fullmatch(pattern, text))
    assert any_engine.match(grammar, text[: judgement.position]).accepted
    assert judgement.accepted == (judgement.position == len(text))
    if not judgement.accepted:
        assert not any_engine.match(grammar, text[: judgement.position + 1]).accepted


@given(texts=st.lists(TEXTS, max_size=5), grammar=st.sampled_from(list(LANGUAGES)))
def test_judging_many_is_judging_each(engine: GrammarChecker, texts: list[str], grammar: str) -> None:
    assert engine.match_many(grammar, texts) == [engine.match(grammar, text) for text in texts]


@given(text=st.text())
def test_any_text_has_a_verdict(engine: GrammarChecker, text: str) -> None:
    """Every string of UTF-8 without NUL is in the language of all texts, and no other."""
    judgement = engine.match("root ::= [^\\x00]*", text)
    assert judgement.complete == ("\0" not in text)


# Texts that once needed thought.


@pytest.mark.parametrize(
    ("grammar", "text", "expected"),
    [
        ('root ::= "a"?', "", EngineMatch(True, True, 0)),
        ('root ::= ""', "", EngineMatch(True, True, 0)),
        ('root ::= "hello"', "hell", EngineMatch(True, False, 4)),
        ('root ::= "hello"', "hellish", EngineMatch(False, False, 4)),
        ("root ::= .*", "a\0b", EngineMatch(False, False, 1)),
        ("root ::= .*", "a\ud800b", EngineMatch(False, False, 1)),
        ('root ::= "è"', "é", EngineMatch(False, False, 0)),  # they differ in their second byte
    ],
)
def test_verdicts(engine: GrammarChecker, grammar: str, text: str, expected: EngineMatch) -> None:
    assert engine.match(grammar, text) == expected


@pytest.mark.slow
def test_a_name_of_an_end_token_is_a_text_like_others(any_engine: GrammarChecker) -> None:
    """Some vocabularies read `</s>` in any text as the token that ends the generation."""
    text = "</s><|im_end|><eos><turn|><|end|><|eot_id|>"
    assert any_engine.match(f'root ::= "{text}"', text).complete


# Grammars that the engine refuses, in its own words.


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ('root ::= "a" | b', "Undefined rule identifier 'b'"),
        ('root ::= "a" )', "expecting newline or end in line 1, column 14, before ')'"),
        ('root ::= "è" "\n"\nb ::= "c"\n| "d"', "expecting name in line 4, column 1"),
        ('x ::= "a"', "does not contain a 'root' symbol"),
        ('root ::= root "a" | "b"', "left recursion detected"),
        ("root ::= (((", "expecting ')' in line 1, column 13, at the end"),
        ('root ::= "a"{3000}', "exceeds sane defaults"),
        ("", "empty"),
        ('root ::= "a\0"', "NUL"),
        ('root ::= "\ud800"', "not Unicode"),
    ],
)
def test_refusals(
    engine: GrammarChecker, grammar: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GrammarRefusedError, match=re.escape(words)):
        NativeGrammar.parse(engine.model, grammar)
    with pytest.raises(GrammarRefusedError):
        engine.check(grammar)
    engine.check('root ::= "a"')  # still alive
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a"{3,2}',
        'root ::= a "x"\na ::= b root\nb ::= "" | "q"',
        "root ::= " + "(" * 70_000 + '"a"' + ")" * 70_000,
        "root ::= " + "(" * 70_000,
        "root ::= r0\n"
        + "".join(f"r{n} ::= r{n + 1}\n" for n in range(MOST_RULES))
        + f'r{MOST_RULES} ::= "a"',
    ],
    ids=["inverted bounds", "hidden left recursion", "deep", "unclosed", "long chain"],
)
def test_what_would_harm_the_engine_never_reaches_it(engine: GrammarChecker, grammar: str) -> None:
    with pytest.raises(GrammarRefusedError):
        engine.match(grammar, "ab")


def test_each_thread_gets_its_own_message(engine: GrammarChecker) -> None:
    wrong: list[str] = []

    def ask(name: str) -> None:
        for _ in range(20):
            with pytest.raises(GrammarRefusedError) as refused:
                engine.check(Grammar(Rules({"root": Ref(name)})))
            if f"'{name}'" not in str(refused.value):
                wrong.append(str(refused.value))

    threads = [threading.Thread(target=ask, args=(f"rule{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Loading.


@pytest.mark.parametrize(
    ("content", "said"), [(None, r"no model file .*m\.gguf"), ("no model", "not a GGUF file")]
)
def test_a_file_that_is_no_model_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "m.gguf").write_text(content)
    with pytest.raises(ModelLoadError, match=said):
        GrammarChecker.load(tmp_path / "m.gguf")
    assert capfd.readouterr() == ("", "")


def test_weights_may_be_loaded_too(tmp_path: Path) -> None:
    engine = GrammarChecker.load(make_model(tmp_path / "named.gguf", name="a name"), vocab_only=False)
    assert engine.name == "a name"
    assert engine.match('root ::= "a"', "a").complete
