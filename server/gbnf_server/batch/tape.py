"""What the world answered to one run, kept as it happens: an interrupted run goes on from it.

The planner's loop does the same again where it gets the same replies. So a run that was interrupted is
played from its tape, without asking the model or executing anything, up to where the tape ends.

What must stay true: that a tool begins is on the tape before it does, and what it gave before anybody reads
it. So a tool whose end is missing was in progress when the process ended, and only of that one nobody knows
what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gbnf.manifests import Executor
from gbnf_server.backends.base import Backend, Completion
from gbnf_server.errors import BackendUnreachable, ExecutorError
from gbnf_server.executors import Context, Form, Person, run_executor

Entry = Mapping[str, Any]


class TapeError(Exception):
    """The tape does not fit the run: something that decides it has changed. The loop must not see it."""


class InterruptedCallError(Exception):
    """A tool that changes things was in progress when the process ended. Field: `call`."""

    def __init__(self, call: Mapping[str, Any]) -> None:
        self.call = call
        super().__init__(f"{call['name']} was in progress")


class Tape:
    """A run's replies: those of before are played, new ones recorded with `keep(entry, durable=…)`."""

    def __init__(self, entries: Sequence[Entry], keep: Callable[..., None]) -> None:
        self._played = list(reversed(entries))
        self._keep = keep
        #: Set where the model went away: what the run made of that is not worth keeping.
        self.lost: BackendUnreachable | None = None

    def backend(self, backend: Backend) -> Backend:
        return _TapedBackend(backend, self)

    def person(self, person: Person) -> Person:
        return _TapedPerson(person, self)

    def execute(self, executor: Executor, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """As `run_executor`. Raises InterruptedCallError too, and TapeError."""
        call = {"name": executor.name, "arguments": arguments}
        begun = self.next("begun")
        if begun is not None:
            if begun["call"] != call:
                raise TapeError(f"the run called {begun['call']} before, and calls {call} now")
            done = self.next("done")
            if done is not None:
                if "error" in done:
                    raise ExecutorError(done["error"])
                return dict(done["result"])
            if executor.run.effect != "read":
                raise InterruptedCallError(call)
        else:
            self.record("begun", call=call, durable=executor.run.effect != "read")
        try:
            result = run_executor(executor, arguments, context)
        except ExecutorError as error:
            self.record("done", error=error.message)
            raise
        self.record("done", result=result, durable=executor.run.effect != "read")
        return result

    def next(self, kind: str) -> Entry | None:
        """The next entry, which is of this kind; None where the tape has ended. Raises TapeError."""
        if not self._played:
            return None
        entry = self._played.pop()
        if entry["kind"] != kind:
            raise TapeError(f"the run did something else before: {entry['kind']} stands for {kind}")
        return entry

    def record(self, kind: str, *, durable: bool = False, **content: Any) -> None:
        self._keep({"kind": kind, **content}, durable=durable)


class _TapedBackend:
    """A backend whose completions are on the tape. Its errors are not: who goes on tries again."""

    def __init__(self, backend: Backend, tape: Tape) -> None:
        self._backend, self._tape = backend, tape

    def complete(self, *given: Any, **limits: Any) -> Completion:
        played = self._played(limits)
        if played is not None:
            return played
        try:
            completion = self._backend.complete(*given, **limits)
        except BackendUnreachable as error:
            self._tape.lost = error
            raise
        self._tape.record("model", completion=asdict(completion))
        return completion

    async def acomplete(self, *given: Any, **limits: Any) -> Completion:
        played = self._played(limits)
        if played is not None:
            return played
        try:
            completion = await self._backend.acomplete(*given, **limits)
        except BackendUnreachable as error:
            self._tape.lost = error
            raise
        self._tape.record("model", completion=asdict(completion))
        return completion

    def _played(self, limits: Mapping[str, Any]) -> Completion | None:
        entry = self._tape.next("model")
        if entry is None:
            return None
        completion = Completion(**entry["completion"])
        if limits.get("on_text") is not None:
            limits["on_text"](completion.text)
        return completion

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class _TapedPerson:
    """A person whose approvals are on the tape. Answers inside a tool belong to the tool's result."""

    def __init__(self, person: Person, tape: Tape) -> None:
        self._person, self._tape = person, tape

    def answer(self, form: Form) -> dict[str, Any]:
        return self._person.answer(form)

    def approve(self, call: Mapping[str, Any]) -> bool:
        played = self._tape.next("approval")
        if played is not None:
            return bool(played["approved"])
        approved = self._person.approve(call)
        self._tape.record("approval", approved=approved)
        return approved
