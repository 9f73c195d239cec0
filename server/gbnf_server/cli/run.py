"""`gbnf run`: plan and execute one request."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbnf_server.cli.exits import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from gbnf_server.backends.base import Backend
    from gbnf_server.executors import Person, Workspace
    from gbnf_server.planner import Event, Outcome, Run

_CODES: dict[Outcome, ExitCode] = {
    "answered": ExitCode.DONE,
    "salvaged": ExitCode.NO,
    "blocked": ExitCode.NO,
    "exhausted": ExitCode.NO,
    "failed": ExitCode.MACHINE,
}


def run(
    query: Annotated[str, typer.Argument(metavar="REQUEST", help="What you want, in your own words.")],
    model: Annotated[
        Path | None, typer.Option(metavar="F.gguf", help="A model file, run in this process.")
    ] = None,
    server: Annotated[str | None, typer.Option(metavar="URL", help="A llama-server that is running.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="LLAMA_API_KEY", help="What the server wants to be shown.")
    ] = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Tools: a folder or a manifest, repeatable; the shipped ones when absent."
        ),
    ] = None,
    workspace: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The folder that tools work in and cannot leave; made if missing."),
    ] = Path("gbnf-workspace"),
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve every call that would ask for approval.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: the run, with its events.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    no_grammar: Annotated[
        bool,
        typer.Option("--no-grammar", help="Let the model write freely, to compare; so does GBNF_GRAMMAR=0."),
    ] = False,
    no_salvage: Annotated[
        bool,
        typer.Option("--no-salvage", help="Make no answer of the results where the run gives none."),
    ] = False,
    ask_user: Annotated[bool, typer.Option("--ask-user", help="Let the model put questions to you.")] = False,
    lang: Annotated[str, typer.Option(help="Language of the tools' descriptions.")] = "en",
    max_steps: Annotated[int, typer.Option(min=1, help="Steps, the answer among them.")] = 12,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest call, in tokens.")] = 512,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="For a temperature above 0.")] = 0,
) -> None:
    """Plan and execute one request with a local model that a grammar holds.

    Progress goes to stderr, and the answer alone to stdout. Without --model or --server the small model
    that comes along is used: a demonstration that knows the shipped tools and little else. Tools that need
    a person's approval ask at the terminal; without a terminal, and without --yes, they are not executed.
    A run that ends without an answer, but with results of tools, prints what is made of those: it is
    `salvaged`, and leaves with 1.

    \b
    Try:
      gbnf run "create a folder trips"
      gbnf run "what is 12 * 7?" --json | jq .answer
      gbnf run "delete old.txt" --workspace ~/notes --yes
      gbnf run "…" --model Qwen3-4B-Q4_K_M.gguf
      gbnf run "…" --server http://127.0.0.1:8080 --manifests my-tools/
    """
    if model is not None and server is not None:
        raise typer.BadParameter("give --model or --server, not both")
    from gbnf import load_manifests
    from gbnf_server.cli.failures import interruptible
    from gbnf_server.cli.show import Progress
    from gbnf_server.cli.text import notes, write
    from gbnf_server.executors import Context, Workspace
    from gbnf_server.planner import Planner
    from gbnf_server.shipped import manifests_path

    executors = load_manifests(manifests or manifests_path())
    console = notes()
    place = Workspace(workspace)
    with interruptible(), _backend(model, server, api_key) as backend:
        planner = Planner(
            executors,
            backend,
            context=Context(place, person=_person(place, console, approve_all=yes)),
            max_steps=max_steps,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            grammar=not no_grammar,
            salvage=not no_salvage,
            ask_user=ask_user,
            language=lang,
        )
        events: list[Event] = []
        with Progress(console, quiet=quiet) as progress:
            for event in planner.events(query):
                events.append(event)
                progress.show(event)
    finished = events[-1].run  # type: ignore[union-attr]  # RunFinished is the last event
    if json_:
        write(json.dumps(_json(finished, events), ensure_ascii=False, indent=2))
    elif finished.answer is not None:
        write(finished.answer)
    raise typer.Exit(_CODES[finished.outcome])


def _backend(model: Path | None, server: str | None, api_key: str | None) -> Backend:
    if server is not None:
        from gbnf_server.backends.llama_server import LlamaServer

        return LlamaServer(server, api_key=api_key)
    from gbnf_server.backends.in_process import InProcess

    if model is None:
        from gbnf_server.embedded import model_path

        model = model_path()
    return InProcess(model, guard_grammars=False)  # all grammars come from our own compiler


def _person(workspace: Workspace, console: Console, *, approve_all: bool) -> Person:
    from gbnf_server.executors import AbsentPerson, TerminalPerson

    if sys.stdin.isatty() and console.is_terminal:
        return TerminalPerson(console=console, workspace=workspace, approve_all=approve_all)
    return AbsentPerson(approve_all=approve_all)


def _json(finished: Run, events: list[Event]) -> dict[str, Any]:
    """The run, and its events but for the last, which is the run once more."""
    return {**finished.to_json(), "events": [event.to_json() for event in events[:-1]]}
