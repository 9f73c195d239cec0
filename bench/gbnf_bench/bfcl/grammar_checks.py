"""The leaderboard without a model: check the grammar of each pool with llama.cpp's own engine.

For each entry, its functions are compiled to one grammar. It must accept each correct call, and refuse each
correct call under another function's name, unless its arguments are valid for that one too. If an entry has
one function, the next entry's is added for the last check. A correct call that is refused and that jsonschema
finds invalid too is an error in the data, and is counted separately.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gbnf import compile_pool, validate_call
from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf_bench.bfcl.ast_checker import right_calls
from gbnf_bench.bfcl.files import LeaderboardEntry
from gbnf_bench.bfcl.functions import tools_of
from gbnf_server.llama.grammar_checker import GrammarChecker
from gbnf_server.system.errors import GrammarRefusedError

CALLS_PER_ENTRY = 40
"""Maximum correct calls of one entry that are checked: long lists of acceptable values are repetitive."""


@dataclass(slots=True)
class CompileReport:
    """The result of a category. Keys of `counts` are those of `COLUMNS`; `faults`: entry -> reason."""

    category: str
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


COLUMNS = (
    ("pools", "pools"),
    ("compiled", "compiled"),
    ("right", "right calls"),
    ("accepted", "accepted"),
    ("invalid", "invalid by their own schema"),
    ("refused", "refused though valid"),
    ("foreign", "with another's arguments"),
    ("foreign_refused", "refused"),
    ("foreign_accepted", "accepted though invalid"),
)


def compile_all(entries: Sequence[LeaderboardEntry], engine: GrammarChecker) -> CompileReport:
    """Check every entry of a category."""
    result = CompileReport(entries[0].category if entries else "")
    for index, entry in enumerate(entries):
        neighbour = entries[(index + 1) % len(entries)] if len(entries) > 1 else None
        _judge(entry, neighbour, engine, result)
    return result


def _judge(
    entry: LeaderboardEntry, neighbour: LeaderboardEntry | None, engine: GrammarChecker, result: CompileReport
) -> None:
    result.counts["pools"] += 1
    begun = time.perf_counter()
    try:
        tools = tools_of(entry.functions)
        grammar = compile_pool(tuple(tools.values()), final_answer=not tools)  # some entries have no function
        result.seconds.append(time.perf_counter() - begun)
        engine.check(grammar)
    except (GbnfError, GrammarRefusedError) as error:
        result.faults.append((entry.id, f"no grammar: {error}"))
        return
    result.counts["compiled"] += 1
    calls = [(name, arguments) for name, arguments in islice(right_calls(entry), CALLS_PER_ENTRY)]
    texts = [_text(tools[name], arguments) for name, arguments in calls]
    for text, judged in zip(texts, engine.match_many(grammar, texts), strict=True):
        result.counts["right"] += 1
        if judged.complete:
            result.counts["accepted"] += 1
        elif not validate_call(json.loads(text), tuple(tools.values())).ok:
            result.counts["invalid"] += 1
        else:
            result.counts["refused"] += 1
            result.faults.append((entry.id, f"refused at {text[judged.position :][:40]!r}: {text[:200]}"))
    _judge_foreign(entry, tools, neighbour, engine, result)


def _judge_foreign(
    entry: LeaderboardEntry,
    tools: Mapping[str, Tool],
    neighbour: LeaderboardEntry | None,
    engine: GrammarChecker,
    result: CompileReport,
) -> None:
    """Check each correct call under every other function's name."""
    pool = {tool.name: tool for tool in tools.values()}
    if len(pool) == 1 and neighbour is not None:
        try:
            pool |= {
                tool.name: tool for tool in tools_of(neighbour.functions).values() if tool.name not in pool
            }
        except GbnfError:
            return  # reported with its own entry
    if len(pool) < 2:
        return
    texts = list(_foreign(entry, tools, pool))
    if not texts:
        return
    grammar = compile_pool(tuple(pool.values()))
    for text, judged in zip(texts, engine.match_many(grammar, texts), strict=True):
        result.counts["foreign"] += 1
        if judged.complete:
            result.counts["foreign_accepted"] += 1
            result.faults.append((entry.id, f"accepted with another function's arguments: {text[:200]}"))
        else:
            result.counts["foreign_refused"] += 1


def _foreign(entry: LeaderboardEntry, tools: Mapping[str, Tool], pool: Mapping[str, Tool]) -> Iterator[str]:
    """Return calls with one function's name and another's arguments, none of which is valid."""
    seen = set()
    for name, arguments in right_calls(entry):
        if name in seen:
            continue
        seen.add(name)
        for other in pool.values():
            text = _text(tools[name], arguments, name=other.name)
            if other is not tools[name] and not validate_call(json.loads(text), tuple(pool.values())).ok:
                yield text


def _text(tool: Tool, arguments: Mapping[str, Any], *, name: str | None = None) -> str:
    """Return the call in canonical form: keys in the declared order, whole numbers as integers."""
    ordered = _ordered(arguments, tool.args)
    return json.dumps({"name": name or tool.name, "arguments": ordered}, ensure_ascii=False)


def _ordered(value: Any, schema: Any) -> Any:
    schema = schema if isinstance(schema, Mapping) else {}
    match value:
        case Mapping():
            declared = schema.get("properties", {})
            keys = [
                *(key for key in declared if key in value),
                *(key for key in value if key not in declared),
            ]
            return {key: _ordered(value[key], declared.get(key)) for key in keys}
        case list():
            return [_ordered(item, schema.get("items")) for item in value]
        case float() if schema.get("type") == "integer" and value.is_integer():
            return int(value)
        case _:
            return value
