"""Plan traces: requests to the demonstration model, with the calls and the answer that fulfil them.

A trace consists of parts (the `*_intents` modules), joined as people join requests. Invariants: everything is
a pure function of the generator; each call is valid against its bundled manifest; the messages are those that
the planner sends, byte for byte (`gbnf.prompts.messages`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from gbnf.prompts.messages import call_text, error_text, result_text
from gbnf.tools import FINAL_ANSWER
from training import calendar_intents, fact_intents, file_intents, person_intents
from training.forms import Slots
from training.parts import Part, Step, last_said, shortened
from training.pools import decoys_for, pool_for, pool_prompt
from training.source import Language, Source
from training.vocabulary import FORMS, LISTS_OF_WORDS, draw
from training.wording import LISTS, closed, fixed, word, wordings

MakePart: TypeAlias = Callable[[Source], Part]


def _intents(key: str) -> dict[MakePart, float]:
    """Return the functions of the `*_intents` modules that a table names, with their weights."""
    modules = (file_intents, fact_intents, calendar_intents, person_intents)
    functions = {name: found for module in modules for name, found in vars(module).items()}
    return {functions[name]: weight for name, weight in LISTS[key].items()}


INTENTS, WHOLE_REQUESTS = _intents("intents"), _intents("whole_requests")
"""Those that may be combined with others, and those that stand alone."""
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
            failed = error_text(number, step.error or "")
            outcome = failed if step.result is None else result_text(number, step.result)
            turns.append(("assistant", call_text({"name": step.name, "arguments": step.arguments})))
            turns.append(("tool", outcome))
        answer = {"name": FINAL_ANSWER.name, "arguments": {"message": self.answer}}
        return [*turns, ("assistant", call_text(answer))]

    def system(self) -> str:
        """Return the system message: the pool's tools, the built-in final answer last."""
        return pool_prompt(self.pool, self.decoys)


def _failed(random: Source, part: Part) -> Part:
    """Return the same part, stopped by an error at one of its steps, which the answer reports."""
    fallible = [index for index, step in enumerate(part.steps) if step.name in LISTS["fallible"]]
    if not fallible:
        return part
    index = random.choice(fallible)
    step = part.steps[index]
    paths = step.arguments.get("paths") or [step.arguments.get("base_path", draw(random, "{file_path}"))]
    error = random.choice(LISTS["errors"]).format(p=paths[0])
    if "approve" in error and step.name in ("read_files", "find_files"):
        error = f"'{paths[0]}' does not exist"
    said = fixed(random, "failed", x=shortened(error))
    return last_said(part.clause, *part.steps[:index], Step(step.name, step.arguments, None, said, error))


def _combine(random: Source, makers: Sequence[MakePart]) -> tuple[str, tuple[Step, ...]]:
    """Return a request of several parts, and its steps."""
    request = ""
    steps: list[Step] = []
    joints = wordings(random, "joints")
    joint = random.choice(joints)
    for index, make in enumerate(makers):
        part = make(random)
        if random.random() < 0.03:
            part = _failed(random, part)
        if 0 < index < len(makers) - 1:
            request += random.choice((", ", ", ", ", ", joint))
        elif index:
            request += joint if joint not in (", ", "; ") or random.random() < 0.5 else joints[0]
        request += part.clause
        before = len(steps)
        for step in part.steps:
            count = step.arguments.get("from_step")
            arguments = step.arguments | ({"from_step": count + before} if count else {})
            steps.append(replace(step, arguments=arguments))
    return request, tuple(steps)


def _refused(random: Source) -> Trace:
    """Return a request without a tool, and the answer that says so, sometimes after a useless step."""
    missing: tuple[str, ...] = ()
    if random.random() < 0.5:
        request = impossible(random)
        pool = pool_for(random, request, frozenset())
    else:
        whole = _feasible(random, random.choice((1, 1, 1, 1, 2) if random.held_out else (1, 1, 2, 2, 2, 3)))
        request, needed = whole.request, sorted({step.name for step in whole.steps})
        name = random.choice(needed)
        if name == "create_dirs" and "write_files" in needed:  # which makes the folders of its files
            name = "write_files"
        missing = (name,)
        pool = tuple(each for each in pool_for(random, request, frozenset(needed)) if each != name)
    decoys = decoys_for(random, (*missing, *pool)) if random.random() < 0.5 else ()
    useless = random.random() < 0.2 and "get_now" in pool
    steps = (fact_intents.now(random),) if useless else ()
    request = styled(random, to_me(random, request))
    return Trace(request, steps, fixed(random, "cannot"), pool, decoys, len(steps), random.language)


def _feasible(random: Source, count: int | None) -> Trace:
    count = count or random.choices((1, 2, 3), SUITE_SHARES if random.held_out else SHARES)[0]
    known = INTENTS if count > 1 else INTENTS | WHOLE_REQUESTS
    makers = random.choices(list(known), list(known.values()), k=count)
    if count == 3 and random.random() < 0.3:  # the shape of first runs: a folder, a file, and something more
        makers[:2] = file_intents.create_dirs, file_intents.write_files
    request, steps = _combine(random, makers)
    if len(steps) > 7 or len(request) > 420:
        return _feasible(random, count)
    request = closed(request)
    pool = pool_for(random, request, frozenset(step.name for step in steps))
    decoys = decoys_for(random, pool) if random.random() < 0.12 else ()
    answer = " ".join(step.said for step in steps if step.said)
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
    known, language = LISTS_OF_WORDS["impossible"], random.language
    requests = known[f"{language}_requests"] + ([] if random.held_out else known[f"{language}_more"])
    whole = word((random.choice(requests),), random, Slots(FORMS, random, {}))
    verbs = {"v": random.choice(known[language]), "vi": random.choice(known["it_infinitives"])}
    template = random.choice(wordings(random, "impossible"))
    return word((template,), random, Slots(FORMS, random, {"s": whole, **verbs}))


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
