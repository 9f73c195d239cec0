"""Laws of the split: what training draws and what the held-out half draws have nothing in common."""

import re
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.embedded import vocabulary, wording
from gbnf_server.embedded.source import Language, Source

SEEDS = st.integers(0, 2**32)
LANGUAGES: st.SearchStrategy[Language] = st.sampled_from(["en", "it"])


@given(SEEDS, SEEDS, LANGUAGES)
def test_invented_words_of_one_half_are_never_drawn_by_the_other(
    first: int, second: int, language: Language
) -> None:
    trained, held_out = Source(first, language), Source(second, language, held_out=True)
    assert vocabulary.pseudo_word(trained) != vocabulary.pseudo_word(held_out)
    assert vocabulary.noun(trained) != vocabulary.noun(held_out)


@given(SEEDS, LANGUAGES, st.booleans())
def test_a_wording_is_of_the_half_that_drew_it(seed: int, language: Language, held_out: bool) -> None:
    source = Source(seed, language, held_out=held_out)
    templates = wording.W[language]["write"]
    made = wording.word(templates, source, {"t": "{t}", "p": "{p}"})
    # restated here, so that the split cannot change without a test that says so
    assert (crc32(made.lower().encode()) % 9 == 0) is held_out


def test_both_halves_of_the_vocabulary_are_there() -> None:
    for language in ("en", "it"):
        words = vocabulary.words(language)
        kept = [word for word in words if Source(0, held_out=True).draws(word)]
        assert 150 < len(kept) < len(words) / 5


def test_a_source_is_a_function_of_its_seed() -> None:
    assert [Source(5).random() for _ in range(2)] == [Source(5, "it", held_out=True).random()] * 2


def test_languages_have_the_same_wordings_to_fill() -> None:
    english, italian = wording.W["en"], wording.W["it"]
    assert english.keys() == italian.keys()
    slots = re.compile(r"\{(\w+)\}")
    for key, templates in english.items():
        known = set(slots.findall(" ".join([*templates, *italian[key]])))
        for template in (*templates, *italian[key]):
            wording.word((template,), Source(1), dict.fromkeys(known, "x"))
