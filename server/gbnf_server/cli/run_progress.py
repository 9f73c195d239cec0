"""Progress of a run on a terminal, and what would help one that ended without an answer."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, assert_never

from rich.console import Console
from rich.status import Status
from rich.text import Text

from gbnf.errors import GbnfError, clip
from gbnf.requests.coverage import uncovered_values
from gbnf.requests.pool_filter import BEST, best_first
from gbnf.requests.ranking import file_tools
from gbnf.requests.spelling import dictates
from gbnf.requests.values import names_kind_of_file
from gbnf.tool_formats.text_calls import NOTE as IN_TEXT
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS, Tool
from gbnf_server import planner
from gbnf_server.cli.config import configured_providers
from gbnf_server.cli.model_options import OutputOptions
from gbnf_server.cli.output import SHOWN_CHARACTERS, escape_line, plural, write, write_stdout
from gbnf_server.executors import Form, Journal, Person
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.repeats import canonical
from gbnf_server.planner.run_state import RunState
from gbnf_server.planner.small_models.requested_tools import due_tools, only_asks

SHOWN_ENTRIES = 3
_CHARACTERS_OF_A_TOKEN = 4  # about, in JSON and in English
_BUILT_IN = {ASK_USER.name, FINAL_ANSWER.name, FIND_TOOLS.name}
_NO_CALL = {"truncated", "ungrammatical", "unparsed"}
"""Refusals of texts that are no call at all."""


class _Waiting:
    """The text of the spinner: what is awaited, for how long, and if it `counts`, what the model has written.

    A piece of text is a token, or several that the grammar forces: then their number is estimated from the
    characters.
    """

    def __init__(self, what: str, *, counts: bool = False) -> None:
        self._what, self._counts = what, counts
        self._started = time.monotonic()
        self._pieces = self._characters = 0

    def add(self, text: str) -> None:
        """Count a piece of the model's text."""
        self._pieces += 1
        self._characters += len(text)

    def __rich__(self) -> Text:
        """Return the text at this moment; rich asks for it whenever the spinner turns."""
        waited = f"{self._what}, {time.monotonic() - self._started:.0f} s"
        if self._counts:
            tokens = max(self._pieces, self._characters // _CHARACTERS_OF_A_TOKEN)
            waited += f", about {plural(tokens, 'token')}" if tokens else ", reading the prompt"
        return Text(escape_line(waited))


class RunProgress(AbstractContextManager["RunProgress"]):
    """Prints each event of a run; restores the terminal when closed.

    `output`: if quiet, only warnings are printed, and why there is no answer. `counts_text`: the model's text
    is streamed, so the spinner can count it.
    """

    def __init__(self, console: Console, output: OutputOptions, *, counts_text: bool = False) -> None:
        self.console, self._options, self._counts_text = console, output, counts_text
        self._status: Status | None = None
        self._waiting = _Waiting("")
        self._model_s = 0.0
        self._running: planner.ToolCalled | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, event: planner.Event) -> None:
        """Print an event."""
        match event:
            case planner.ToolCalled():
                self._running = event
            case planner.ToolDone() | planner.ToolFailed():
                self._running = None
        if self._options.quiet:
            if isinstance(event, planner.WarningRaised):
                self._line("", "warning: ", "yellow", event.message)
            elif isinstance(event, planner.RunFinished) and event.run.error is not None:
                self._line("", f"{event.run.outcome}: ", "bold red", event.run.error)
                if event.run.salvage is not None:
                    self._line("", describe_salvage(event.run.salvage))
            return
        match event:
            case planner.RunStarted():
                mode = "constrained by a grammar" if event.grammar else "without a grammar"
                total = len(event.tools) + len(event.dropped)
                self._line("", f"{event.backend}, {mode}, {len(event.tools)} of {total} tools", "dim")
            case planner.StepStarted():
                self._wait(_Waiting(f"step {event.step}: generating", counts=self._counts_text))
            case planner.HistoryCompacted():
                steps = f"{plural(len(event.steps), 'step')} shortened"
                tokens = f"about {event.tokens_before} → {event.tokens_after} prompt tokens"
                self._line("   ", "history compacted", "dim", f"{steps}, {tokens}")
            case planner.TextWritten():
                self._waiting.add(event.text)
                if event.answer and self._options.stream:
                    self.close()
            case planner.ModelCalled():
                self.close()
                self._model_s = event.duration_s
                if event.repeated:
                    repeated = json.dumps(clip(event.repeated, SHOWN_CHARACTERS))
                    self._line("   ", "repeated  ", "yellow", f"{repeated} until it was ended")
                elif event.shortened_at is not None:
                    self._line("   ", "shortened ", "yellow", "so that the text ends within --max-tokens")
                if event.purpose == "reasoning":
                    self._wait(_Waiting(f"step {event.step}: generating", counts=self._counts_text))
            case planner.ToolCalled():
                arguments = clip(json.dumps(event.arguments, ensure_ascii=False), SHOWN_CHARACTERS)
                self._line(f"{event.step:>2} ", event.name, "bold cyan", arguments, self._model_s)
                self._wait(_Waiting(f"{event.name}: running"))
            case planner.ToolDone():
                self.close()
                self._output(event.output)
                self._line("   ", "✓ ", "green", summary(event.result), event.duration_s)
            case planner.ToolFailed():
                self.close()
                self._output(event.output)
                self._line("   ", "✗ ", "red", event.error, event.duration_s)
            case planner.CallBlocked():
                refused, text = f"refused ({event.refusal})", clip(event.text, SHOWN_CHARACTERS)
                self._line(f"{event.step:>2} ", refused, "yellow", text, self._model_s)
                self._line("   ", "✗ ", "yellow", event.error)
            case planner.SalvageStarted():
                self.close()
                self._line("", event.ended, "bold red", event.error)
                self._wait(_Waiting("generating an answer from the results", counts=self._counts_text))
            case planner.WarningRaised():
                self._line("   ", "! ", "yellow", event.message)
            case planner.RunFinished():
                self.close()
                self._finish(event.run)
            case _:
                assert_never(event)

    def _finish(self, run: planner.Run) -> None:
        style = {"answered": "green", "salvaged": "yellow"}.get(run.outcome, "red")
        steps = plural(len(run.steps), "step")
        cached = f" ({run.cached_tokens} cached)" if run.cached_tokens else ""
        tokens = f"{run.prompt_tokens} prompt tokens{cached}, {run.completion_tokens} generated"
        self._line("", run.outcome, f"bold {style}", f"in {steps} and {run.duration_s:.1f} s; {tokens}")
        in_text = sum(IN_TEXT in repair for step in run.steps for repair in step.repairs)
        if in_text:
            problem = f"{plural(in_text, 'call')} written in the text, not in the format of the chat template"
            self._line("", problem, "dim")
        if run.salvage is not None:
            self._line("", describe_salvage(run.salvage))
        elif run.error is not None:
            self.console.print(Text(escape_line(run.error)))

    def _line(
        self, margin: str, head: str, style: str = "", tail: str = "", seconds: float | None = None
    ) -> None:
        line = Text(margin)
        line.append(escape_line(head), style=style)
        if tail:
            line.append(("" if head.endswith(" ") else "  ") + escape_line(tail))
        if seconds is not None:
            line.append(f"  {duration(seconds)}", style="dim")
        self.console.print(line, soft_wrap=True)

    def _output(self, output: str) -> None:
        if self._options.verbose:
            for line in output.splitlines():
                self._line("   ", "| ", "dim", line)

    def close(self) -> None:
        """Restore the terminal: stop the spinner."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting = waiting
        if self.console.is_terminal:
            self.close()
            self._status = self.console.status(waiting)
            self._status.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the spinner, so that a person can be asked at the same terminal."""
        was_shown = self._status is not None
        self.close()
        yield
        if was_shown:
            self._wait(self._waiting)

    def interruption(self, journal: Journal) -> str:
        """Return what an interruption at this point leaves behind, as far as it is known."""
        tool = self._running
        if tool is None:
            return "no tool was running"
        try:
            journal.recover()
        except (GbnfError, OSError) as error:
            return f"{tool.name} was running; its changes could not be rolled back: {error}"
        rolled_back = f"{tool.name} was running; its changes to the workspace were rolled back"
        if tool.effect == "read":
            return rolled_back
        return f"{rolled_back}, but anything else that it did, such as sending a message, is not undone"


class PausingPerson:
    """Asks a person while the progress is paused."""

    def __init__(self, person: Person, progress: RunProgress) -> None:
        self._person, self._progress = person, progress

    def answer(self, form: Form) -> dict[str, Any]:
        """Return the answers to a form."""
        with self._progress.paused():
            return self._person.answer(form)

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the call may be executed."""
        with self._progress.paused():
            return self._person.approve(call)


class AnswerPrinter:
    """Streams an answer to stdout; prints it again only if the final answer begins otherwise."""

    def __init__(self) -> None:
        self._written = ""

    def show(self, event: planner.Event) -> None:
        """Print the part of an answer in an event."""
        if isinstance(event, planner.TextWritten) and event.answer:
            self._written += event.answer
            write_stdout(event.answer)
        elif isinstance(event, planner.CallBlocked | planner.SalvageStarted | planner.ToolCalled):
            self._break()
        elif isinstance(event, planner.RunFinished):
            answer = event.run.answer
            if answer is not None and self._written and answer.startswith(self._written):
                write_stdout(answer[len(self._written) :])
                self._written, answer = answer, None
            self._break()
            if answer is not None:
                write(answer)

    def _break(self) -> None:
        if self._written and not self._written.endswith("\n"):
            write_stdout("\n")
        self._written = ""


def summary(result: Mapping[str, Any]) -> str:
    """Summarize a result: its entries, or else its fields."""
    entries = result.get("entries")
    if not isinstance(entries, list):
        return clip(json.dumps(result, ensure_ascii=False), SHOWN_CHARACTERS)
    if not entries:
        return "nothing"
    shown = ", ".join(clip(str(entry), SHOWN_CHARACTERS // 2) for entry in entries[:SHOWN_ENTRIES])
    hidden = len(entries) - SHOWN_ENTRIES
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def describe_salvage(salvage: planner.SalvagedAnswer) -> str:
    """Describe what a salvaged answer is based on."""
    *most, last = map(str, salvage.steps)
    steps = f"steps {', '.join(most)} and {last}" if most else f"step {last}"
    if salvage.by == "model":
        return f"not the run's answer: generated from the results of {steps}"
    because = f" ({salvage.error.removeprefix('error: ')})" if salvage.error else ""
    return f"not the run's answer: a list of the results of {steps}{because}"


def duration(seconds: float) -> str:
    """Return a duration with its unit."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def run_hints(run: planner.Run, events: Iterable[planner.Event], undone: str = "") -> tuple[str, ...]:
    """Return what to try, each a sentence with the option of `gbnf run`; () if nothing in the steps says so.

    `events` are those of the run. `undone`: the tool that the request is for, and that was not called.
    """
    if undone:
        return (f"Nothing was changed. To have no answer before {undone} has succeeded: --require {undone}.",)
    if run.outcome in {"answered", "failed"}:
        return ()
    hints = []
    done = {step.name for step in run.steps if step.result is not None} - _BUILT_IN
    if len(done) == 1:
        [name] = done
        hints.append(f"If the result of {name} is the answer, end the run with it: --terminal {name}.")
    calls = Counter(canonical(dict(step.call)) for step in run.steps if step.call is not None)
    if max(calls.values(), default=0) > 1 or any(step.refusal or step.fault for step in run.steps):
        offers = (set(event.tools) - _BUILT_IN for event in events if isinstance(event, planner.StepStarted))
        if (offered := max(map(len, offers), default=0)) > BEST:
            hints.append(f"Offer fewer than {offered} tools: --max-tools {max(BEST, offered // 3)}.")
        if any(step.refusal in _NO_CALL for step in run.steps):
            hints.append("Let `gbnf tune` find the way of writing calls that suits the model.")
        hints.append("Try a larger model: --model FILE.gguf.")
    return tuple(hints)


def left_undone(pool: tuple[Tool, ...], run: planner.Run) -> str:
    """Return the tool that a request asks to change something with, if a run has answered without any change.

    "" if there is none, for a question, and if the tool is for files and the request names none.
    """
    done = {step.name for step in run.steps if step.result is not None}
    writing = {tool.name for tool in pool if tool.run.effect == "write"}
    if run.outcome != "answered" or done & writing or only_asks(run.query):
        return ""
    request = f"write {run.query}" if dictates(run.query) else run.query  # tools for it are not named "put"
    options = ResolvedOptions(providers=configured_providers())
    state = RunState(request, run.turn, run.started_at, options, steps=list(run.steps))
    requested = due_tools(pool, state)
    if not (uncovered_values(request, ()) or names_kind_of_file(request)):
        requested = tuple(tool for tool in requested if tool not in file_tools(requested))
    return best_first(requested, request)[0].name if requested else ""
