"""The values in requests: names, paths, addresses, texts, dates, sums; `forms.toml` has their forms.

They are many and random, so that a model has to copy them instead of memorizing. Words are drawn from the
source's half of each list (`training.source`): those of training never occur in held-out traces. In training,
some values are concatenated from the tokenizer's letter tokens (`pieces.txt`), since the model does not copy
a token that never was a part of a value in training, however well it copies others. So each letter token, and
each mark that values may contain, has to occur in all kinds of values. Invariants: no value of pieces has a
word of the held-out half as a word of its own, and no value contains a reserved word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from importlib.resources import files

from training.forms import Forms, Slots, read_toml
from training.source import Source
from training.wording import LISTS, listed, word

AGAIN_SHARE = 0.1
ODD_SHARE = 0.15
"""Share of the values in training that consist of the tokenizer's pieces."""
_WORD = re.compile(r"[^\W\d_]+")
LISTS_OF_WORDS = read_toml(__package__, "vocabulary.toml")
RESERVED = re.compile("|".join(map(re.escape, LISTS_OF_WORDS["reserved"])), re.IGNORECASE)
"""Every word that no trace has."""


def _lines(name: str) -> list[str]:
    lines = (files(__package__) / name).read_text("utf-8").split("\n")
    return [line for line in lines if line and not line.startswith("#")]


WORDS = {
    language: tuple(line for line in _lines(name) if not RESERVED.search(line))
    for language, name in (("en", "words.txt"), ("it", "words_it.txt"))
}
"""The common words that values consist of."""
PIECES = tuple(line for line in _lines("pieces.txt") if not line.startswith(" "))
"""The tokens that values are concatenated from."""
_LONG = tuple(piece for piece in PIECES if len(piece) > 3)  # mostly words that requests use in another sense
_SPACED = tuple(
    line[1:] for line in _lines("pieces.txt") if line.startswith(" ")
)  # other tokens after a space
_ANY_WORDS = sorted(
    {
        found
        for name in ("wordings.toml", "wordings_it.toml", "vocabulary.toml", "words.txt", "words_it.txt")
        for found in re.findall(r"[a-zàèéìòù]{2,9}", (files(__package__) / name).read_text("utf-8").lower())
    }
)  # pieces of invented words, never words by themselves
FORMS = Forms(
    read_toml(__package__, "forms.toml"),
    LISTS_OF_WORDS,
    LISTS_OF_WORDS["decoys"],
    LISTS,
    {
        "word": WORDS["en"],
        "other_word": WORDS["it"],
        "it": {"word": WORDS["it"], "other_word": WORDS["en"]},
        "any_word": _ANY_WORDS,
        "piece": PIECES,
        "long": _LONG,
        "spaced": _SPACED,
        "long_word": [piece.lower() for piece in _LONG],
        "spaced_word": [piece.lower() for piece in _SPACED],
    },
    split=(
        "name",
        "place",
        "usual_folder",
        "usual_file",
        "thing",
        "word",
        "other_word",
        "long_word",
        "spaced_word",
    ),
)
draw, members = FORMS.draw, FORMS.members


def _drawn(random: Source, template: str, fits: Callable[[str], bool] = bool, /, **given: object) -> str:
    while True:
        made = draw(random, template, **given)
        if fits(made) and not RESERVED.search(made):
            return made


def odd(random: Source, name: str) -> str:
    """Return a value of pieces."""

    def fits(made: str) -> bool:
        return len(made) > 1 and all(map(random.draws, [made, *_WORD.findall(made)]))

    return _drawn(random, f"{{{name}_of_pieces}}", fits)


def _value(random: Source, name: str, **given: object) -> str:
    """Return a value in one of its forms, in training sometimes of pieces."""
    return odd(random, name) if random.trains(ODD_SHARE) else _drawn(random, f"{{new_{name}}}", **given)


def _said(random: Source, name: str, **given: object) -> str:
    """Return a value, in training sometimes one said before: its position is to decide, not its novelty."""
    said = random.again(AGAIN_SHARE) or _value(random, name, **given)
    random.recent.append(said)
    return said


def noun(random: Source) -> str:
    """Return a word: mostly one of the language, sometimes one of the other language, or an invented one."""
    return _said(random, "noun")


def pseudo_word(random: Source) -> str:
    """Return an invented word, which a model can only copy."""
    template = "{syllables}" if random.held_out else "{new_pseudo_word}"
    return _drawn(random, template, lambda made: len(made) > 2 and random.draws(made))


def text(random: Source) -> str:
    """Return the content of a file or a message."""
    return _value(random, "text")


def address(random: Source) -> str:
    """Return an email address."""
    template = "{address_of_pieces}" if random.trains(ODD_SHARE) else "{new_address}"
    return _drawn(random, template, lambda made: made.isascii() and ".." not in made)


def day(random: Source) -> str:
    """Return a date, YYYY-MM-DD."""
    return (date(2024, 1, 1) + timedelta(days=random.randint(0, 2200))).isoformat()


def _stem(random: Source, kind: str) -> str:
    """Return the name of a file or folder, without extension."""
    return _said(random, "stem", known=draw(random, f"{{usual_{kind}}}"))


def _glued(random: Source) -> str:
    """Return one to four pieces, mostly in small letters."""
    change = random.choices((str.lower, str.capitalize, str.upper, str), (60, 20, 3, 17))[0]
    return change(odd(random, "glued"))


def _listed_words(random: Source) -> str:
    """Return a list of words; in training some of them are the same."""
    template = random.choice(("{thing}", "{word}"))
    named = [draw(random, template) for _ in range(random.randint(1, 4))]
    if random.trains(0.6):
        named = [random.choice(named) for _ in range(random.randint(2, 6))]
    return listed(named, random)


def _sentence(random: Source) -> str:
    given = {"n": "{1-30}", "name": "[{name}|{Name}]", "place": "[{place}|{Place}]"}
    slots = {name: draw(random, template) for name, template in given.items()}
    return word(random.choices(LISTS["sentences"][random.language]), random, Slots(FORMS, random, slots))


def _sentence_with_quotes(random: Source) -> str:
    said = _sentence(random).split(" ")
    at = random.randrange(len(said))
    return " ".join([*said[:at], f'"{said[at]}"', *said[at + 1 :]])


def _odd_words(random: Source) -> str:
    """Return one to sixteen words, with marks among them."""
    count = random.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12, 16))
    marks = random.choice((0.0, 0.0, 0.06, 0.25))
    gaps = ["{between}" if random.random() < marks else " " for _ in range(count - 1)]
    return draw(random, "{odd_word}".join(["", *gaps, ""]))


FORMS.functions |= {
    "noun": noun,
    "pseudo_word": pseudo_word,
    "text": text,
    "address": address,
    "day": day,
    **{f"{kind}_stem": partial(_stem, kind=kind) for kind in ("file", "folder", "subfolder")},
    "repeated": lambda random: random.choice(PIECES) * random.randint(2, 4),
    "glued": _glued,
    **{f"odd_{name}": partial(odd, name=name) for name in ("noun", "stem")},
    "odd_words": _odd_words,
    "listed_words": _listed_words,
    "sentence": _sentence,
    "sentence_with_quotes": _sentence_with_quotes,
}
