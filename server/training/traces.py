"""Plan traces: requests to the demonstration model, with the calls and the answer that fulfil them.

A trace consists of parts (the `*_intents` modules), joined as people join requests. Invariants: everything is
a pure function of the generator; each call is valid against its bundled manifest; the messages are those that
the planner sends, byte for byte (`gbnf.prompts.messages`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from gbnf.prompts.messages import call_text, error_text, result_text
from gbnf.tools import FINAL_ANSWER
from training import calendar_intents, fact_intents, file_intents, person_intents
from training import vocabulary as v
from training.parts import Part, Step, shortened
from training.pools import decoys_for, pool_for, pool_prompt
from training.source import Language, Source
from training.wording import LISTS, closed, fixed, word, wordings

MakePart: TypeAlias = Callable[[Source, int], Part]
"""Returns a part, for a random generator and the number of the part's first step."""

PARTS: tuple[tuple[float, MakePart, bool], ...] = (  # weight, intent, whether it may be combined with others
    (12.0, file_intents.create_dirs, True),
    (13.0, file_intents.write_files, True),
    (4.0, file_intents.create_then_write_inside, True),
    (8.0, file_intents.create_then_write_path, True),
    (5.0, file_intents.read_files, True),
    (3.0, file_intents.delete_files, True),
    (6.0, file_intents.find_files, True),
    (5.0, file_intents.find_read, True),
    (4.0, file_intents.find_delete, True),
    (9.0, person_intents.send_messages, True),
    (3.0, person_intents.write_send, True),
    (4.0, person_intents.find_send, True),
    (2.0, person_intents.read_send, True),
    (3.0, person_intents.known_file, True),
    (6.0, fact_intents.compute, True),
    (3.0, fact_intents.compute_then, True),
    (6.0, fact_intents.get_now, True),
    (1.5, fact_intents.now_then, True),
    (4.0, calendar_intents.find_slots, True),
    (1.5, calendar_intents.slots_send, True),
    (9.0, calendar_intents.slots_choose, False),
    (2.5, calendar_intents.slots_book, True),
    (7.0, calendar_intents.create_events, True),
    (2.0, person_intents.get_inputs, True),
    (1.4, person_intents.find_choose, False),
    (1.6, person_intents.undo_last_turn, False),
    (1.3, person_intents.find_drive, False),
    (0.8, person_intents.location, False),
)
FALLIBLE = frozenset(LISTS["fallible"])
SHARES, SUITE_SHARES = (0.3, 0.36, 0.34), (0.55, 0.3, 0.15)
"""Weights of requests with one, two and three parts: in training, and in the held-out suite."""
REFUSED_SHARE, SUITE_REFUSED_SHARE = 0.18, 0.12
"""Share of traces whose request no tool can fulfil: in training, and in the held-out suite."""
_NO_OPENING = frozenset(LISTS["no_opening"])
_QUESTIONS = tuple(LISTS["questions"])


@dataclass(frozen=True, slots=True)
class Trace:
    """A request, the steps that fulfil it, the answer, and the tools of the pool in their order.

    `decoys` are signatures of tools that don't exist; the first `given` steps are not the model's, and have
    no loss.
    """

    request: str
    steps: tuple[Step, ...]
    answer: str
    pool: tuple[str, ...]
    decoys: tuple[str, ...] = ()
    given: int = 0
    language: Language = "en"

    def turns(self) -> list[tuple[str, str]]:
        """The (role, content) of every message after the system message."""
        turns = [("user", self.request)]
        for number, step in enumerate(self.steps, 1):
            turns.append(("assistant", call_text({"name": step.name, "arguments": step.arguments})))
            if step.result is None:
                turns.append(("tool", error_text(number, step.error or "")))
            else:
                turns.append(("tool", result_text(number, step.result)))
        turns.append(
            ("assistant", call_text({"name": FINAL_ANSWER.name, "arguments": {"message": self.answer}}))
        )
        return turns

    def system(self) -> str:
        """Return the system message: the pool's tools, the built-in final answer last."""
        return pool_prompt(self.pool, self.decoys)


def _draw(random: Source, count: int, *, combined: bool) -> tuple[MakePart, ...]:
    """Return intents by their weights; `combined`: those that may be combined with others."""
    known = [(part, weight) for weight, part, beside in PARTS if beside or not combined]
    parts, weights = zip(*known, strict=True)
    return tuple(random.choices(parts, weights, k=count))


def _failed(random: Source, part: Part) -> Part:
    """Return the same part, stopped by an error at one of its steps, which the answer reports."""
    fallible = [index for index, step in enumerate(part.steps) if step.name in FALLIBLE]
    if not fallible:
        return part
    index = random.choice(fallible)
    step = part.steps[index]
    named = (step.arguments.get("paths") or [step.arguments.get("base_path", v.file_path(random))])[0]
    template = random.choice(LISTS["errors"])
    error = template.format(p=named)
    if "approve" in error and step.name in ("read_files", "find_files"):
        error = f"'{named}' does not exist"
    stopped = Step(step.name, step.arguments, None, error)
    said = fixed(random, "failed", x=shortened(error))
    return Part(part.clause, (*part.steps[:index], stopped), said)


def _combine(random: Source, makers: tuple[MakePart, ...]) -> tuple[str, tuple[Step, ...], str]:
    request = ""
    steps: tuple[Step, ...] = ()
    said: list[str] = []
    joints = wordings(random, "joints")
    joint = random.choice(joints)
    for index, make in enumerate(makers):
        part = make(random, len(steps) + 1)
        if random.random() < 0.03:
            part = _failed(random, part)
        if index == 0:
            request = part.clause
        elif index == len(makers) - 1:
            request += (
                joint if joint not in (", ", "; ") or random.random() < 0.5 else joints[0]
            ) + part.clause
        else:
            request += random.choice((", ", ", ", ", ", joint)) + part.clause
        steps += part.steps
        said.append(part.said)
    return request, steps, " ".join(said)


def _refused(random: Source) -> Trace:
    """Return a request without a tool, and the answer that says so, sometimes after a useless step."""
    steps: tuple[Step, ...] = ()
    decoys: tuple[str, ...] = ()
    if random.random() < 0.5:
        request = impossible(random)
        pool = pool_for(random, request, frozenset())
        if random.random() < 0.5:
            decoys = decoys_for(random, pool)
    else:
        whole = _feasible(random, random.choice((1, 1, 1, 1, 2) if random.held_out else (1, 1, 2, 2, 2, 3)))
        needed = sorted({step.name for step in whole.steps})
        missing = random.choice(needed)
        if missing == "create_dirs" and "write_files" in needed:  # which makes the folders of its files
            missing = "write_files"
        request = whole.request
        kept = pool_for(random, request, frozenset(needed))
        pool = tuple(name for name in kept if name != missing)
        if random.random() < 0.5:
            decoys = decoys_for(random, (missing, *pool))
    if random.random() < 0.2 and "get_now" in pool:
        steps = (fact_intents.get_now(random, 1).steps[0],)
        steps = (Step("get_now", {}, steps[0].result),)
    return Trace(
        styled(random, to_me(random, request)),
        steps,
        fixed(random, "cannot"),
        pool,
        decoys,
        len(steps),
        random.language,
    )


def _feasible(random: Source, count: int | None) -> Trace:
    count = count or random.choices((1, 2, 3), SUITE_SHARES if random.held_out else SHARES)[0]
    if count == 1:
        makers = _draw(random, 1, combined=False)
    elif count == 3 and random.random() < 0.3:
        # The shape that first runs have: a folder, a file, and something more.
        makers = (file_intents.create_dirs, file_intents.write_files, *_draw(random, 1, combined=True))
    else:
        makers = _draw(random, count, combined=True)
    request, steps, answer = _combine(random, makers)
    if len(steps) > 7 or len(request) > 420:
        return _feasible(random, count)
    request = closed(request)
    pool = pool_for(random, request, frozenset(step.name for step in steps))
    decoys = decoys_for(random, pool) if random.random() < 0.12 else ()
    return Trace(request, steps, answer, pool, decoys, language=random.language)


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


def trace(random: Random, *, parts: int | None = None, language: Language | None = None) -> Trace:
    """Return a trace. `parts`: those of the request; by default 1 to 3 at random, sometimes an impossible
    one.

    A plain generator draws from the half of training; a `Source` may draw from the other one.
    """
    held_out = isinstance(random, Source) and random.held_out
    chosen: Language = language or ("en" if random.random() < 0.55 else "it")
    source = Source(random.getrandbits(64), chosen, held_out=held_out)
    if parts is None and source.random() < (SUITE_REFUSED_SHARE if held_out else REFUSED_SHARE):
        return _refused(source)
    made = _feasible(source, parts)
    return replace(made, request=styled(source, to_me(source, made.request)))
