"""Plan traces: requests of the demonstration model's world, with the calls and the answer that fulfil them.

A trace is made of parts (`intents.py`, `calendar_intents.py`), joined the way people join wishes. What must
stay true: everything is a pure function of the generator passed in; each call is valid against its shipped
manifest; the messages are those that the planner sends, byte for byte (`gbnf.prompt`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from gbnf.manifests import FINAL_ANSWER, Executor, load_manifests
from gbnf.prompt import call_text, error_text, result_text, system_prompt
from gbnf_server.embedded import calendar_intents, fact_intents, file_intents, message_intents, person_intents
from gbnf_server.embedded import vocabulary as v
from gbnf_server.embedded.parts import Part, Step, shortened
from gbnf_server.embedded.wording import closed
from gbnf_server.shipped import manifests_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

MakePart: TypeAlias = "Callable[[Random, int], Part]"
"""A generator of chance and the number of the part's first step -> the part."""

PARTS: tuple[tuple[float, MakePart, bool], ...] = (  # weight, intent, whether it may stand beside others
    (12.0, file_intents.create_dirs, True),
    (13.0, file_intents.write_files, True),
    (4.0, file_intents.create_then_write_inside, True),
    (8.0, file_intents.create_then_write_path, True),
    (5.0, file_intents.read_files, True),
    (3.0, file_intents.delete_files, True),
    (6.0, file_intents.find_files, True),
    (5.0, file_intents.find_read, True),
    (4.0, file_intents.find_delete, True),
    (9.0, message_intents.send_messages, True),
    (3.0, message_intents.write_send, True),
    (4.0, message_intents.find_send, True),
    (2.0, message_intents.read_send, True),
    (6.0, fact_intents.compute, True),
    (3.0, fact_intents.compute_then, True),
    (6.0, fact_intents.get_now, True),
    (1.5, fact_intents.now_then, True),
    (4.0, calendar_intents.find_slots, True),
    (1.5, calendar_intents.slots_send, True),
    (9.0, calendar_intents.slots_choose, False),
    (2.5, calendar_intents.slots_book, True),
    (7.0, calendar_intents.create_events, True),
    (1.5, person_intents.get_inputs, True),
    (1.0, person_intents.find_choose, False),
    (1.0, person_intents.undo_last_turn, False),
    (0.4, person_intents.find_drive, False),
    (0.3, person_intents.location, False),
)
HIDDEN = {  # what the pool filter keeps from requests that don't call for it
    "request_new_executor": (),
    "request_location_from_user": ("request_location_from_user",),
    "undo_last_turn": ("undo_last_turn",),
    "find_files_google_workspace": ("find_files_google_workspace",),
}
FALLIBLE = frozenset(
    {
        "read_files",
        "find_files",
        "send_messages",
        "delete_files",
        "find_files_google_workspace",
        "create_events",
    }
)
ERRORS = (
    "'{p}' does not exist",
    "there is no folder '{p}'; \".\" is the workspace",
    "'{p}' is no text file",
    "the person did not approve this call; it was not executed",
    "permission denied: '{p}'",
    "it took longer than 30 s and was stopped",
)
OPENINGS = (
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "please ",
    "can you ",
    "could you ",
    "could you please ",
    "I want you to ",
    "I'd like you to ",
    "hey, ",
    "would you ",
)
JOINTS = (
    " and ",
    " and ",
    ", then ",
    " and then ",
    ", and ",
    "; ",
    ", ",
    ". Then ",
    ", after that ",
    " then ",
)


@dataclass(frozen=True, slots=True)
class Trace:
    """A request, the steps that fulfil it, the answer, and the tools of the pool in their order."""

    request: str
    steps: tuple[Step, ...]
    answer: str
    pool: tuple[str, ...]

    def turns(self) -> list[tuple[str, str]]:
        """(role, content) of every message after the system's."""
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
        """The system message: the pool's tools, the built-in final answer last."""
        return pool_prompt(self.pool)


@cache
def _weights() -> tuple[tuple[MakePart, ...], tuple[float, ...], tuple[MakePart, ...], tuple[float, ...]]:
    social = [(part, weight) for weight, part, beside in PARTS if beside]
    return (
        tuple(part for _, part, _ in PARTS),
        tuple(weight for weight, _, _ in PARTS),
        tuple(part for part, _ in social),
        tuple(weight for _, weight in social),
    )


@cache
def executors() -> dict[str, Executor]:
    """The shipped executors by name, in name order."""
    return {executor.name: executor for executor in load_manifests(manifests_path())}


@cache
def pool_prompt(pool: tuple[str, ...]) -> str:
    """The system message of a pool of shipped executors, by name."""
    tools = [executors()[name] for name in pool]
    return system_prompt([*tools, FINAL_ANSWER], style="minimal")


def pool_for(random: Random, needed: frozenset[str]) -> tuple[str, ...]:
    """Mostly the shipped executors that the pool filter leaves; else some of them, or in another order."""
    names = tuple(executors())
    usual = tuple(name for name in names if name not in HIDDEN or name in needed)
    if "find_files_google_workspace" in needed and "find_files" not in needed:
        usual = tuple(name for name in usual if name != "find_files")
    kind = random.random()
    if kind < 0.7:
        return usual
    others = [name for name in (names if kind < 0.75 else usual) if name not in needed]
    size = random.randint(max(0, 5 - len(needed)), len(others))
    chosen = [*needed, *random.sample(others, size)]
    chosen.sort()
    if kind > 0.93:
        random.shuffle(chosen)
    return tuple(chosen)


def _failed(random: Random, part: Part) -> Part:
    """The same part, stopped by an error at one of its steps, which the answer tells."""
    fallible = [index for index, step in enumerate(part.steps) if step.name in FALLIBLE]
    if not fallible:
        return part
    index = random.choice(fallible)
    step = part.steps[index]
    named = (step.arguments.get("paths") or [step.arguments.get("base_path", v.file_path(random))])[0]
    template = random.choice(ERRORS)
    error = template.format(p=named)
    if "approve" in error and step.name in ("read_files", "find_files"):
        error = f"'{named}' does not exist"
    stopped = Step(step.name, step.arguments, None, error)
    return Part(part.clause, (*part.steps[:index], stopped), f"It did not work: {shortened(error)}.")


def _style(random: Random, text: str) -> str:
    """The request as typed: an opening, a capital, an end mark, each now and then."""
    opening = random.choice(OPENINGS)
    first = text.split(" ", 1)[0]
    if first not in (
        "what",
        "what's",
        "when",
        "am",
        "are",
        "do",
        "have",
        "I",
        "which",
        "how",
        "where",
        "on",
        "a",
        "one",
        "for",
        "at",
        "that",
    ) or opening in ("please ", "hey, "):
        text = opening + text
    if random.random() < 0.3:
        text = text[:1].upper() + text[1:]
    end = random.random()
    if end < 0.12 and not text.endswith((".", "!", "?", '"')):
        text += "."
    elif end < 0.16:
        text += random.choice((", please", " please", ", thanks"))
    question = text.lower().startswith(
        (
            "what",
            "when",
            "am i",
            "are we",
            "do i",
            "have i",
            "which",
            "how",
            "where",
            "can you",
            "could",
            "would",
        )
    )
    return f"{text}?" if question and random.random() < 0.5 and text[-1].isalnum() else text


def _combine(random: Random, makers: tuple[MakePart, ...]) -> tuple[str, tuple[Step, ...], str]:
    request = ""
    steps: tuple[Step, ...] = ()
    said: list[str] = []
    joint = random.choice(JOINTS)
    for index, make in enumerate(makers):
        part = make(random, len(steps) + 1)
        if random.random() < 0.03:
            part = _failed(random, part)
        if index == 0:
            request = part.clause
        elif index == len(makers) - 1:
            request += (
                joint if joint not in (", ", "; ") or random.random() < 0.5 else " and "
            ) + part.clause
        else:
            request += random.choice((", ", ", ", ", ", joint)) + part.clause
        steps += part.steps
        said.append(part.said)
    return request, steps, " ".join(said)


def trace(random: Random, *, parts: int | None = None) -> Trace:
    """One trace; `parts` wishes in the request (1-3, at random when absent)."""
    every, weights, social, social_weights = _weights()
    count = parts or random.choices((1, 2, 3), (0.6, 0.27, 0.13))[0]
    if count == 1:
        makers = tuple(random.choices(every, weights))
    elif count == 3 and random.random() < 0.3:
        # The shape that first runs have: a folder, a file, and something more.
        makers = (
            file_intents.create_dirs,
            file_intents.write_files,
            random.choices(social, social_weights)[0],
        )
    else:
        makers = tuple(random.choices(social, social_weights, k=count))
    request, steps, answer = _combine(random, makers)
    if len(steps) > 7 or len(request) > 420:
        return trace(random, parts=parts)
    pool = pool_for(random, frozenset(step.name for step in steps))
    return Trace(_style(random, closed(request)), steps, answer, pool)
