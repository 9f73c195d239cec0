"""Evaluate the demonstration model on traces: `python -m training.evaluate --model model.gguf`.

Traces of the generator's held-out half are evaluated call by call after the correct history, greedily and
without a grammar, so that the numbers show what was learnt and not what the grammar enforces. Whole runs with
the real executors are those of `gbnf bench --suite held-out` and of the other suites.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.process_globals import patch_default_model_params
from training.chat import conversation
from training.source import Source
from training.traces import trace

if TYPE_CHECKING:
    from llama_cpp import Llama

EVALUATION_SEED = 987_654_321


def answer(llama: Llama, turns: list[tuple[str, str]], most: int = 400) -> str:
    """Return what the model says next, greedily."""
    made: Any = llama.create_completion(
        conversation(turns) + "<|assistant|>", max_tokens=most, temperature=0.0
    )
    return str(made["choices"][0]["text"])


@dataclass(slots=True)
class Score:
    """Counts of exact calls and whole plans."""

    calls: Counter[str]
    right: Counter[str]
    plans: int = 0
    right_plans: int = 0
    json: int = 0

    def text(self) -> str:
        """Return the score in lines to print."""
        total, right = self.calls.total(), self.right.total()
        exact = f"exact calls {right}/{total} ({right / total:.1%}), valid JSON {self.json / total:.1%}"
        lines = [
            f"{exact}, whole plans {self.right_plans}/{self.plans} ({self.right_plans / self.plans:.1%})"
        ]
        lines += [f"  {name:28} {self.right[name]:4}/{count:4}" for name, count in sorted(self.calls.items())]
        return "\n".join(lines)


def on_traces(llama: Llama, count: int, *, seed: int = EVALUATION_SEED, show: int = 0) -> Score:
    """`count` traces of the held-out half; prints the first `show` wrong calls."""
    source = Source(seed, held_out=True)
    score = Score(Counter(), Counter())
    for _ in range(count):
        one = trace(source)
        history = [("system", one.system())]
        whole = True
        for role, content in one.turns():
            if role == "assistant":
                name = json.loads(content)["name"]
                said = answer(llama, history)
                score.calls[name] += 1
                score.json += _is_json(said)
                score.right[name] += said == content
                if said != content:
                    whole = False
                    if show:
                        show -= 1
                        print(f"> {one.request}\n  wanted {content}\n  said   {said}")
            history.append((role, content))
        score.plans += 1
        score.right_plans += whole
    return score


def report(model: Path, traces: int, *, show: int = 0) -> None:
    """Print the evaluation."""
    from llama_cpp import Llama  # noqa: PLC0415  # the rest is read by tests without an engine

    patch_default_model_params()
    print(on_traces(Llama(str(model), n_ctx=1024, verbose=False), traces, show=show).text())


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, default=model_path(), help="GGUF file (default: the bundled model)"
    )
    parser.add_argument("--traces", type=int, default=200, help="number of held-out traces (default 200)")
    parser.add_argument("--show", type=int, default=0, help="wrong calls to print (default 0)")
    options = parser.parse_args()
    report(options.model, options.traces, show=options.show)


if __name__ == "__main__":
    main()
