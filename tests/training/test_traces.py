"""Laws of the training data: the planner accepts every trace."""

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import validate_call
from gbnf.tools import FINAL_ANSWER
from training import file_intents, vocabulary, wording
from training.pools import bundled_tools, pool_prompt
from training.source import Language, Source
from training.traces import INTENTS, WHOLE_REQUESTS, trace

SEEDS = st.integers(0, 2**32)


@given(SEEDS)
def test_every_call_is_valid_for_the_tools_of_its_pool_and_in_declared_order(seed: int) -> None:
    made = trace(random.Random(seed))
    tools = (*(bundled_tools()[name] for name in made.pool), FINAL_ANSWER)
    calls = [json.loads(content) for role, content in made.turns() if role == "assistant"]
    for number, call in enumerate(calls, 1):
        steps = [
            place
            for place, step in enumerate(made.steps[: number - 1], 1)
            if (step.result or {}).get("entries")
        ]
        verdict = validate_call(call, tools, steps=steps)
        assert verdict.ok, (made.request, call, verdict.errors)
    assert calls[-1]["name"] == "final_answer"
    for step in made.steps:
        declared = bundled_tools()[step.name].model_args().get("properties", {})
        assert list(step.arguments) == [name for name in declared if name in step.arguments]


@given(SEEDS, st.sampled_from([1, 2, 3]))
def test_a_trace_is_a_function_of_its_seed(seed: int, parts: int) -> None:
    first, second = trace(random.Random(seed), parts=parts), trace(random.Random(seed), parts=parts)
    assert (first.request, first.turns(), first.system()) == (second.request, second.turns(), second.system())


@given(SEEDS)
def test_a_request_is_one_clean_line_without_reserved_values(seed: int) -> None:
    request = trace(random.Random(seed)).request
    assert request == request.strip()
    assert "  " not in request
    assert not set("{}[]|\n") & set(request)
    assert not vocabulary.RESERVED.search(request)


@pytest.mark.slow
def test_every_intent_and_every_tool_occurs() -> None:
    source = random.Random(0)
    names = {step.name for _ in range(1000) for step in trace(source).steps}
    assert names == set(bundled_tools()) - {"request_new_executor"}
    for make in INTENTS | WHOLE_REQUESTS:
        assert all(make(Source(1, language)).steps for language in ("en", "it"))


def test_the_system_message_is_the_planners_minimal_prompt() -> None:
    text = pool_prompt(("create_dirs", "find_files", "send_messages"))
    assert text.split("\n") == [
        "Tools:",
        "create_dirs(paths)",
        "find_files(base_path, pattern?, patterns?)",
        "send_messages(to, subject, body?, from_step?)",
        "final_answer(message)",
    ]


@given(SEEDS)
def test_a_request_without_its_tool_is_refused_in_its_language(seed: int) -> None:
    made = trace(random.Random(seed))
    if len(made.steps) > made.given:
        return
    answer = json.loads(made.turns()[-1][1])["arguments"]["message"]
    assert answer.startswith("Non posso" if made.language == "it" else "I cannot")


@given(SEEDS, st.sampled_from(["en", "it"]))
def test_no_wish_to_read_is_worded_as_one_to_print_on_paper(seed: int, language: Language) -> None:
    for make in (file_intents.read_files, file_intents.find_read):
        clause = make(Source(seed, language)).clause
        assert not clause.startswith(("print", "stampa")) or re.search(
            "content|text|contenuto|testo", clause
        ), clause


@given(SEEDS)
def test_decoys_bear_names_of_their_own(seed: int) -> None:
    made = trace(random.Random(seed))
    names = [line.split("(", 1)[0] for line in made.system().split("\n")[1:]]
    assert len(set(names)) == len(names)
    assert {line.split("(", 1)[0] for line in made.decoys}.isdisjoint(bundled_tools())


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("make [a|a] folder {p}", "make a folder x/y"),
        ("[find|find] [|] {p}", "find x/y"),
        ("read {p} [|], then stop", "read x/y, then stop"),
        ("all [the|the] .{e} files", "all the .md files"),
        ("[[a|a]|[a|a]] {p}", "a x/y"),
    ],
)
def test_wordings_close_the_gaps_of_empty_choices(template: str, made: str) -> None:
    assert wording.word((template,), Source(3), {"p": "x/y", "e": "md"}) == made


@pytest.mark.parametrize("template", ["make [a|b folder", "make a] folder"])
def test_an_unbalanced_wording_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="wording"):
        wording.word((template,), Source(0), {})


@pytest.mark.parametrize("value", ["[a|b]", "{p}", "a  b"])
def test_a_value_is_never_read_as_a_wording(value: str) -> None:
    assert wording.word(("read {p}",), Source(0), {"p": value}) == f"read {value}"
