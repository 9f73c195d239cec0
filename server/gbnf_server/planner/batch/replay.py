"""The replies to one run's effects, recorded as they arrive, from which an interrupted run resumes.

The planner loop is deterministic: with the same replies at the same times it does the same. So an interrupted
run is replayed from its log, without calling the model, asking the person or executing anything, up to the
end of the log.

Invariants: every reply is logged before the loop gets it, errors as well, each with what it replies to. The
start of a tool is logged before it starts, and its result before anybody reads it. So a tool without a logged
end was running when the process ended, and only the effect of that one is unknown.

Credentials are never logged, only their handles and the questions to the person. A resumed run asks again
when a tool is called with the handle.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from gbnf.errors import GbnfError
from gbnf.strict_json import scalars_of
from gbnf.tool_formats import ReasoningDelta
from gbnf.tools import Tool
from gbnf_server.backends.answer import AnswerPiece, unfinished
from gbnf_server.backends.base import Completion
from gbnf_server.executors import Context, Field, Form, run_executor
from gbnf_server.planner.drivers import CancellablePerson, steady_clock
from gbnf_server.planner.events import AskApproval, AskPerson, CallModel
from gbnf_server.planner.loop import Planning
from gbnf_server.planner.model_calls import Clock, Part
from gbnf_server.planner.runs.run_log import RunLogError
from gbnf_server.system import errors

LogEntry = Mapping[str, Any]
_COMPLETIONS = TypeAdapter(
    tuple[Completion],  # a dataclass itself takes no configuration
    config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"),
)


class ReplayError(Exception):
    """The log does not match the run, or, if its cause is a RunLogError, cannot be written.

    It ends the run: it is no error that the loop may handle.
    """


class InterruptedCallError(Exception):
    """A tool with write effect was running when the process ended. Field: `call`."""

    def __init__(self, call: Mapping[str, Any]) -> None:
        self.call = call
        super().__init__(f"{call['name']} was in progress")


class Replay:
    """A run's replies: replayed from `entries`, then recorded with `keep(entry, durable=…)`.

    `began`: when the run began. An error after which the same request may succeed later must not come here:
    it is not part of the run (`RunEnvironment.resumes`).
    """

    def __init__(self, entries: Sequence[LogEntry], keep: Callable[..., None], began: datetime) -> None:
        self._played = deque(entries)
        self._keep = keep
        self._time, self._began = began, began
        self._present: Clock | None = None
        self._typed: dict[str, str] = {}  # questions to the person, by handle, of all logged calls

    def clock(self) -> datetime:
        """Return the time of the last reply while the run is replayed; then time goes on from there."""
        if self._played:
            return self._time
        self._present = self._present or steady_clock(self._time)
        return self._present()

    def planning(self, planning: Planning) -> Planning:
        """Reply to the effects of a run from the log, pass on the others, and record their replies."""
        reply: Any = None
        error: BaseException | None = None
        while True:
            try:
                request = planning.send(reply) if error is None else planning.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the run
            reply = error = None
            try:
                if isinstance(request, CallModel | AskPerson | AskApproval):
                    reply = yield from self._reply(request)
                else:  # `execute` records what a tool returns, also if the run is cancelled meanwhile
                    reply = yield request
            except BaseException as raised:  # noqa: BLE001  # it is raised in the loop, which may end by it
                error = raised

    def _reply(self, effect: CallModel | AskPerson | AskApproval) -> Part[Any]:
        """Return the logged reply to an effect; after the last one, pass the effect on and log its reply."""
        kind = f"model {effect.purpose}" if isinstance(effect, CallModel) else type(effect).__name__
        entry = self.next(kind)
        if entry is None:
            try:
                reply = yield effect
            except GbnfError as error:
                written = [
                    (piece.text, unfinished([piece]).reasoning)
                    for piece in (effect.pieces if isinstance(effect, CallModel) else ())
                ]
                self.record(kind, error=_error_to_json(error), written=written)
                raise
            logged = reply is True if isinstance(effect, AskApproval) else reply
            if isinstance(effect, CallModel):  # the tokens are read for a choice only
                tokens = reply.logprobs if effect.purpose == "choice" else ()
                shortened = replace(reply, logprobs=tokens, trace=())
                [logged] = _COMPLETIONS.dump_python((shortened,), mode="json")
            self.record(kind, reply=logged)
            return reply
        if "error" in entry:
            if isinstance(effect, CallModel):
                for text, reasoning in entry["written"]:
                    effect.pieces.append(AnswerPiece(text, (ReasoningDelta(reasoning),)))
            raise _read_error(entry["error"])
        if isinstance(effect, CallModel):
            return _COMPLETIONS.validate_json(json.dumps([entry["reply"]]))[0]
        return entry["reply"]

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
                    raise _read_error(done["error"])
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
        except GbnfError as error:
            self._done(context, [*printed, *getattr(error, "__notes__", ())], error=_error_to_json(error))
            raise
        self._done(context, printed, result=result, durable=tool.run.effect != "read")
        return result

    def _done(self, context: Context, printed: Sequence[str], *, durable: bool = False, **came: Any) -> None:
        """Record how a tool ended, what it printed, and which credentials it asked for.

        Not if it got no answer since the run was cancelled: another run would have got one.
        """
        if isinstance(context.person, CancellablePerson) and context.person.has_rejected:
            return
        if printed:
            came["output"] = "\n".join(printed)
        prompts = context.secrets.prompts
        typed = {handle: prompts[handle] for handle in prompts.keys() - self._typed.keys()}
        self._typed |= typed
        self.record("done", durable=durable, **came, **({"typed": typed} if typed else {}))

    def _ask_again(self, arguments: Any, context: Context) -> errors.ExecutorError | None:
        """Ask the person again for the credentials in the arguments; return the error if nobody answers."""
        missing = self._typed.keys() - context.secrets.prompts.keys()
        wanted = {handle: self._typed[handle] for handle in scalars_of(arguments) if handle in missing}
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
        entry = self._played.popleft()
        if entry["kind"] != kind:
            raise ReplayError(f"the log has {entry['kind']!r} where the run expects {kind!r}")
        self._time = self._began + timedelta(seconds=entry["at_s"])
        return entry

    def record(self, kind: str, *, durable: bool = False, **content: Any) -> None:
        """Log a reply."""
        at_s = (self.clock() - self._began).total_seconds()
        try:
            self._keep({"kind": kind, "at_s": at_s, **content}, durable=durable)
        except RunLogError as error:
            raise ReplayError(str(error)) from error


def _error_to_json(error: GbnfError) -> dict[str, Any]:
    public = next(kind for kind in type(error).mro() if getattr(errors, kind.__name__, None) is kind)
    fields = {
        name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)
    }
    return {"type": public.__name__, "text": str(error), "fields": fields}


def _read_error(entry: Mapping[str, Any]) -> GbnfError:
    kind: type[GbnfError] = getattr(errors, entry["type"])
    error = kind.__new__(kind, entry["text"])  # without the constructor, which composes the text
    vars(error).update(entry["fields"])
    return error
