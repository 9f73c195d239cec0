"""How long does it take from a list of tools to the first token mask?

    python bench/first_mask.py [--data FOLDER] [--tools FILE] [--vocab GGUF] [--runs N]

The tools are the first 1, 16 and 146 functions of the category "multiple" of BFCL, in `shared/bfcl` beside
the checkout or in FOLDER, or those of a tools list. The vocabulary is that of SmolLM2, if it is installed. A
run is a process of its own, which imports everything and loads the vocabulary before the clock starts: then
it reads the list, compiles the calls to one grammar, loads that into the engine, and computes one mask over
the vocabulary. CPU time, minimum of N runs.

- gbnf: `load_tools`, `compile_pool`, and llama.cpp's engine; "cached": with the tools in the cache folder.
- llama-cpp: llama.cpp's converter, and llama.cpp's engine. llguidance and xgrammar: each with its own engine.

The others get one JSON Schema of the same calls. "–": the engine is not installed, or fails.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from contenders import CONTENDERS, calls_schema, open_model
from corpus import shared_path, vocabulary_path
from gbnf import compile_pool, load_tools
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar
from gbnf_server.system.model_files import has_smollm2, smollm2_path
from gbnf_server.system.part_cache import use_disk_cache
from ranking import request_set
from tables import new_table, show

COUNTS = (1, 16, 146)
ENGINES = ("gbnf", "gbnf, cached", "llama-cpp", "llguidance", "xgrammar")


def masking(engine: str, model: NativeModel) -> Callable[[list[dict[str, Any]]], object]:
    """Return what computes the first mask for tools. Raises ImportError for an engine that is missing."""
    everything = np.arange(model.size)

    def union(tools: list[dict[str, Any]]) -> str:
        return calls_schema({tool["name"]: tool["inputSchema"] for tool in tools})

    match engine:
        case "gbnf" | "gbnf, cached":
            import_module("gbnf.compiler.lowering")  # otherwise the first tool that is not cached does
            if engine != "gbnf":
                use_disk_cache()
            return lambda tools: NativeGrammar.parse(model, str(compile_pool(load_tools(tools)))).allowed(
                everything
            )
        case "xgrammar":
            xgrammar: Any = import_module("xgrammar")
            pieces, ends = [model.piece(token) for token in range(model.size)], sorted(model.end_tokens)
            raw = xgrammar.VocabType.RAW
            compiler = xgrammar.GrammarCompiler(
                xgrammar.TokenizerInfo(pieces, vocab_type=raw, stop_token_ids=ends)
            )
            bits = xgrammar.allocate_token_bitmask(1, model.size)
            return lambda tools: xgrammar.GrammarMatcher(
                compiler.compile_json_schema(union(tools))
            ).fill_next_token_bitmask(bits)
    contender = CONTENDERS[engine](model)
    if engine == "llama-cpp":
        return lambda tools: NativeGrammar.parse(model, contender.compile(union(tools))).allowed(everything)
    masks: Any = import_module("llguidance.numpy")
    row = masks.allocate_token_bitmask(1, model.size)
    return lambda tools: masks.fill_next_token_bitmask(contender.compile(union(tools)), row)


def measure(engine: str, path: Path, count: int, vocabulary: Path) -> float:
    """Return the CPU time to the first mask, in seconds."""
    model = open_model(vocabulary)
    first_mask = masking(engine, model)
    started = time.process_time()
    first_mask(json.loads(path.read_text())[:count])
    return time.process_time() - started


def in_process(engine: str, path: Path, count: int, vocabulary: Path, cache: str) -> float:
    """Return the same in another process; infinity if that fails."""
    environment = {**os.environ, "GBNF_CACHE": cache, "GBNF_COMPILE_CACHE": "1"}
    command = [sys.executable, __file__, "--tools", str(path), "--vocab", str(vocabulary)]
    command += ["--engine", engine, "--count", str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else math.inf


def main(
    data: Annotated[Path | None, typer.Option(help="Folder with BFCL_v4_*.json.")] = None,
    tools: Annotated[Path | None, typer.Option(help="A tools list instead of BFCL's functions.")] = None,
    vocab: Annotated[Path | None, typer.Option(help="Vocabulary, a GGUF file.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each in a process of its own.")] = 10,
    engine: Annotated[str, typer.Option(hidden=True)] = "",
    count: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Print how long the first mask takes."""
    vocabulary = vocab or (smollm2_path() if has_smollm2() else vocabulary_path())
    if engine and tools is not None:
        print(measure(engine, tools, count, vocabulary))
        return
    with tempfile.TemporaryDirectory() as folder:
        if tools is None:
            pool = request_set(("multiple",), data or shared_path("bfcl")).pool[: COUNTS[-1]]
            tools = Path(folder, "tools.json")
            tools.write_text(json.dumps([{"name": tool.name, "inputSchema": tool.args} for tool in pool]))
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(runs + 1):  # the first fills the caches
            for key in itertools.product(ENGINES, COUNTS):
                times.setdefault(key, []).append(in_process(key[0], tools, key[1], vocabulary, folder))
    drawn = new_table("tools | " + " | ".join(map(str, COUNTS)), "From a list of tools to the first mask, ms")
    for name in ENGINES:
        best = [min(times[name, size][1:]) for size in COUNTS]
        drawn.add_row(name, *("–" if value == math.inf else f"{1e3 * value:.1f}" for value in best))
    show(drawn)


if __name__ == "__main__":
    typer.run(main)
