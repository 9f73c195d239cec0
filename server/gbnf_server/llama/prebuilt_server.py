"""A program that is a llama-server without compiling one: it runs the server engine of xllamacpp.

    python prebuilt_server.py --model F.gguf --port 8080

It takes the options of llama-server that are listed below, reads LLAMA_API_KEY, LLAMA_ARG_CORS_ORIGINS and
LLAMA_ARG_CACHE_RAM, logs the same lines, has the same endpoints, and ends when it gets SIGTERM. Any other
option is an error: a server that ignores one would not do what was asked. It is run as a file, and imports
nothing of this package.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import xllamacpp

_POOLING = ("none", "mean", "cls", "last", "rank")

_VALUES: Mapping[str, tuple[Callable[[str], Any], str]] = {  # options: type, attribute of CommonParams
    "--model -m": (str, "model.path"),
    "--mmproj": (str, "mmproj.path"),
    "--host": (str, "hostname"),
    "--port": (int, "port"),
    "--ctx-size -c": (int, "n_ctx"),
    "--parallel -np": (int, "n_parallel"),
    "--threads -t": (int, "cpuparams.n_threads"),
    "--threads-batch -tb": (int, "cpuparams_batch.n_threads"),
    "--threads-http": (int, "n_threads_http"),
    "--batch-size -b": (int, "n_batch"),
    "--ubatch-size -ub": (int, "n_ubatch"),
    "--gpu-layers -ngl": (int, "n_gpu_layers"),
    "--cache-ram": (int, "cache_ram_mib"),
    "--cache-reuse": (int, "n_cache_reuse"),
    "--chat-template": (str, "chat_template"),
    "--slot-save-path": (str, "slot_save_path"),
    "--verbosity -lv": (int, "verbosity"),
}
_FLAGS: Mapping[str, tuple[str, bool]] = {
    "--offline": ("offline", True),
    "--no-repack": ("no_extra_bufts", True),
    "--embeddings": ("embedding", True),
    "--metrics": ("endpoint_metrics", True),
    "--no-slots": ("endpoint_slots", False),
    "--props": ("endpoint_props", True),
    "--jinja": ("use_jinja", True),
    "--no-jinja": ("use_jinja", False),
    "--no-warmup": ("warmup", False),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with status 1, as llama-server does."""
        taken = " ".join(
            option.split()[0] for option in (*_VALUES, *_FLAGS, "--alias", "--lora", "--pooling")
        )
        hint = "Compile one that takes all options: gbnf server install"
        sys.exit(f"error: {message}\nThe prebuilt llama-server takes only {taken}.\n{hint}")


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM."""
    parser = _Parser(allow_abbrev=False, add_help=False)
    for options, (kind, attribute) in _VALUES.items():
        parser.add_argument(*options.split(), type=kind, dest=attribute, default=argparse.SUPPRESS)
    for option, (attribute, value) in _FLAGS.items():
        parser.add_argument(
            option, action="store_const", const=value, dest=attribute, default=argparse.SUPPRESS
        )
    parser.add_argument("--alias")
    parser.add_argument("--lora", action="append", default=[])
    parser.add_argument("--pooling", choices=_POOLING)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"invalid argument: {unknown[0]}")
    values = vars(parsed)
    params = xllamacpp.CommonParams()
    if alias := values.pop("alias"):
        params.model_alias = {alias}
    params.lora_adapters = [_adapter(path) for path in values.pop("lora")]
    if pooling := values.pop("pooling"):
        params.pooling_type = _POOLING.index(pooling)
    if cache := os.environ.get("LLAMA_ARG_CACHE_RAM"):
        values.setdefault("cache_ram_mib", int(cache))
    for attribute, value in values.items():
        *owners, name = attribute.split(".")
        setattr(getattr(params, owners[0]) if owners else params, name, value)
    if key := os.environ.get("LLAMA_API_KEY"):
        params.api_keys = [key]
    params.cors_origins = os.environ.get("LLAMA_ARG_CORS_ORIGINS", "")
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(f"the server cannot start: {error}")  # with status 1; its log says why
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server  # ends its threads


def _adapter(path: str) -> Any:
    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path, adapter.scale = path, 1.0
    return adapter


if __name__ == "__main__":
    main(sys.argv[1:])
