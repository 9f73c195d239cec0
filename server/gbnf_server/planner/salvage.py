"""Build an answer from a run's tool results: the prompt for it, and how to parse the response.

One question without tools: it contains the tool results, each under the number of its step, and requests
those numbers in brackets. The grammar is that of lines of plain text. A response that is a tool call, also a
malformed one, copies the question or repeats itself is not used; the answer is then the result in its own
words, or a list of the results.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from gbnf.calls import FinalAnswer, parse_tool_calls
from gbnf.compiler.grammar import Grammar
from gbnf.errors import clip
from gbnf.prompts.messages import Message, result_text
from gbnf.protocols.readers import looks_like_call
from gbnf.requests import wording
from gbnf.requests.texts import is_apology
from gbnf.requests.values import LONGEST_REQUEST
from gbnf.tools import FINAL_ANSWER
from gbnf.tools.tool import localized
from gbnf_server.backends.answer import Asked, collect_answer
from gbnf_server.backends.base import Backend, Completion, Request
from gbnf_server.planner.answer_checks import FENCED, is_blank, is_fragment, words
from gbnf_server.planner.events import Run, SalvagedAnswer, Step
from gbnf_server.system.event_loop import run_in_thread

GRAMMAR = r"""
root ::= line ("\n" line?){0,40}
line ::= first character{0,399}
first ::= [^\x00-\x20\x7F-\xA0<`>#*_=|~{\x5B•·–—-]
character ::= [^\x00-\x1F\x7F-\x9F\u2028\u2029<>] | "<" [^\x00-\x1F\x7F-\x9F</>] | [ =-] ">"
"""
"""Lines of text, without markup at their beginning and without tags."""

DEFAULT_TIMEOUT_S = 120.0
_GRACE_S = 0.5  # until the waiting thread gives up: the event loop may be blocked
_PLAIN_TEXT = {
    "en": "Answer in plain text, and nothing else.",
    "it": "Rispondi in testo semplice, e nient'altro.",
}
_REASONING = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_REASONING_END = re.compile(r".*</(?:think|thinking|thought|reasoning)>", re.DOTALL)

_RESULT_LIMIT = 600  # characters of one result, for the model and for the list
_ANSWER_LIMIT = 2000  # the same for an answer to what is done
_INTERNAL = re.compile(r'"step":|^\s*\[\d+\]\s*\w+:\s*\{', re.MULTILINE)
"""How the question renders results."""
_COPIED_WORDS = 6
_REQUEST_WORDS = 4  # fewer may be the answer, such as one of two that the request names
_SHORT_TEXT = 300
_REPEATED = re.compile(r"(\S.{3,200}?)(?:\s*\1){2,}", re.DOTALL)  # the same words three times in a row
COPIED = "error: the model copied the question"
APOLOGY = "error: the model apologised for what is done"
_ASKED = {
    "en": (
        "The request was: {query}\n\nThis was found:\n{found}\n\n"
        "Answer the request from this alone, and say what is missing. "
        "After what you take from a result, write its number in brackets."
    ),
    "it": (
        "La richiesta era: {query}\n\nÈ stato trovato questo:\n{found}\n\n"
        "Rispondi alla richiesta solo con questo, e di' che cosa manca. "
        "Dopo ciò che prendi da un risultato, scrivi il suo numero tra parentesi quadre."
    ),
}
_DONE = {
    "en": (
        "Request: {query}\n\nThis was done, with these results:\n{found}\n\n"
        "Tell the person the result in one or two sentences, in the language of the request."
    ),
    "it": "Richiesta: {query}\n\nRisultati:\n{found}\n\nDi' alla persona il risultato, in una o due frasi.",
}
DONE = {"en": "Done: ", "it": "Fatto: "}
"""What a second answer begins with, to a request for a change that the first one only repeats."""
_LISTED = {
    "en": "This was done before it stopped:\n{found}",
    "it": "Prima di fermarsi è stato fatto questo:\n{found}",
}


def salvage(
    run: Run,
    backend: Backend | None = None,
    *,
    grammar: bool = True,
    language: str = "en",
    max_tokens: int = 256,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> SalvagedAnswer | None:
    """Return an answer for a finished run without one; None if it has one, or has no results. Never raises.

    The planner does the same at the end of each of its runs (`PlannerOptions.salvage`); this is for a run
    that already exists, and for another model. The answer is the text of `backend`, if it can be used and
    comes in time, else that of the results. `grammar=False` is for servers that accept none.
    """
    done = with_results(run.steps)
    if run.answer is not None or not done:
        return None
    if backend is None:
        return answer_from_results(done, language)
    request = Request(
        messages(run.query, done, language),
        text_grammar() if grammar else None,
        max_tokens=max_tokens,
        timeout_s=timeout_s,
    )
    asking = asyncio.wait_for(collect_answer(backend, Asked(request)), timeout_s)
    try:
        # a loop of its own, not `shared_loop`: a backend that blocks it would hold up every other caller
        answer = run_in_thread(lambda: asyncio.run(asking)).result(timeout_s + _GRACE_S)
    except TimeoutError:
        return answer_from_results(done, language, f"hang: no answer within {timeout_s:g} s")
    except Exception as error:  # noqa: BLE001  # whatever a backend raises
        return answer_from_results(done, language, f"error: {error or type(error).__name__}")
    return read(answer.completion, run.query, done, language)


@cache
def text_grammar(beginning: str = "") -> Grammar:
    """Return the grammar of a salvaged answer; of one line that begins with a text, if there is one."""
    return Grammar.parse(
        re.sub(r"(?m)^root .*$", f'root ::= "{beginning}" line', GRAMMAR) if beginning else GRAMMAR
    )


def messages(query: str, done: Sequence[Step], language: str = "en") -> tuple[Message, ...]:
    """Return the conversation that asks for an answer from the results."""
    asked = f"{question(query, done, language)}\n\n{localized(_PLAIN_TEXT, language)}"
    return ({"role": "user", "content": asked},)


def answer_messages(query: str, done: Sequence[Step], language: str = "en") -> tuple[Message, ...]:
    """Return the conversation that asks for the answer to a request for which all is done."""
    results = "\n".join(
        f"- {str(step.name).replace('_', ' ')}: {clip(_plain(step.result), _ANSWER_LIMIT)}" for step in done
    )
    return ({"role": "user", "content": localized(_DONE, language).format(query=query, found=results)},)


def with_results(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps that have a result, the first of those with equal calls and results."""
    unique: dict[str, Step] = {}
    for step in steps:
        if step.result is not None:
            unique.setdefault(json.dumps([step.call, step.result], sort_keys=True, default=repr), step)
    return tuple(unique.values())


def question(query: str, done: Sequence[Step], language: str = "en") -> str:
    """Return the question: the request, and the results of the steps `done`."""
    results = "\n".join(
        f"[{step.number}] {step.name}: {result_text(step.number, step.result or {}, limit=_RESULT_LIMIT)}"
        for step in done
    )
    return localized(_ASKED, language).format(query=query, found=results)


def read(
    completion: Completion,
    query: str,
    done: Sequence[Step],
    language: str = "en",
    *,
    may_restate: bool = False,
) -> SalvagedAnswer:
    """Return the model's answer; the results if it is a tool call, or says nothing.

    `may_restate`: it may be the request in other words, since all of it is done.
    """
    answer = _REASONING.sub("", completion.text, count=1)
    if ending := _REASONING_END.match(answer):
        answer = answer[ending.end() :]
    if fenced := FENCED.fullmatch(answer):
        answer = fenced[1]
    if completion.finish_reason == "length" or completion.shortened_at is not None:
        answer = answer.rpartition("\n")[0]  # the last line is not the model's own
    answer = answer.strip()
    step = parse_tool_calls(answer, (FINAL_ANSWER,))
    if not isinstance(step, FinalAnswer):
        message = (
            step.calls[0].arguments.get("message") if step.calls and not step.calls[0].truncated else None
        )
        if not isinstance(message, str):
            return answer_from_results(done, language, "error: the model wrote a call and no answer")
        answer = message
    elif looks_like_call(answer):
        return answer_from_results(
            done, language, "error: the model wrote something like a call and no answer"
        )
    if is_blank(answer) or is_fragment(answer, done):
        return answer_from_results(done, language, "error: the model wrote no answer")
    if copies_question(answer, query, language, may_restate=may_restate):
        return answer_from_results(done, language, COPIED)
    if may_restate and is_apology(answer, query):
        return answer_from_results(done, language, APOLOGY)
    if any(sum(map(str.isalpha, repetition[1])) > 3 for repetition in _REPEATED.finditer(answer)):
        return answer_from_results(done, language, "error: the model repeated itself")
    numbers = tuple(step.number for step in done)
    named = {int(number) for number in re.findall(r"\[(\d{1,9})\]", answer)}
    return SalvagedAnswer(answer, "model", tuple(number for number in numbers if number in named) or numbers)


def answer_from_results(done: Sequence[Step], language: str = "en", error: str = "") -> SalvagedAnswer:
    """Return the result, or a list of the results. `error` says why the model's answer is not used."""
    if len(done) == 1 and (result := done[0].result):
        only = next(iter(result.values())) if len(result) == 1 else result
        if text := clip(_plain(only), _RESULT_LIMIT):
            return SalvagedAnswer(text, "list", (done[0].number,), error)
    lines = "\n".join(f"- {step.name}: {clip(_plain(step.result), _RESULT_LIMIT)}" for step in done)
    numbers = tuple(step.number for step in done)
    return SalvagedAnswer(localized(_LISTED, language).format(found=lines), "list", numbers, error)


def copies_question(answer: str, query: str, language: str = "en", *, may_restate: bool = False) -> bool:
    """Return whether an answer has what only the question has, or is for the most part the request."""
    if _INTERNAL.search(answer):
        return True
    reply, request = words(answer), words(query)
    for asked in (localized(_ASKED, language), localized(_DONE, language)):
        labels = [line.partition(":")[0] for line in asked.splitlines() if ":" in line]
        if any(f"{label}:".casefold() in answer.casefold() for label in labels):
            return True
        instructions = words(f"{asked.format(query='', found='')} {localized(_PLAIN_TEXT, language)}")
        shared = _shared(reply, instructions)
        if shared >= _COPIED_WORDS or 2 < len(reply) == shared or reply == request:
            return True
    return not may_restate and len(reply) >= _REQUEST_WORDS and 10 * _shared(reply, request) >= 9 * len(reply)


def with_unread(answer: str, query: str, done: Sequence[Step], least: float = 0.5) -> str:
    """Return an answer with the entries of the last result after it, if it says no more than `least` of them.

    A small model says that it has read a file, and not what is in it. Words of the request say nothing. To a
    request for a text itself, an answer has each word of a short one: "read plan.txt" is not answered by
    "the plan was started on Monday".
    """
    result = done[-1].result or {}
    entries = result.get("entries")
    if not isinstance(entries, list) or not entries:
        return answer
    listed = "\n".join(_plain(entry) for entry in entries)
    reply, new = set(words(answer)), set(words(listed)) - set(words(query))
    if len(listed) <= _SHORT_TEXT and wording.ASKS_FOR_TEXT.fullmatch(query[:LONGEST_REQUEST]):
        least = 1.0
    says_enough = len(new & reply) >= max(least * len(new), 1) or not new
    return answer if says_enough else f"{answer}\n\n{clip(listed, _ANSWER_LIMIT)}"


def copies_words(reply: Sequence[str], source: Sequence[str]) -> bool:
    """Return whether the words of a reply have six in a row of those of another text."""
    return _shared(reply, source) >= _COPIED_WORDS


def _shared(some: Sequence[str], others: Sequence[str]) -> int:
    """Return the length of the longest run of words that both have."""
    return SequenceMatcher(None, some, others, autojunk=False).find_longest_match().size


def _plain(value: Any) -> str:
    match value:
        case {"entries": list(entries)} if entries:
            return ", ".join(_plain(entry) for entry in entries)
        case dict():
            return "; ".join(f"{key}: {_plain(member)}" for key, member in value.items()) or "done"
        case list():
            return ", ".join(_plain(member) for member in value) or "nothing"
        case _:
            return " ".join(str(value).split())
