"""The replies to one run's effects, recorded as they arrive, from which an interrupted run resumes.

The planner loop is deterministic: with the same replies it does the same. So an interrupted run is replayed
from its log, without calling the model or executing anything, up to the end of the log.

Invariants: the start of a tool is logged before it starts, and its result before anybody reads it. So a tool
without a logged end was running when the process ended, and only the effect of that one is unknown.

Credentials are never logged, only their handles and the questions to the person. A resumed run asks again
when a tool is called with the handle.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from gbnf.strict_json import map_json
from gbnf.tools import Tool
from gbnf_server.backends.answer import Answered, AnswerEvent, AnswerSource, Asked
from gbnf_server.backends.base import Completion, Timings, Usage
from gbnf_server.executors import Context, Field, Form, Person, run_executor
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.system import errors

LogEntry = Mapping[str, Any]


class ReplayError(Exception):
    """The log does not match the run: something that determines it has changed. Not for the loop."""


class InterruptedCallError(Exception):
    """A tool with write effect was running when the process ended. Field: `call`."""

    def __init__(self, call: Mapping[str, Any]) -> None:
        self.call = call
        super().__init__(f"{call['name']} was in progress")


class Replay:
    """A run's replies: replayed from `entries`, then recorded with `keep(entry, durable=…)`."""

    def __init__(self, entries: Sequence[LogEntry], keep: Callable[..., None]) -> None:
        self._played = list(reversed(entries))
        self._keep = keep
        #: Set if the server was unreachable or refused service: the run is then not finished.
        self.backend_error: errors.BackendError | None = None
        self._typed: dict[str, str] = {}  # questions to the person, by handle, of all logged calls

    def answers(self, answers: AnswerSource) -> AnswerSource:
        """Wrap what asks the model: replay the completions, then record them.

        Overflows too, after which a run continues; other errors are not, and a resumed run tries again.
        """
        return partial(self._answer, answers)

    async def _answer(self, answers: AnswerSource, asked: Asked) -> AsyncGenerator[AnswerEvent, None]:
        played = self._completion()
        if played is not None:
            yield Answered(played)
            return
        try:
            async with aclosing(answers(asked)) as events:
                async for event in events:
                    if isinstance(event, Answered):
                        self.record("model", completion=asdict(event.completion))
                    yield event
        except errors.ContextOverflowError as error:
            self.record("model", overflow={"needed": error.needed, "available": error.available})
            raise
        except (errors.BackendUnreachableError, errors.ServerResponseError) as error:
            if isinstance(error, errors.BackendUnreachableError) or error.is_retryable:
                self.backend_error = error
            raise

    def _completion(self) -> Completion | None:
        if self.backend_error is not None:
            raise self.backend_error  # later replies would be logged in its place
        entry = self.next("model")
        if entry is None:
            return None
        if "overflow" in entry:
            raise errors.ContextOverflowError(**entry["overflow"])
        completion = entry["completion"]
        usage, timings = Usage(**completion["usage"]), Timings(**completion["timings"])
        probable = tuple(ValueProbability(**each) for each in completion.get("probabilities", ()))
        read = {"usage": usage, "timings": timings, "probabilities": probable, "logprobs": (), "trace": ()}
        return Completion(**{**completion, **read})

    def person(self, person: Person) -> Person:
        """Wrap a person: replay approvals, then record them."""
        return _ReplayedPerson(person, self)

    def execute(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """As `run_executor`; also raises InterruptedCallError and ReplayError."""
        call = {"name": tool.name, "arguments": arguments}
        begun = self.next("begun")
        if begun is not None:
            if begun["call"] != call:
                raise ReplayError(f"the run called {begun['call']} before, and calls {call} now")
            done = self.next("done")
            if done is not None:
                self._typed |= done.get("typed", {})
                if "output" in done and context.on_output is not None:
                    context.on_output(done["output"])
                if "error" in done:
                    raise errors.ExecutorError(done["error"])
                return dict(done["result"])
            if tool.run.effect != "read":
                raise InterruptedCallError(call)
        refused = self._ask_again(arguments, context)  # before the tool starts
        if begun is None:
            self.record("begun", call=call, durable=tool.run.effect != "read")
        printed: list[str] = []

        def on_output(output: str) -> None:
            printed.append(output)
            if context.on_output is not None:
                context.on_output(output)

        try:
            if refused is not None:
                raise refused
            result = run_executor(tool, arguments, replace(context, on_output=on_output))
        except errors.ExecutorError as error:
            self._done(context, [*printed, *getattr(error, "__notes__", ())], error=error.message)
            raise
        self._done(context, printed, result=result, durable=tool.run.effect != "read")
        return result

    def _done(self, context: Context, printed: Sequence[str], *, durable: bool = False, **came: Any) -> None:
        """Record how a tool ended, what it printed, and which credentials it asked for."""
        if printed:
            came["output"] = "\n".join(printed)
        prompts = context.secrets.prompts
        typed = {handle: prompts[handle] for handle in prompts.keys() - self._typed.keys()}
        self._typed |= typed
        self.record("done", durable=durable, **came, **({"typed": typed} if typed else {}))

    def _ask_again(self, arguments: Any, context: Context) -> errors.ExecutorError | None:
        """Ask the person again for the credentials in the arguments; return the error if nobody answers."""
        missing = self._typed.keys() - context.secrets.prompts.keys()
        scalars: list[Any] = []
        map_json(arguments, scalars.append)
        wanted = {handle: self._typed[handle] for handle in scalars if handle in missing}
        if not wanted:
            return None
        fields = tuple(Field(handle, prompt, "credentials") for handle, prompt in wanted.items())
        try:
            values = context.person.answer(
                Form("The run was interrupted, and credentials are not stored", fields)
            )
        except errors.ExecutorError as error:
            return errors.ExecutorError(
                f"credentials are not stored, and must be entered again: {error.message}"
            )
        for handle, prompt in wanted.items():
            context.secrets.restore(handle, values[handle], prompt)
        return None

    def next(self, kind: str) -> LogEntry | None:
        """Return the next entry, None at the end of the log. Raises ReplayError if it is of another kind."""
        if not self._played:
            return None
        entry = self._played.pop()
        if entry["kind"] != kind:
            raise ReplayError(f"the log has {entry['kind']!r} where the run expects {kind!r}")
        return entry

    def record(self, kind: str, *, durable: bool = False, **content: Any) -> None:
        """Log a reply."""
        self._keep({"kind": kind, **content}, durable=durable)


class _ReplayedPerson:
    """A person whose approvals are logged. Answers inside a tool are part of the tool's result."""

    def __init__(self, person: Person, replay: Replay) -> None:
        self._person, self._replay = person, replay

    def answer(self, form: Form) -> dict[str, Any]:
        return self._person.answer(form)

    def approve(self, call: Mapping[str, Any]) -> bool:
        played = self._replay.next("approval")
        if played is not None:
            if "error" in played:
                raise errors.ExecutorError(played["error"])
            return bool(played["approved"])
        try:
            approved = self._person.approve(call)
        except errors.ExecutorError as error:
            self._replay.record("approval", error=error.message)
            raise
        self._replay.record("approval", approved=approved)
        return approved
