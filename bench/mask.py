"""Time token masks in llama.cpp: our grammars against those of its own converter.

    python bench/mask.py [--cases N] [--vocab GGUF …] [--json OUT]

Along the tokens of real calls, at each token in turn for both grammars of one schema: the mask over the whole
vocabulary (`llama_sampler_apply` on all candidates, what llama-cpp-python does for every token) and the test
of one candidate (what llama-server does first). A schema's ratio is our total over theirs.
Objects that declare properties are closed for both, as the converter closes them. Times are CPU times.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from calls import CALLS
from contenders import LlamaCpp, gbnf_judge, open_model
from corpus import DataMissingError, load_cases, vocabulary_paths
from gbnf.compiler.schema import compile_schema
from gbnf.errors import GbnfError
from gbnf.tools import load_manifests
from gbnf.tools.tool import offered_args
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar
from gbnf_server.system.folders import manifests_path
from tables import new_table, show

Kind = Literal["bundled tool", "MaskBench", "enum of 1000", "40 optional"]
_TOOL_COLLECTIONS = ("Glaiveai2K", "BFCL", "JME", "MCPspec")
_REPEATS = 16  # of a test that is done before a clock can tell
_LONGEST = 400  # characters of an instance: along longer ones the same masks only repeat


@dataclass(frozen=True, slots=True)
class Walk:
    """A schema, and a valid text to go along."""

    name: str
    kind: Kind
    schema: Any
    text: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds along one text, summed over its tokens, for one grammar of each side; `dearest` is one mask."""

    name: str
    kind: Kind
    tokens: int
    mask_ours: float
    mask_theirs: float
    one_ours: float
    one_theirs: float
    dearest_ours: float

    @property
    def ratio(self) -> float:
        """Seconds of our mask divided by seconds of theirs."""
        return self.mask_ours / self.mask_theirs


class Sampler:
    """llama.cpp's grammar sampler, timed. Its candidates are prepared outside of what is timed."""

    def __init__(self, model: NativeModel, grammar: str) -> None:
        with NativeGrammar.parse(model, grammar):  # which says why, where the engine refuses it
            self._sampler = llama_cpp.llama_sampler_init_grammar(model.vocabulary, grammar.encode(), b"root")
        self._all = np.zeros(model.size, dtype=[("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._all["id"] = np.arange(model.size)

    def mask(self) -> float:
        """Seconds for one mask over the whole vocabulary."""
        self._all["logit"] = 0.0
        array = _candidates(self._all)
        start = time.process_time()
        llama_cpp.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return time.process_time() - start

    def test(self, token: int) -> tuple[float, bool]:
        """Seconds for the test of one candidate, and whether it is allowed."""
        repeated = np.repeat(self._all[token : token + 1], _REPEATS)
        repeated["logit"] = 0.0
        arrays = [_candidates(repeated[index : index + 1]) for index in range(_REPEATS)]
        start = time.process_time()
        for array in arrays:
            llama_cpp.llama_sampler_apply(self._sampler, ctypes.byref(array))
        seconds = (time.process_time() - start) / _REPEATS
        return seconds, bool(repeated["logit"][0] == 0.0)

    def accept(self, token: int) -> None:
        """Go on. The token must have passed `test`: the engine ends the process otherwise."""
        llama_cpp.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        """Release the native sampler."""
        llama_cpp.llama_sampler_free(self._sampler)


def _candidates(entries: Any) -> Any:
    """llama.cpp's view of an array of token, logit and probability."""
    return llama_cpp.llama_token_data_array(
        data=entries.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data)),
        size=len(entries),
        selected=-1,
        sorted=False,
    )


def measure(model: NativeModel, walk: Walk, ours: str, theirs: str) -> Cost:
    """Go along a text with both grammars at once, so that the machine's moods strike both alike."""
    tokens = model.tokenize(walk.text, special=False)
    samplers = [Sampler(model, ours), Sampler(model, theirs)]
    masks, ones, dearest = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for token in [*tokens, min(model.end_tokens)]:
        for side, sampler in enumerate(samplers):
            seconds = sampler.mask()
            masks[side] += seconds
            dearest[side] = max(dearest[side], seconds)
            seconds, is_allowed = sampler.test(token)
            ones[side] += seconds
            assert is_allowed, f"{walk.name}: token {token} is refused"
            if token not in model.end_tokens:
                sampler.accept(token)
    for sampler in samplers:
        sampler.close()
    (ours_s, theirs_s), (one_ours_s, one_theirs_s) = masks, ones
    count = len(tokens) + 1
    return Cost(walk.name, walk.kind, count, ours_s, theirs_s, one_ours_s, one_theirs_s, dearest[0])


def bundled_walks() -> Iterator[Walk]:
    """Return the arguments of the bundled tools, each along a realistic call."""
    for tool in load_manifests(manifests_path()):
        schema = offered_args(tool, ())
        if schema is not None and tool.name in CALLS:
            yield Walk(tool.name, "bundled tool", schema, json.dumps(CALLS[tool.name], ensure_ascii=False))


def maskbench_walks(data: Path | None) -> Iterator[Walk]:
    """MaskBench's tool-call schemas, spread over the file, each along its longest short valid instance."""
    cases = [case for case in load_cases(data) if case.collection in _TOOL_COLLECTIONS]
    for case in cases[::7]:
        texts = [instance.text for instance in case.instances if instance.valid]
        texts = [text for text in texts if len(text) <= _LONGEST]
        if texts:
            yield Walk(case.id, "MaskBench", case.schema, max(texts, key=len))


def hard_walks() -> Iterator[Walk]:
    """Return what costs most in the usual shape: many names that begin alike, many optional properties."""
    nouns = (
        "invoice",
        "order",
        "customer",
        "payment",
        "shipment",
        "ticket",
        "report",
        "account",
        "event",
        "file",
    )
    verbs = ("create", "delete", "update", "find", "list", "send", "archive", "restore", "merge", "export")
    places = (
        "",
        "_by_id",
        "_by_name",
        "_in_bulk",
        "_today",
        "_as_csv",
        "_as_pdf",
        "_for_user",
        "_v2",
        "_dry_run",
    )
    names = [f"{verb}_{noun}{place}" for verb in verbs for noun in nouns for place in places]
    yield Walk("enum of 1000", "enum of 1000", {"enum": names}, json.dumps(names[637]))
    kinds = ({"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "number"})
    values = ("some text", 12, True, 2.5)
    properties = {
        f"{noun}_{verb}": kinds[index % 4] for verb in verbs[:4] for index, noun in enumerate(nouns)
    }
    call = {name: values[index % 10 % 4] for index, name in enumerate(properties) if index % 3 == 0}
    yield Walk("40 optional", "40 optional", {"type": "object", "properties": properties}, json.dumps(call))


def both_grammars(model: NativeModel, walk: Walk) -> tuple[str, str] | None:
    """Our grammar and the converter's, where both exist and both accept the text."""
    try:
        ours = str(compile_schema(walk.schema, closed=True))
        theirs = LlamaCpp(model).compile(json.dumps(walk.schema))
        judges = [gbnf_judge(model, text) for text in (ours, theirs)]
    except GbnfError:
        return None
    except Exception:  # noqa: BLE001  # the converter raises whatever comes
        return None
    return (ours, theirs) if all(accepts(walk.text) for accepts in judges) else None


def measure_all(model: NativeModel, walks: Iterable[Walk], cases: int) -> list[Cost]:
    """Return the costs of all bundled tools and hard schemas, and of `cases` of MaskBench's."""
    costs: list[Cost] = []
    wanted = dict.fromkeys(("bundled tool", "enum of 1000", "40 optional"), 1 << 30) | {"MaskBench": cases}
    with Progress(console=Console(stderr=True), auto_refresh=False) as progress:
        shown = progress.add_task(model.path.stem, total=None)
        for walk in walks:
            if wanted[walk.kind] and (grammars := both_grammars(model, walk)):
                wanted[walk.kind] -= 1
                costs.append(measure(model, walk, *grammars))
                progress.update(shown, completed=len(costs), refresh=progress.console.is_terminal)
    return costs


def cost_table(costs_by_model: dict[str, list[Cost]]) -> Table:
    """Return the costs for each vocabulary as a table."""
    drawn = new_table(
        "vocabulary | schemas | mask ms | dearest | theirs | median ÷ | worst ÷ |"
        " | one µs | theirs | median ÷",
        "Cost of a token: ours, theirs, and the ratio of sums by schema",
        left=("schemas", ""),
    )
    for model, costs in costs_by_model.items():
        for kind in dict.fromkeys(cost.kind for cost in costs):
            some = [cost for cost in costs if cost.kind == kind]
            drawn.add_row(model, f"{len(some)} {kind}", *_row(some))
        drawn.add_row(model, f"{len(costs)} in all", *_row(costs))
        drawn.add_section()
    return drawn


def _row(costs: Sequence[Cost]) -> list[str]:
    tokens = sum(cost.tokens for cost in costs)
    worst = max(costs, key=lambda cost: cost.ratio)
    return [
        f"{1e3 * sum(cost.mask_ours for cost in costs) / tokens:.2f}",
        f"{1e3 * max(cost.dearest_ours for cost in costs):.1f}",
        f"{1e3 * sum(cost.mask_theirs for cost in costs) / tokens:.2f}",
        f"{statistics.median(cost.ratio for cost in costs):.2f}",
        f"{worst.ratio:.2f}",
        worst.name[:28],
        f"{1e6 * sum(cost.one_ours for cost in costs) / tokens:.1f}",
        f"{1e6 * sum(cost.one_theirs for cost in costs) / tokens:.1f}",
        f"{statistics.median(cost.one_ours / cost.one_theirs for cost in costs):.2f}",
    ]


def main(
    data: Annotated[Path | None, typer.Option(help="Cases as JSON Lines, plain or xz.")] = None,
    vocab: Annotated[list[Path] | None, typer.Option(help="Vocabulary, a GGUF file; repeatable.")] = None,
    cases: Annotated[int, typer.Option(help="Number of MaskBench schemas.")] = 20,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all times to this file.")] = None,
) -> None:
    """Time masks along real calls, our grammars against the converter's."""
    try:
        paths = vocab or vocabulary_paths()
        walks = [*bundled_walks(), *maskbench_walks(data), *hard_walks()]
    except DataMissingError as error:
        raise SystemExit(str(error)) from None
    costs = {}
    for path in paths:
        costs[path.stem.removeprefix("ggml-vocab-")] = measure_all(open_model(path), walks, cases)
    show(cost_table(costs))
    if json_out:
        raw = {name: [asdict(cost) for cost in some] for name, some in costs.items()}
        json_out.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    typer.run(main)
