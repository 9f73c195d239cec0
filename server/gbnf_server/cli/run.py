"""`gbnf run`: plan and execute one request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gbnf_server.cli.default_model import choose_model
from gbnf_server.cli.errors import ExitCode, interruptible
from gbnf_server.cli.input_files import check_one_stdin, read_request
from gbnf_server.cli.model_options import (
    ApproveAllOption,
    EvidenceOption,
    MaxToolsOption,
    ModelSource,
    OutputOptions,
    PlanningOptions,
    SamplingOptions,
    StyleOption,
    WorkspaceOption,
)
from gbnf_server.cli.output import request_text, say, stderr_console, write
from gbnf_server.cli.person import asks_person, person_at_terminal
from gbnf_server.cli.tool_options import ToolSources
from gbnf_server.system.errors import ExecutorError, InputError, SetupError
from gbnf_server.system.folders import describe_frame_manifest, profiles_folder

if TYPE_CHECKING:
    from gbnf.prompts.messages import Image
    from gbnf.tools import Tool
    from gbnf_server.backends.base import Backend
    from gbnf_server.cli.run_progress import RunProgress
    from gbnf_server.executors import Workspace
    from gbnf_server.planner import Event, Outcome, PlannerOptions, Run

_CODES: dict[Outcome, ExitCode] = {
    "answered": ExitCode.SUCCESS,
    "salvaged": ExitCode.FAILURE,
    "blocked": ExitCode.FAILURE,
    "exhausted": ExitCode.FAILURE,
    "failed": ExitCode.ENVIRONMENT,
}


@dataclass(frozen=True, slots=True)
class PersonOptions:
    """What a person is asked."""

    yes: ApproveAllOption = False
    ask_user: Annotated[
        bool, "Let the model ask you questions. Default at a terminal, but for the demonstration model."
    ] = False
    no_ask_user: Annotated[bool, "Let the model ask no questions."] = False

    def answers_questions(self, source: ModelSource) -> bool:
        """Return whether the model may ask questions."""
        return self.ask_user or (asks_person(source) and not self.no_ask_user)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How the model is asked for a call; by default as the profile says that `gbnf tune` saved."""

    call_format: Annotated[
        Literal["native", "server", "json", "text", "lines"] | None,
        (
            "How the model writes calls: as its chat template does (default if that has tools) or as "
            "JSON, both constrained by a grammar, by the server's own tool calling (default of --backend "
            "openai, if the server has it), as text tool calls in any common syntax, or in the line "
            "protocol. GBNF_GRAMMAR=0: json without a grammar."
        ),
    ] = None
    reasoning: Annotated[
        Literal["off", "field", "free"] | None,
        "Reasoning before each call: in a field of the call, or as free text.",
    ] = None
    reasoning_budget: Annotated[
        int | None, typer.Option(min=1), "Maximum tokens of free reasoning. Default: 256."
    ] = None
    style: StyleOption = None
    evidence: EvidenceOption = None
    no_profile: Annotated[bool, "Ignore the profile that `gbnf tune` saved for the model."] = False

    def chosen(self) -> dict[str, Any]:
        """Return the settings of a profile that options choose. Raises BadParameter."""
        if self.reasoning == "field" and self.call_format not in {None, "json"}:
            raise typer.BadParameter("--reasoning field requires --call-format json: use --reasoning free")
        settings = asdict(self)
        del settings["no_profile"]
        settings["prompt_style"] = settings.pop("style")
        return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RunOptions(PlanningOptions):
    """When a run ends, what it needs, and what it may do."""

    no_salvage: Annotated[bool, "Build no answer from results if the run ends without one."] = False
    repeat_calls: Annotated[bool, "Allow calls that repeat earlier ones."] = False
    max_tools: MaxToolsOption = None


def run(
    query: Annotated[str, typer.Argument(), "REQUEST", "Request in natural language; -: standard input."],
    *,
    source: ModelSource,
    sources: ToolSources,
    workspace: WorkspaceOption = Path("gbnf-workspace"),
    image: Annotated[list[Path] | None, "FILE", "Image for the request; repeatable."] = None,
    person: PersonOptions,
    output: OutputOptions,
    calls: CallOptions,
    planning: RunOptions,
    sampling: SamplingOptions,
) -> None:
    """Plan and execute one request with a local model.

    Print progress to stderr, and only the answer to stdout. Without --model or --server, use the bundled
    demonstration model, which is trained on the bundled tools only; for other tools smollm2, if it is
    installed. Tools that require approval ask at the terminal; without a terminal they are executed only with
    --yes. If a run ends without an answer but has tool results, print an answer built from them and exit with
    status 1; also if it answers a request for a tool that changes something, and nothing was changed. The
    profile that `gbnf tune` saved for the model and these tools applies, unless an option sets the call
    format, the reasoning, the prompt style or the evidence.

    \b
    Try:
      gbnf run "create a folder trips"
      gbnf run "what is 12 * 7?" --json | jq .answer
      gbnf run - < request.txt
      gbnf run "delete old.txt" --workspace ~/notes --yes
      gbnf run "tidy up the notes" --require read_files --terminal create_dirs
      gbnf run "…" --model Qwen3-4B-Q4_K_M.gguf --reasoning free
      gbnf run "…" --hf Qwen/Qwen3-4B-GGUF
      gbnf run "…" --record run.json && gbnf inspect --run run.json
      gbnf run "…" --server http://127.0.0.1:8080 --manifests my-tools/
      gbnf run "…" --backend ollama --model qwen2.5:7b --call-format text --stream
    """
    source.check()
    settings = calls.chosen()
    check_one_stdin(query, *(sources.tools or ()))
    query = read_request(query)
    images = _read_images(image or ())
    options = planning.planner_options(sampling, max_tools=planning.max_tools or "auto")
    with interruptible(), sources.open(verbose=output.verbose) as loaded:
        source, pool, is_untrained = choose_model(source, loaded)
        options = replace(options, ask_user=person.answers_questions(source))
        if not settings and not calls.no_profile:
            settings = dict(profile_settings(source, pool))
        run = run_request(
            query, pool, source, options, output, settings, workspace, images, approve_all=person.yes
        )
    from gbnf_server.cli.run_progress import left_undone

    raise typer.Exit(ExitCode.FAILURE if is_untrained or left_undone(pool, run) else _CODES[run.outcome])


def run_request(
    query: str,
    pool: tuple[Tool, ...],
    source: ModelSource,
    options: PlannerOptions,
    output: OutputOptions,
    settings: dict[str, Any],
    folder: Path,
    images: Sequence[tuple[Path, Image]],
    *,
    approve_all: bool,
) -> Run:
    """Plan and execute a request with images, print the answer, and return the run.

    `settings` are those of a profile (`gbnf_server.planner.profiles.SETTINGS`), and override `options`.
    `folder`: to which the tools are confined.
    """
    from gbnf_server.cli.run_progress import PausingPerson, RunProgress
    from gbnf_server.executors import Context, Workspace
    from gbnf_server.planner import Planner

    console = stderr_console()
    recording: AbstractContextManager[RunRecorder | None] = nullcontext()
    if output.record is not None:
        from gbnf_server.planner.runs.recording import RunRecorder  # it imports pydantic

        recording = RunRecorder(output.record)
    with recording as recorder, source.open(settings.pop("prompt_style", None)) as opened:
        workspace = Workspace(folder)  # not before the model works
        if not output.quiet:
            say(f"workspace: {workspace.root}")
        query, shown, pool = _with_images(query, images, opened, workspace, pool)
        request_text(query)  # with the names of the images
        # other backends may stream in another way than they answer
        is_counted = console.is_terminal and source.backend_name == "in-process"
        streams = output.stream or is_counted
        with RunProgress(console, output, counts_text=streams) as progress:
            person = person_at_terminal(workspace, console, approve_all=approve_all)
            context = Context(workspace, person=PausingPerson(person, progress))
            chosen = replace(options, **settings)
            planner = Planner(pool, opened, chosen, context=context, recorder=recorder)
            if settings.get("evidence", "none") != "none" == planner.options.evidence and not output.quiet:
                say("no evidence is used: it is for JSON calls in process, not of the demonstration model")
            try:
                with closing(planner.stream(query, images=shown, text=streams)) as events:
                    return print_run(events, output, progress, pool)
            except KeyboardInterrupt as error:
                error.add_note(progress.interruption(context.journal))
                raise


def print_run(
    events: Iterable[Event], output: OutputOptions, progress: RunProgress, pool: tuple[Tool, ...]
) -> Run:
    """Print progress and the answer, or the run as JSON, and return the run."""
    from gbnf_server.cli.run_progress import AnswerPrinter, left_undone, run_hints
    from gbnf_server.planner import RunFinished, TextWritten

    seen: list[Event] = []
    hints: tuple[str, ...] = ()
    printer = AnswerPrinter() if output.stream and not output.json else None
    for event in events:
        if isinstance(event, TextWritten):
            progress.show(event)  # it stops the spinner
            if not output.stream:
                continue
        seen.append(event)
        if isinstance(event, RunFinished):
            hints = run_hints(event.run, seen, left_undone(pool, event.run))
        if printer is not None:
            printer.show(event)  # before the progress, so that the outcome is below the answer
        elif output.stream:
            last = {"hints": hints} if isinstance(event, RunFinished) else {}
            write(json.dumps(event.to_json() | last, ensure_ascii=False))
        if not isinstance(event, TextWritten):
            progress.show(event)
    finished: Run = seen[-1].run  # type: ignore[union-attr]  # RunFinished is the last event
    if output.hints and not output.quiet:
        for hint in hints:
            say(hint)
    if output.json and not output.stream:
        value = {"hints": hints, "events": [event.to_json() for event in seen[:-1]]}
        write(json.dumps(finished.to_json() | value, ensure_ascii=False, indent=2))
    elif finished.answer is not None and not output.json and not output.stream:
        write(finished.answer)
    return finished


def profile_settings(source: ModelSource, pool: Sequence[Tool]) -> Mapping[str, Any]:
    """Return the settings of the profile of the model and the tools, and print its name; {} without one."""
    folder = profiles_folder()
    if not folder.is_dir():
        return {}
    from gbnf_server.planner.profiles import find, tools_key

    key = tools_key(pool)
    for profile, path in find(source.key(), folder):
        if profile.tools == key:  # printed even if quiet, since it changes the run
            say(f"profile of {profile.model.name}: {profile.strategy} ({path}; --no-profile ignores it)")
            return profile.settings
    return {}


def _read_images(files: Iterable[Path]) -> list[tuple[Path, Image]]:
    """Return each file with its image. Raises InputError."""
    from gbnf_server.system.image_files import read_image

    try:
        return [(file, read_image(file)) for file in files]
    except SetupError as error:
        raise InputError(f"{error}. Use a PNG, JPEG, GIF, WebP or BMP file.") from None


def _with_images(
    query: str,
    images: Sequence[tuple[Path, Image]],
    backend: Backend,
    workspace: Workspace,
    pool: tuple[Tool, ...],
) -> tuple[str, tuple[Image, ...], tuple[Tool, ...]]:
    """Return the query, its images and the tools.

    For a model without vision, the images are copied into the workspace: the query names them, and the tools
    include `describe_frame`.
    """
    if not images:
        return query, (), pool
    from gbnf import load_manifests

    if backend.info().takes_images:
        return query, tuple(image for _, image in images), pool
    names = [_copy_image(file, image.data, workspace) for file, image in images]
    tools = {tool.name: tool for tool in (*load_manifests(describe_frame_manifest()), *pool)}
    return f"{query} (image: {', '.join(names)})", (), tuple(tools[name] for name in sorted(tools))


def _copy_image(file: Path, data: bytes, workspace: Workspace) -> str:
    """Copy an image into the workspace, as a change that can be undone; return its path there."""
    from gbnf_server.executors import Context, Write

    try:
        name = workspace.relative(workspace.root / file.name)
        if not workspace.resolve(name).exists():
            Context(workspace, tool="--image").change(Write(name, data, new=True))
        same = workspace.read(name, limit=max(len(data), 1 << 26)) == data
        problem = "" if same else f"{workspace.root / name} already exists and differs"
    except ExecutorError as error:
        problem = str(error)
    if problem:
        raise typer.BadParameter(f"{file}: {problem}. Rename the image", param_hint="--image")
    return name
