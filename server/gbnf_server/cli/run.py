"""`gbnf run`: plan and execute one request."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbnf_server.cli.exit_codes import ExitCode
from gbnf_server.cli.model_options import (
    ApiKeyOption,
    BackendOption,
    ContextSizeOption,
    ModelOption,
    ModelSource,
    PromptStyleChoice,
    ReasoningChoice,
    SeedOption,
    ServerOption,
    TemperatureOption,
)

if TYPE_CHECKING:
    from rich.console import Console

    from gbnf.prompts.messages import Image
    from gbnf.tools import Tool
    from gbnf_server.backends.base import Backend
    from gbnf_server.executors import Person, Workspace
    from gbnf_server.planner import Event, Outcome, Run

_CODES: dict[Outcome, ExitCode] = {
    "answered": ExitCode.SUCCESS,
    "salvaged": ExitCode.FAILURE,
    "blocked": ExitCode.FAILURE,
    "exhausted": ExitCode.FAILURE,
    "failed": ExitCode.ENVIRONMENT,
}


def run(
    query: Annotated[str, typer.Argument(metavar="REQUEST", help="What you want, in your own words.")],
    model: ModelOption = None,
    server: ServerOption = None,
    backend: BackendOption = None,
    api_key: ApiKeyOption = None,
    context: ContextSizeOption = None,
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
    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="An image that the request shows, repeatable.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve every call that would ask for approval.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: the run, with its events.")
    ] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Print the answer as it is written; with --json, each event on a line."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    no_grammar: Annotated[
        bool,
        typer.Option("--no-grammar", help="Let the model write freely, to compare; so does GBNF_GRAMMAR=0."),
    ] = False,
    soft: Annotated[
        bool, typer.Option("--soft", help="No grammar: read calls in any usual shape, and mend them.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="No grammar: ask for calls in plain lines, and read them softly.")
    ] = False,
    reasoning: Annotated[
        ReasoningChoice | None, typer.Option(help="Thoughts before each call: in a field of it, or freely.")
    ] = None,
    thought_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest free thought, in tokens; 256.")
    ] = None,
    style: Annotated[PromptStyleChoice | None, typer.Option(help="How tools are shown to the model.")] = None,
    no_profile: Annotated[
        bool, typer.Option("--no-profile", help="Leave out what `gbnf tune` found for this model.")
    ] = False,
    no_salvage: Annotated[
        bool,
        typer.Option("--no-salvage", help="Make no answer of the results where the run gives none."),
    ] = False,
    ask_user: Annotated[bool, typer.Option("--ask-user", help="Let the model put questions to you.")] = False,
    lang: Annotated[str, typer.Option(help="Language of the tools' descriptions.")] = "en",
    max_steps: Annotated[int, typer.Option(min=1, help="Steps, the answer among them.")] = 12,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest call, in tokens.")] = 512,
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = 0,
) -> None:
    """Plan and execute one request with a local model that a grammar holds.

    Progress goes to stderr, and the answer alone to stdout. Without --model or --server the small model
    that comes along is used: a demonstration that knows the shipped tools and little else. Tools that need
    a person's approval ask at the terminal; without a terminal, and without --yes, they are not executed.
    A run that ends without an answer, but with results of tools, prints what is made of those: it is
    `salvaged`, and leaves with 1. What `gbnf tune` found best for the model is used, unless an option says
    how calls are made or tools are shown.

    \b
    Try:
      gbnf run "create a folder trips"
      gbnf run "what is 12 * 7?" --json | jq .answer
      gbnf run "delete old.txt" --workspace ~/notes --yes
      gbnf run "…" --model Qwen3-4B-Q4_K_M.gguf --reasoning free
      gbnf run "…" --server http://127.0.0.1:8080 --manifests my-tools/
      gbnf run "…" --backend ollama --model qwen2.5:7b --soft --stream
    """
    source = ModelSource(model, server, api_key, backend, context)
    source.check()
    if soft and lines:
        raise typer.BadParameter("give --soft or --lines, not both")
    if (soft or lines or no_grammar) and reasoning is ReasoningChoice.FIELD:
        raise typer.BadParameter("--reasoning field needs the grammar; take --reasoning free")
    from gbnf import load_manifests
    from gbnf_server.bundled import manifests_path
    from gbnf_server.cli.errors import interruptible
    from gbnf_server.cli.output import request_text, stderr_console, write
    from gbnf_server.cli.run_progress import AnswerPrinter, RunProgress
    from gbnf_server.executors import Context, Workspace
    from gbnf_server.planner import Planner

    request_text(query)
    pool = load_manifests(manifests or manifests_path())
    console = stderr_console()
    place = Workspace(workspace)
    asked = {
        "grammar": False if no_grammar or soft else None,
        "soft": soft or None,
        "lines": lines or None,
        "reasoning": None if reasoning is None else reasoning.value,
        "thought_tokens": thought_tokens,
        "prompt_style": None if style is None else style.value,
    }
    call_settings: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    with interruptible():
        if not call_settings and not no_profile:
            call_settings = _profile(source, console, quiet=quiet)
        with source.open(call_settings.pop("prompt_style", None)) as opened:
            query, images, pool = _shown(query, image or [], opened, place, pool)
            request_text(query)  # with the images' names
            planner = Planner(
                pool,
                opened,
                context=Context(place, person=_person(place, console, approve_all=yes)),
                max_steps=max_steps,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                salvage=not no_salvage,
                ask_user=ask_user,
                language=lang,
                **call_settings,
            )
            events: list[Event] = []
            printer = AnswerPrinter() if stream and not json_ else None
            with RunProgress(console, quiet=quiet) as progress:
                for event in planner.events(query, images=images, text=stream):
                    events.append(event)
                    if printer is not None:
                        printer.show(event)  # first: what is told of the end stands below the answer
                    elif stream:
                        write(json.dumps(event.to_json(), ensure_ascii=False))
                    progress.show(event)
    finished = events[-1].run  # type: ignore[union-attr]  # RunFinished is the last event
    if json_ and not stream:
        write(json.dumps(_json(finished, events), ensure_ascii=False, indent=2))
    elif finished.answer is not None and not json_ and not stream:
        write(finished.answer)
    raise typer.Exit(_CODES[finished.outcome])


def _profile(source: ModelSource, console: Console, *, quiet: bool) -> dict[str, Any]:
    """What was found best for the model, and a word about it; {} where nothing was."""
    from gbnf_server.planner.profiles import find
    from gbnf_server.system.folders import profiles_folder

    folder = profiles_folder()
    if not folder.is_dir():
        return {}
    found = find(source.key(), folder)
    if found is None:
        return {}
    profile, path = found
    if not quiet:
        console.print(
            f"profile of {profile.model.name}: {profile.strategy} ({path}; --no-profile leaves it out)",
            style="dim",
            soft_wrap=True,
        )
    return dict(profile.settings)


def _shown(
    query: str, files: list[Path], backend: Backend, place: Workspace, pool: tuple[Tool, ...]
) -> tuple[str, tuple[Image, ...], tuple[Tool, ...]]:
    """The request with its images; for a model that sees none, with their names and `describe_frame`."""
    if not files:
        return query, (), pool
    from gbnf import load_manifests
    from gbnf_server.bundled import describe_frame_manifest
    from gbnf_server.errors import InputError, SetupError
    from gbnf_server.system.image_files import read_image

    try:
        images = tuple(read_image(file) for file in files)
    except SetupError as error:
        raise InputError(f"{error}. Give --image a file in one of PNG, JPEG, GIF, WebP and BMP.") from None
    if backend.capabilities.takes_images:
        return query, images, pool
    names = [_placed(file, shown.data, place) for file, shown in zip(files, images, strict=True)]
    tools = {tool.name: tool for tool in (*load_manifests(describe_frame_manifest()), *pool)}
    return f"{query} (image: {', '.join(names)})", (), tuple(tools[name] for name in sorted(tools))


def _placed(file: Path, data: bytes, place: Workspace) -> str:
    """Put an image into the workspace, as a change that can be undone; its path there."""
    from gbnf_server.errors import ExecutorError
    from gbnf_server.executors import Context, Write

    try:
        name = place.relative(place.root / file.name)
        if not place.resolve(name).exists():
            Context(place, tool="--image").change(Write(name, data, new=True))
        same = place.read(name, limit=max(len(data), 1 << 26)) == data
        problem = "" if same else f"{place.root / name} is another file already"
    except ExecutorError as error:
        problem = str(error)
    if problem:
        raise typer.BadParameter(f"{file}: {problem}. Rename the image", param_hint="--image")
    return name


def _person(workspace: Workspace, console: Console, *, approve_all: bool) -> Person:
    from gbnf_server.executors import AbsentPerson, TerminalPerson

    if sys.stdin.isatty() and console.is_terminal:
        return TerminalPerson(console=console, workspace=workspace, approve_all=approve_all)
    return AbsentPerson(approve_all=approve_all)


def _json(finished: Run, events: list[Event]) -> dict[str, Any]:
    """The run, and its events but for the last, which is the run once more."""
    return {**finished.to_json(), "events": [event.to_json() for event in events[:-1]]}
