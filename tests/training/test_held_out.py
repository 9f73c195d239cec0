"""The held-out suite: of the half that training never draws."""

import pytest

from gbnf_bench.cases import Suite
from gbnf_bench.suite_files import load_suite
from training import vocabulary
from training.source import Source

pytestmark = pytest.mark.slow  # the suite is large


@pytest.fixture(scope="module")
def generated() -> Suite:
    return load_suite("held-out")


def test_the_bundled_suites_are_large_enough_and_in_both_languages(generated: Suite) -> None:
    by_hand = load_suite("unseen-wording")
    assert len(generated.cases) >= 200
    assert len(by_hand.cases) >= 60
    for suite in (generated, by_hand):
        assert {case.language for case in suite.cases} == {"en", "it"}
        assert {case.complexity for case in suite.cases} >= {"simple", "medium", "complex"}


def test_no_word_of_the_suite_that_is_a_value_is_drawn_by_training(generated: Suite) -> None:
    trained = Source(0)
    paths = [
        word
        for case in generated.cases
        for path in case.before.files
        for word in path.replace("/", ".").split(".")[:1]
        if word.isalpha() and word.lower() in vocabulary.WORDS[case.language]
    ]
    assert len(paths) > 20
    assert not [word for word in paths if trained.draws(word)]
