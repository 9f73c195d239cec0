"""Laws of the split: what training draws and what the held-out half draws have nothing in common."""

import re
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from training import vocabulary, wording
from training.source import Language, Source, kept

WORDINGS = {
    language: {key: found for key, found in tables.items() if isinstance(found, list)}
    for language, tables in wording.FIRST.items()
}
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
    templates = WORDINGS[language]["write"]
    made = wording.word(templates, source, {"t": "{t}", "p": "{p}"})
    # restated here, so that the split cannot change without a test that says so
    assert (crc32(made.lower().encode()) % 9 == 0) is held_out


def test_both_halves_of_the_vocabulary_are_there() -> None:
    for language in ("en", "it"):
        words = vocabulary.WORDS[language]
        kept = [word for word in words if Source(0, held_out=True).draws(word)]
        assert 150 < len(kept) < len(words) / 5


def test_a_source_is_a_function_of_its_seed() -> None:
    assert [Source(5).random() for _ in range(2)] == [Source(5, "it", held_out=True).random()] * 2


def test_languages_have_the_same_wordings_to_fill() -> None:
    english, italian = WORDINGS["en"], WORDINGS["it"]
    assert english.keys() == italian.keys()
    slots = re.compile(r"\{(\w+)\}")
    for key, templates in english.items():
        known = set(slots.findall(" ".join([*templates, *italian[key]])))
        every = [wording.wordings(Source(1, language), key) for language in ("en", "it")]
        for template in (*every[0], *every[1]):
            wording.word((template,), Source(1), dict.fromkeys(known, "x"))


def test_the_held_out_half_draws_no_wording_that_came_after_its_suite() -> None:
    for language in ("en", "it"):
        for key, first in WORDINGS[language].items():
            assert wording.wordings(Source(0, language, held_out=True), key) == first
            assert wording.wordings(Source(0, language), key)[: len(first)] == first


@given(SEEDS, LANGUAGES)
def test_a_slot_of_a_wording_is_never_mistyped(seed: int, language: Language) -> None:
    source = Source(seed, language)
    template = source.choice(wording.wordings(source, source.choice(["send", "write", "event", "find_send"])))
    slots = re.compile(r"\{\w+\}")
    typed = wording.mistyped(source, template)
    assert slots.findall(typed) == slots.findall(template)
    assert abs(len(typed) - len(template)) <= 1


@given(SEEDS, LANGUAGES)
def test_an_additional_word_is_inserted_between_the_others(seed: int, language: Language) -> None:
    source = Source(seed, language)
    template = source.choice(wording.wordings(source, source.choice(["send", "write", "event", "find_send"])))
    said, filled = template.split(" "), wording.filled(source, template).split(" ")
    added = next((at for at, (old, new) in enumerate(zip(said, filled, strict=False)) if old != new), None)
    assert added is None or filled[:added] + filled[added + 1 :] == said
    assert re.search("[a-zàèéìòù] [a-zàèéìòù]", template) is None or len(filled) == len(said) + 1


@given(SEEDS, LANGUAGES)
def test_values_of_pieces_hold_no_word_that_is_kept(seed: int, language: Language) -> None:
    source = Source(seed, language)
    made = [vocabulary.odd(source, form) for form in ("noun", "stem", "text")]
    made.append(vocabulary.draw(source, "{address_of_pieces}", domain="x.y").removesuffix("@x.y"))
    for value in made:
        assert not [word for word in re.findall(r"[^\W\d_]+", value) if kept(word)]
