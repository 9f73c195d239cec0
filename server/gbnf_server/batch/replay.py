"""What the world answered to one run, kept as it happens: an interrupted run goes on from it.

The planner's loop does the same again where it gets the same replies. So a run that was interrupted is
played from its tape, without asking the model or executing anything, up to where the tape ends.

What must stay true: that a tool begins is on the tape before it does, and what it gave before anybody reads
it. So a tool whose end is missing was in progress when the process ended, and only of that one nobody knows
what it did.

What a person typed as a credential is never on the tape, only the handle that stands for it, and what the
person was asked. A run that goes on asks again once a tool is called with the handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gbnf.tools import Tool
from gbnf_server.backends.base import Completer, Completion
from gbnf_server.errors import BackendError, BackendUnreachable, ExecutorError, ServerResponseError
from gbnf_server.executors import Context, Field, Form, Person, run_executor
from gbnf_server.executors.results import without_deep_values

LogEntry = Mapping[str, Any]


class ReplayError(Exception):
    """The tape does not fit the run: something that decides it has changed. The loop must not see it."""


class InterruptedCallError(Exception):
    """A tool that changes things was in progress when the process ended. Field: `call`."""

    def __init__(self, call: Mapping[str, Any]) -> None:
        self.call = call
        super().__init__(f"{call['name']} was in progress")


class Replay:
    """A run's replies: those of before are played, new ones recorded with `keep(entry, durable=…)`."""

    def __init__(self, entries: Sequence[LogEntry], keep: Callable[..., None]) -> None:
        self._played = list(reversed(entries))
        self._keep = keep
        #: Set where the model went away, or turned everybody away: what came of that isn't worth keeping.
        self.backend_error: BackendError | None = None
        self._typed: dict[str, str] = {}  # what the person was asked, by handle: of all that is on the tape

    def backend(self, backend: Completer) -> Completer:
        return _ReplayedBackend(backend, self)

    def person(self, person: Person) -> Person:
        return _ReplayedPerson(person, self)

    def execute(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """As `run_executor`. Raises InterruptedCallError too, and TapeError."""
        call = {"name": tool.name, "arguments": arguments}
        begun = self.next("begun")
        if begun is not None:
            if begun["call"] != call:
                raise ReplayError(f"the run called {begun['call']} before, and calls {call} now")
            done = self.next("done")
            if done is not None:
                self._typed |= done.get("typed", {})
                if "error" in done:
                    raise ExecutorError(done["error"])
                return dict(without_deep_values(done["result"]))  # a version before this one kept any depth
            if tool.run.effect != "read":
                raise InterruptedCallError(call)
        refused = self._ask_again(
            arguments, context
        )  # before the tool begins: nothing is done while one waits
        if begun is None:
            self.record("begun", call=call, durable=tool.run.effect != "read")
        try:
            if refused is not None:
                raise refused
            result = run_executor(tool, arguments, context)
        except ExecutorError as error:
            self._done(context, error=error.message)
            raise
        self._done(context, result=result, durable=tool.run.effect != "read")
        return result

    def _done(self, context: Context, *, durable: bool = False, **came: Any) -> None:
        """Record how a tool ended, and which credentials it asked for."""
        prompts = context.secrets.prompts
        typed = {handle: prompts[handle] for handle in prompts.keys() - self._typed.keys()}
        self._typed |= typed
        self.record("done", durable=durable, **came, **({"typed": typed} if typed else {}))

    def _ask_again(self, arguments: Any, context: Context) -> ExecutorError | None:
        """Have the person type the credentials that the arguments need; why not, where nobody did."""
        missing = self._typed.keys() - context.secrets.prompts.keys()
        wanted = {handle: self._typed[handle] for handle in _texts(arguments) if handle in missing}
        if not wanted:
            return None
        fields = tuple(Field(handle, prompt, "credentials") for handle, prompt in wanted.items())
        try:
            values = context.person.answer(Form("The run was interrupted, and does not keep these", fields))
        except ExecutorError as error:
            return ExecutorError(f"credentials aren't kept, and are asked for again: {error.message}")
        for handle, prompt in wanted.items():
            context.secrets.restore(handle, values[handle], prompt)
        return None

    def next(self, kind: str) -> LogEntry | None:
        """The next entry, which is of this kind; None where the tape has ended. Raises TapeError."""
        if not self._played:
            return None
        entry = self._played.pop()
        if entry["kind"] != kind:
            raise ReplayError(f"the run did something else before: {entry['kind']} stands for {kind}")
        return entry

    def is_next(self, kind: str) -> bool:
        """Whether the next entry that is played is of this kind."""
        return bool(self._played) and self._played[-1]["kind"] == kind

    def record(self, kind: str, *, durable: bool = False, **content: Any) -> None:
        self._keep({"kind": kind, **content}, durable=durable)


class _ReplayedBackend:
    """A backend whose completions are on the tape. Its errors are not: who goes on tries again."""

    def __init__(self, backend: Completer, replay: Replay) -> None:
        self._backend, self._replay = backend, replay

    def complete(self, *given: Any, **limits: Any) -> Completion:
        played = self._played(limits)
        if played is not None:
            return played
        try:
            completion = self._backend.complete(*given, **limits)
        except (BackendUnreachable, ServerResponseError) as error:
            self._note(error)
            raise
        self._replay.record("model", completion=asdict(completion))
        return completion

    async def acomplete(self, *given: Any, **limits: Any) -> Completion:
        played = self._played(limits)
        if played is not None:
            return played
        try:
            completion = await self._backend.acomplete(*given, **limits)
        except (BackendUnreachable, ServerResponseError) as error:
            self._note(error)
            raise
        self._replay.record("model", completion=asdict(completion))
        return completion

    def _note(self, error: BackendUnreachable | ServerResponseError) -> None:
        if isinstance(error, BackendUnreachable) or error.is_retryable:
            self._replay.backend_error = error

    def _played(self, limits: Mapping[str, Any]) -> Completion | None:
        if self._replay.backend_error is not None:
            raise self._replay.backend_error  # what came after it would stand in its place on the tape
        entry = self._replay.next("model")
        if entry is None:
            return None
        completion = Completion(**entry["completion"])
        if limits.get("on_text") is not None:
            limits["on_text"](completion.text)
        return completion


class _ReplayedPerson:
    """A person whose approvals are on the tape. Answers inside a tool belong to the tool's result."""

    def __init__(self, person: Person, replay: Replay) -> None:
        self._person, self._replay = person, replay

    def answer(self, form: Form) -> dict[str, Any]:
        return self._person.answer(form)

    def approve(self, call: Mapping[str, Any]) -> bool:
        if self._replay.is_next("model"):  # a log of a version that kept no refusal
            raise ExecutorError(f"'{call.get('name')}' needed a person's approval, and nobody was there")
        played = self._replay.next("approval")
        if played is not None:
            if "error" in played:
                raise ExecutorError(played["error"])
            return bool(played["approved"])
        try:
            approved = self._person.approve(call)
        except ExecutorError as error:
            self._replay.record("approval", error=error.message)
            raise
        self._replay.record("approval", approved=approved)
        return approved


def _texts(value: Any) -> Iterator[str]:
    """Every string in a JSON value that is no key."""
    match value:
        case str():
            yield value
        case Mapping():
            for inner in value.values():
                yield from _texts(inner)
        case list() | tuple():
            for inner in value:
                yield from _texts(inner)
