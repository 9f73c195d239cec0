"""The tools offered for a request: those that the pool filter keeps, fewer, or with tools that don't exist.

Invariants: a pool is in name order, as from the loader, except a few shuffled ones; no decoy has the name of
a bundled tool.
"""

from __future__ import annotations

from functools import cache

from gbnf.prompts.messages import system_prompt
from gbnf.requests.pool_filter import filter_pool
from gbnf.tools import FINAL_ANSWER, Tool, load_manifests
from gbnf_server.system.folders import manifests_path
from training.source import Source
from training.vocabulary import draw, members


@cache
def bundled_tools() -> dict[str, Tool]:
    """Return the bundled executors by name, in name order."""
    return {tool.name: tool for tool in load_manifests(manifests_path())}


@cache
def pool_prompt(pool: tuple[str, ...], decoys: tuple[str, ...] = ()) -> str:
    """Return the system message of bundled executors, by name, and of decoys, by signature, in name order."""
    head, *lines, last = system_prompt(
        [*(bundled_tools()[name] for name in pool), FINAL_ANSWER], style="minimal"
    ).split("\n")
    if decoys:
        lines = sorted([*lines, *decoys], key=lambda line: line.split("(", 1)[0])
    return "\n".join([head, *lines, last])


def pool_for(random: Source, request: str, needed: frozenset[str]) -> tuple[str, ...]:
    """Return mostly what the filter keeps, otherwise some of the tools, sometimes in another order."""
    names = tuple(bundled_tools())
    usual = tuple(tool.name for tool in filter_pool(bundled_tools().values(), request).kept)
    kind = random.random()
    if kind < 0.6:
        return usual if needed.issubset(usual) else tuple(sorted({*usual, *needed}))
    others = [name for name in (names if kind < 0.7 else usual) if name not in needed]
    chosen = sorted([*needed, *random.sample(others, random.randint(0, len(others)))])
    if kind > 0.95:
        random.shuffle(chosen)
    return tuple(chosen)


def decoys_for(random: Source, pool: tuple[str, ...]) -> tuple[str, ...]:
    """Return a few signatures of tools that don't exist, some of them nearly those that do."""
    made: dict[str, str] = {}
    for _ in range(random.choice((1, 2, 2, 3, 4, 6))):
        real = random.choice(pool or ("find_files",))
        verb, _, rest = real.partition("_")
        name = draw(random, "{decoy}", real=real, its_verb=verb, its_object=rest or draw(random, "{object}"))
        if name in bundled_tools() or not name.isascii():
            continue
        if name.startswith(verb) and real in bundled_tools() and random.random() < 0.5:
            signature = pool_prompt((real,)).split("\n")[1].partition("(")[2]
        else:
            count = random.randint(0, 3)
            arguments = random.sample(members(random, "arguments"), count)
            first = random.randint(0, count)
            signature = ", ".join([*arguments[:first], *(f"{each}?" for each in arguments[first:])]) + ")"
        made[name] = f"{name}({signature}"
    return tuple(made.values())
