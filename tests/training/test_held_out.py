"""The held-out suite: made by a program, of the half that training never draws."""

import tomllib

import pytest

from gbnf_bench.suite_files import load_suite, read_suite
from gbnf_server.system.folders import suites_path
from training import held_out, vocabulary
from training.source import Source

pytestmark = pytest.mark.slow


def test_a_suite_is_a_function_of_its_seed_and_reads_as_one() -> None:
    first, second = held_out.cases(7, 3), held_out.cases(7, 3)
    assert first == second
    lines = [f"{key} = {held_out.toml(value)}" for key, value in first[0].items()]
    content = {"name": "made", "description": "x", **tomllib.loads("\n".join(["[[cases]]", *lines]))}
    assert [case.query for case in read_suite(content, "made").cases] == [first[0]["query"]]


def test_the_bundled_suites_are_large_enough_and_in_both_languages() -> None:
    generated, by_hand = load_suite("held-out"), load_suite("unseen-wording")
    assert len(generated.cases) >= 200
    assert len(by_hand.cases) >= 60
    for suite in (generated, by_hand):
        assert {case.language for case in suite.cases} == {"en", "it"}
        assert {case.complexity for case in suite.cases} >= {"simple", "medium", "complex"}


def test_the_bundled_suite_is_what_the_program_writes() -> None:
    content = tomllib.loads((suites_path() / "held-out.toml").read_text("utf-8"))
    made = held_out.cases(count=2)
    assert content["cases"][:2] == made


def test_no_word_of_the_suite_that_is_a_value_is_drawn_by_training() -> None:
    trained = Source(0)
    paths = [
        word
        for case in load_suite("held-out").cases
        for path in case.before.files
        for word in path.replace("/", ".").split(".")[:1]
        if word.isalpha() and word.lower() in vocabulary.words(case.language)
    ]
    assert len(paths) > 20
    assert not [word for word in paths if trained.draws(word)]
