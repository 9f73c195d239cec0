"""Data that the benchmarks and external tests read: its folder, and MaskBench's cases.

The data is not part of the project. It is read from the folder in the environment variable GBNF_SHARED, or
else from `shared` beside the checkout.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The vocabulary that cases are judged with unless another is named.
DEFAULT_VOCABULARY = "ggml-vocab-llama-bpe.gguf"


class DataMissingError(Exception):
    """Data that is not on this machine: what is missing, where it was expected, and how to set the folder."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A value, and whether the schema allows it."""

    valid: bool
    data: Any

    @property
    def text(self) -> str:
        """The serialisation that is judged: keys in the value's own order."""
        return json.dumps(self.data, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One schema of MaskBench with its instances, of which there may be none."""

    id: str
    schema: Any
    instances: tuple[Instance, ...]

    @property
    def collection(self) -> str:
        """The first part of the id: `Github_easy---o39429` is of Github_easy, `BFCL_java_1` of BFCL."""
        name, separator, _ = self.id.partition("---")
        return name if separator else self.id.partition("_")[0]


def shared_path(*parts: str) -> Path:
    """Return a file or folder of the shared data. Raises DataMissingError."""
    root = os.environ.get("GBNF_SHARED")
    folder = Path(root) if root else Path(__file__).resolve().parent.parent.parent / "shared"
    path = folder.joinpath(*parts)
    if not path.exists():
        raise DataMissingError(
            f"there is no {path}. Set GBNF_SHARED to the folder that holds {'/'.join(parts)}."
        )
    return path


def vocabulary_path(name: str = DEFAULT_VOCABULARY) -> Path:
    """Return a vocabulary by its file name. Raises DataMissingError."""
    return shared_path("vocabs", name)


def vocabulary_paths() -> list[Path]:
    """Every shared vocabulary. Raises DataMissingError."""
    return sorted(shared_path("vocabs").glob("*.gguf"))


def load_cases(path: Path | None = None, *, every: int = 1) -> list[Case]:
    """MaskBench's cases in file order: all, or one of `every`. `path` is JSON lines, plain or xz.

    Raises DataMissingError.
    """
    path = path or shared_path("maskbench", "dev.jsonl.xz")
    if not path.is_file():
        raise DataMissingError(f"there is no {path}. Give a file of MaskBench cases, one JSON object a line.")
    return [_case(line) for number, line in enumerate(_lines(path)) if number % every == 0]


def _lines(path: Path) -> Iterator[str]:
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        yield from file


def _case(line: str) -> Case:
    raw = json.loads(line)
    return Case(
        raw["id"], raw["schema"], tuple(Instance(test["valid"], test["data"]) for test in raw["tests"])
    )
