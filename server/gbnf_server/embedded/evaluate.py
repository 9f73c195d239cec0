"""How good the model is: `python -m gbnf_server.embedded.evaluate --model model.gguf`.

Greedy, without a grammar, in llama.cpp: the bare model, so that the numbers say what was learnt and not
what the grammar mends. Two sets: traces of a seed that training never uses (wordings seen, values not),
call by call after the right history; and the fixed requests of `held_out.toml`, whose values never occur in
training.
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbnf.prompt import call_text
from gbnf_server.embedded import model_path
from gbnf_server.embedded.chat import conversation
from gbnf_server.embedded.traces import pool_for, pool_prompt, trace

if TYPE_CHECKING:
    from llama_cpp import Llama

EVALUATION_SEED = 987_654_321


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A request of `held_out.toml`; see there for the fields."""

    text: str
    calls: tuple[dict[str, Any], ...]
    before: dict[str, str]
    after: dict[str, Any]
    answer_has: tuple[str, ...]
    choose: int


def held_out() -> tuple[HeldOut, ...]:
    """The fixed held-out requests."""
    found = tomllib.loads((files(__package__) / "held_out.toml").read_text("utf-8"))["requests"]
    return tuple(
        HeldOut(
            one["text"],
            tuple(one["calls"]),
            one.get("before", {}),
            one.get("after", {}),
            tuple(one.get("answer_has", ())),
            one.get("choose", 1),
        )
        for one in found
    )


def answer(llama: Llama, turns: list[tuple[str, str]], most: int = 400) -> str:
    """What the model says next, greedily."""
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
        """The score in lines to print."""
        total, right = self.calls.total(), self.right.total()
        exact = f"exact calls {right}/{total} ({right / total:.1%}), valid JSON {self.json / total:.1%}"
        lines = [
            f"{exact}, whole plans {self.right_plans}/{self.plans} ({self.right_plans / self.plans:.1%})"
        ]
        lines += [f"  {name:28} {self.right[name]:4}/{count:4}" for name, count in sorted(self.calls.items())]
        return "\n".join(lines)


def on_traces(llama: Llama, count: int, *, seed: int = EVALUATION_SEED, show: int = 0) -> Score:
    """`count` generated traces; prints the first `show` wrong calls."""
    source = random.Random(seed)
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


def on_held_out(llama: Llama) -> tuple[int, int]:
    """First calls of the fixed requests that are exact, and how many there are."""
    right = 0
    requests = held_out()
    for one in requests:
        pool = pool_for(random.Random(1), frozenset(call["name"] for call in one.calls))
        said = answer(llama, [("system", pool_prompt(pool)), ("user", one.text)])
        wanted = call_text(one.calls[0])
        right += said == wanted
        if said != wanted:
            print(f"> {one.text}\n  wanted {wanted}\n  said   {said}")
    return right, len(requests)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def main() -> None:
    from llama_cpp import Llama  # noqa: PLC0415  # the rest is read by tests without an engine

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=model_path())
    parser.add_argument("--traces", type=int, default=200)
    parser.add_argument("--show", type=int, default=0, help="print so many wrong calls")
    asked = parser.parse_args()
    llama = Llama(str(asked.model), n_ctx=1024, verbose=False)
    right, count = on_held_out(llama)
    print(f"held-out requests: {right}/{count} first calls exact")
    print(on_traces(llama, asked.traces, show=asked.show).text())


if __name__ == "__main__":
    main()
