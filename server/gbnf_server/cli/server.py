"""`gbnf server`: a llama-server of one's own, built and run without a download of anything prebuilt."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbnf_server.cli.commands import reflow, with_options
from gbnf_server.cli.errors import interruptible
from gbnf_server.cli.model_options import HfOption, LoraOption, ModelSource
from gbnf_server.cli.output import progress_bar, say, stderr_console, write
from gbnf_server.system.addresses import LLAMA_SERVER_PORT

if TYPE_CHECKING:
    from rich.console import Console

    from gbnf_server.llama.server_build import Gpu, InstallProgress

server = typer.Typer(
    help="Build llama-server, and run it on this machine.", no_args_is_help=True, rich_markup_mode=None
)


def install(
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1), "Parallel compiler jobs. Default: one per CPU."
    ] = None,
    cuda: Annotated[bool, "For NVIDIA GPUs; requires the CUDA toolkit."] = False,
    vulkan: Annotated[bool, "For any GPU; requires the Vulkan SDK."] = False,
    metal: Annotated[bool, "For the GPU of a Mac, which every build on macOS uses."] = False,
) -> None:
    """Build llama-server from the source in llama-cpp-python, into the cache folder.

    Takes about five minutes on two cores, for CUDA longer, and requires cmake and a C++ compiler. An
    interrupted build resumes. Print the path of the program. `gbnf server start` prefers a build for a GPU.

    \b
    Try:
      gbnf server install
      gbnf server install --cuda
    """
    gpus: dict[Gpu, bool] = {"cuda": cuda, "vulkan": vulkan, "metal": metal}
    chosen = [name for name, wanted in gpus.items() if wanted]
    if len(chosen) > 1:
        raise typer.BadParameter("use one of --cuda, --vulkan and --metal")
    gpu = chosen[0] if chosen else None
    with interruptible("the same command continues where it stopped"):
        write(str(_build(stderr_console(), jobs, gpu)))


def _build(console: Console, jobs: int | None, gpu: Gpu | None) -> Path:
    """Build with a line for each stage; at a terminal with a bar, elsewhere with a line for each tenth."""
    from gbnf_server.llama.server_build import install as build

    started, shown = time.monotonic(), ("", 0)
    with progress_bar(console) as bar:
        task = bar.add_task("begin", total=None)

        def show(stage: InstallProgress) -> None:
            nonlocal shown
            tenth = 0 if console.is_terminal else int((stage.fraction or 0.0) * 10)
            if (stage.stage, tenth) != shown:
                shown = (stage.stage, tenth)
                percent = "" if stage.fraction is None or console.is_terminal else f"{tenth * 10} %, "
                seconds = f"{time.monotonic() - started:.0f} s"
                console.print(f"{stage.stage}: {percent}{seconds}, {stage.message}", soft_wrap=True)
            total, done = (None, 0) if stage.fraction is None else (100, int(100 * stage.fraction))
            bar.update(task, description=stage.stage, total=total, completed=done)

        return build(jobs=jobs, gpu=gpu, progress=show)


def start(
    model: Annotated[str | None, "F.gguf|NAME", "Model file, or smollm2. Default: the bundled model."] = None,
    hf: HfOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535), "TCP port; 0: any free port."] = LLAMA_SERVER_PORT,
    ctx_size: Annotated[
        int | None,
        typer.Option(min=1),
        "Context size of a slot, in tokens. Default: the model's, at most 8192.",
    ] = None,
    parallel: Annotated[int, typer.Option(min=1), "Number of slots: concurrent requests."] = 1,
    threads: Annotated[int | None, typer.Option(min=1), "CPU threads. Default: see `gbnf doctor`."] = None,
    lora: LoraOption = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="LLAMA_API_KEY"), "API key that clients must send; random by default."
    ] = None,
    extra: Annotated[
        list[str] | None, typer.Argument(), "-- ARGUMENT", "More arguments, for llama-server itself."
    ] = None,
) -> None:
    """Run llama-server on loopback until Ctrl-C. Print its URL when it is ready.

    \b
    Try:
      gbnf server start --hf Qwen/Qwen3-4B-GGUF:Q8_0
      gbnf server start --model Qwen3-4B-Q4_K_M.gguf -- --gpu-layers 20
      gbnf run "create a folder trips" --server http://127.0.0.1:8080
    """
    from gbnf_server.llama.api_keys import key_file
    from gbnf_server.llama.server_build import start as run

    source = ModelSource(model, hf=hf, lora=lora)
    source.check()
    adapter = None if "--lora" in (extra or ()) else source.adapter()
    with (
        interruptible(),
        run(
            source.path(),
            port=port,
            context_length=ctx_size,
            slots=parallel,
            threads=threads,
            api_key=api_key,
            extra=(*(() if adapter is None else ("--lora", str(adapter))), *(extra or ())),
        ) as running,
    ):
        write(running.url)
        say("ready; press Ctrl-C to stop")
        if not api_key and (path := key_file(running.url)):
            say(f"`gbnf` finds its API key; other clients can read it from {path}")
        try:
            running.wait()
        except KeyboardInterrupt:
            say("stopped")
            return
        raise running.failure()


for _command in (install, start):
    server.command(help=reflow(_command.__doc__))(with_options(_command))
