"""`gbnf chat`: plan and execute one request after another, as a conversation."""

from __future__ import annotations

import io
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from gbnf_server.cli.default_model import choose_model
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.model_options import (
    ApproveAllOption,
    ConfirmBelowOption,
    ModelSource,
    OutputOptions,
    QuietOption,
    RunLimits,
    SamplingOptions,
    VerboseOption,
    WorkspaceOption,
)
from gbnf_server.cli.output import escape_line, say, stderr_console
from gbnf_server.cli.person import asks_person, person_at_terminal
from gbnf_server.cli.tool_options import ToolSources
from gbnf_server.system.errors import ExecutorError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbnf_server.cli.run_progress import RunProgress
    from gbnf_server.planner import Planner, Run

_HELP = """\
/tools  list the tools
/undo   forget the last request, and undo its changes to the workspace
/help   show this help
/quit   leave, as Ctrl-D does; Ctrl-C ends a request only"""


def chat(
    *,
    source: ModelSource,
    sources: ToolSources,
    workspace: WorkspaceOption = Path("gbnf-workspace"),
    yes: ApproveAllOption = False,
    confirm_below: ConfirmBelowOption = 0.0,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    limits: RunLimits,
    sampling: SamplingOptions,
) -> None:
    """Plan and execute one request after another; the model sees the earlier ones.

    Each line is a request, or a command: /tools, /undo, /help, /quit. Ctrl-C ends a request, Ctrl-D the
    conversation. If the requests are piped, exit with status 1 if one of them was not answered.

    \b
    Try:
      gbnf chat
      gbnf chat --model Qwen3-4B-Q4_K_M.gguf --manifests my-tools/
      printf 'create a folder trips\\n/undo\\n' | gbnf chat
    """
    source.check()
    from gbnf_server.cli.run import profile_settings
    from gbnf_server.cli.run_progress import PausingPerson, RunProgress
    from gbnf_server.executors import Context, Workspace
    from gbnf_server.planner import Planner

    options = limits.planner_options(sampling, confirm_below=confirm_below)
    console = stderr_console()
    output = OutputOptions(stream=True, quiet=quiet, verbose=verbose, hints=False)
    with sources.open(verbose=verbose) as loaded:
        source, pool, is_untrained = choose_model(source, loaded)
        settings = {**profile_settings(source, pool), "ask_user": asks_person(source)}
        with (
            source.open(settings.pop("prompt_style", None)) as opened,
            RunProgress(console, output, counts_text=True) as progress,
        ):
            place = Workspace(workspace)  # not before the model works
            say(f"workspace: {place.root}; /help lists the commands")
            person = PausingPerson(person_at_terminal(place, console, approve_all=yes), progress)
            context = Context(place, person=person)
            planner = Planner(pool, opened, replace(options, **settings), context=context)
            conversation = _Conversation(planner, output, progress)
            for line in _lines():
                if not conversation.take(line):
                    break
    failed = is_untrained or conversation.unanswered
    raise typer.Exit(ExitCode.FAILURE if failed and not _is_terminal() else ExitCode.SUCCESS)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _lines() -> Iterator[str]:
    """Yield each line until the end of the input; at a terminal, lines are edited with readline."""
    if sys.stdin is None:
        return
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a request that is not valid Unicode is refused
    prompt = ""
    if _is_terminal():
        with suppress(ImportError):  # not every Python has it
            import readline  # noqa: F401  # `input` uses it
        prompt = "> " if sys.stdout.isatty() else ""
    while True:
        try:
            yield input(prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            if not _is_terminal():
                raise
            sys.stdout.write("\n")


@dataclass(slots=True)
class _Conversation:
    """The runs so far. `unanswered`: whether one of them had no answer."""

    planner: Planner
    output: OutputOptions
    progress: RunProgress
    runs: list[Run] = field(default_factory=list)
    unanswered: bool = False

    def take(self, line: str) -> bool:
        """Carry out a line: a request or a command. Return whether the conversation goes on."""
        text = line.strip()
        match text:
            case "":
                pass
            case "/quit":
                return False
            case "/help":
                self._say(_HELP)
            case "/tools":
                for tool in self.planner.tools:
                    self._say(f"{tool.name}  {tool.description(self.planner.options.language)}", "")
            case "/undo":
                self._undo()
            case _ if text.startswith("/") and " " not in text:
                self._say(f"unknown command {text}. {_HELP}", "yellow")
            case _:
                self._run(text)
        return True

    def _run(self, text: str) -> None:
        from gbnf_server.cli.run import print_run
        from gbnf_server.planner import Exchange

        history = [Exchange.of(run) for run in self.runs if run.outcome != "failed"]
        try:
            events = self.planner.stream(text, history=history, text=True)
            run = print_run(events, self.output, self.progress, self.planner.tools)
        except ValueError as error:  # a request that is not valid Unicode
            self._say(f"error: {error}", "red")
            self.unanswered = True
        except KeyboardInterrupt:
            if not _is_terminal():
                raise
            self.progress.close()
            self._say(f"interrupted: {self.progress.interruption(self.planner.context.journal)}", "yellow")
        else:
            self.runs.append(run)
            self.unanswered = self.unanswered or run.outcome != "answered"

    def _undo(self) -> None:
        if not self.runs:
            self._say("there is no request to undo", "yellow")
            return
        run = self.runs.pop()
        journal = self.planner.context.journal
        self._say(f"forgotten: {run.query}")
        try:
            if journal.last_turn() == run.turn:
                result = journal.undo_last_turn(uuid.uuid4().hex)
                for sentence in (*result.undone, *result.kept):
                    self._say(sentence)
        except ExecutorError as error:
            self._say(f"its changes could not be undone: {error}", "red")

    def _say(self, text: str, style: str = "dim") -> None:
        for line in text.splitlines():
            self.progress.console.print(Text(escape_line(line), style=style), soft_wrap=True)
