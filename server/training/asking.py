"""How people type requests, and requests that no tool can fulfil."""

from __future__ import annotations

import re

from training import vocabulary as v
from training.source import Source
from training.wording import LISTS, word, wordings

_NO_OPENING = frozenset(LISTS["no_opening"])
_QUESTIONS = tuple(LISTS["questions"])


def styled(random: Source, text: str) -> str:
    """Return the request as typed: sometimes with an opening, a capital or an end mark."""
    opening = random.choice(wordings(random, "openings"))
    if text.split(" ", 1)[0].lower() in _NO_OPENING and not opening.endswith(
        (", ", "please ", "favore ", "? ")
    ):
        opening = ""
    text = opening + text
    if random.random() < 0.35:
        text = text[:1].upper() + text[1:]
    end = random.random()
    if end < 0.15 and not text.endswith((".", "!", "?", '"')):
        text += "."
    elif end < 0.2:
        text += random.choice(wordings(random, "endings"))
    asks = text.lower().startswith(_QUESTIONS)
    return f"{text}?" if asks and random.random() < 0.5 and text[-1].isalnum() else text


def to_me(random: Source, request: str) -> str:
    """Return a request with `mandami` instead of `manda a me`, as is usual in Italian."""
    if random.language == "it" and random.random() < 0.75:
        for verb in ("manda", "invia", "spedisci", "scrivi"):
            request = re.sub(rf"\b{verb} a me\b", f"{verb}mi", request)
    return request


def impossible(random: Source) -> str:
    """Return a request that no tool can fulfil."""
    language = random.language
    slots = {"n": v.noun(random), "n2": v.noun(random), "p": v.file_path(random), "p2": v.file_path(random)}
    name, place = random.word(v.NAMES), random.word(v.PLACES)
    slots |= {"name": name, "Name": name.capitalize(), "place": place, "Place": place.capitalize()}
    slots |= {"place2": random.word(v.PLACES), "k": str(random.randint(1, 12))}
    verb = random.choice(v.IMPOSSIBLE[language])
    slots["v"] = slots["vi"] = verb
    if language == "it":
        slots["vi"] = random.choice(v.IMPOSSIBLE["it_infinitives"])
    requests = v.IMPOSSIBLE[f"{language}_requests"]
    if not random.held_out:
        requests = [*requests, *v.IMPOSSIBLE[f"{language}_more"]]
    whole = word((random.choice(requests),), random, slots)
    template = random.choice(wordings(random, "impossible"))
    return word((template,), random, slots | {"s": whole})
