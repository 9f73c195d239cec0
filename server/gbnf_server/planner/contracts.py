"""Run an output contract against a backend: one question, and one of exactly three outcomes.

    success   the answer matches the contract; `values` are its values
    error     it doesn't, or the backend failed; `error` says why, `raw` is the response
    hang      no response within the time-out

Each outcome gives a `ContractResult`. A call that hangs is cancelled, and the caller continues at once, even
if the backend does not react.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from gbnf.contracts import Contract, InvalidAnswer
from gbnf.prompts.messages import Message
from gbnf_server.backends.answer import Answered, Asked, collect_answer
from gbnf_server.backends.base import Backend, Request
from gbnf_server.system.event_loop import run_in_thread

ContractOutcome: TypeAlias = Literal["success", "error", "hang"]

DEFAULT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ContractResult:
    """The outcome of a contract. `seconds` from question to outcome; `notes` as in `gbnf.contracts.Value`."""

    outcome: ContractOutcome
    values: Mapping[str, Any] = field(default_factory=dict)
    raw: str = ""
    error: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class ContractOptions(TypedDict, total=False):
    """How the question is asked, as `arun_contract` takes it."""

    grammar: bool
    system: str
    language: str
    max_tokens: int
    temperature: float
    seed: int


def run_contract(
    contract: Contract,
    question: str,
    backend: Backend,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    **options: Unpack[ContractOptions],
) -> ContractResult:
    """Ask `question`, followed by the contract's instructions, and parse the answer. Never raises.

    After `timeout_s` seconds the outcome is "hang". The options and their defaults are those of
    `arun_contract`.
    """
    begun = time.perf_counter()
    asking = arun_contract(contract, question, backend, timeout_s=timeout_s, **options)
    try:
        return run_in_thread(lambda: asyncio.run(asking)).result(timeout_s + _GRACE_S)
    except TimeoutError:
        return _timed_out(timeout_s, begun)


_GRACE_S = 0.5
"""Seconds after the event loop's time-out until the waiting thread gives up: the loop may be blocked."""


async def arun_contract(
    contract: Contract,
    question: str,
    backend: Backend,
    *,
    grammar: bool = True,
    system: str = "",
    language: str = "en",
    max_tokens: int = 512,
    temperature: float = 0.0,
    seed: int = 0,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> ContractResult:
    """As `run_contract`, for an event loop. `grammar=False` is for servers that accept none."""
    begun = time.perf_counter()
    task: asyncio.Task[Answered] | None = None
    try:
        request = Request(
            messages(contract, question, system=system, language=language),
            contract.grammar if grammar else None,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        )
        task = asyncio.ensure_future(collect_answer(backend, Asked(request)))
        # asyncio must not report an error that is raised after a hang
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if not done:
            return _timed_out(timeout_s, begun)
        completion = task.result().completion
    except Exception as error:  # noqa: BLE001  # any exception of a backend is an error of this run
        return ContractResult("error", error=str(error) or type(error).__name__, seconds=_since(begun))
    finally:
        if task is not None:
            task.cancel()  # without waiting for it to stop
    constrained = grammar and completion.grammar_violation is None
    text, truncated = completion.text, completion.finish_reason == "length"
    outcome = contract.parse(text, truncated=truncated, constrained=constrained)
    if isinstance(outcome, InvalidAnswer):
        return ContractResult("error", raw=text, error=outcome.reason, seconds=_since(begun))
    return ContractResult("success", outcome.values, text, notes=outcome.notes, seconds=_since(begun))


def messages(contract: Contract, question: str, *, system: str = "", language: str = "en") -> list[Message]:
    """Return the conversation: the system message if there is one, the question, and how to answer it."""
    asked: list[Message] = [{"role": "system", "content": system}] if system else []
    return [*asked, {"role": "user", "content": f"{question}\n\n{contract.prompt(language)}"}]


def _timed_out(timeout_s: float, begun: float) -> ContractResult:
    return ContractResult("hang", error=f"no answer within {timeout_s:g} s", seconds=_since(begun))


def _since(begun: float) -> float:
    return time.perf_counter() - begun
