"""Measure time and memory of compiling schemas that are made to exhaust both.

    python bench/bombs.py [--name NAME …]

Each schema is compiled in a process of its own, whose memory may grow by 500 MiB, with properties in declared
order and in any order. The outcome is a grammar, with a report of what is not enforced, or an error; `read`
is the time that llama.cpp takes to read the grammar.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from typing import Annotated, Any

import typer

from gbnf.compiler.layout import PropertyOrder
from gbnf.compiler.schema import compile_schema
from gbnf.errors import SchemaError
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar
from isolation import Finished, isolated
from tables import new_table, show

#: What a process may map while it deals with a bomb, beyond what is loaded before.
MEMORY_MIB = 500


def _needs(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def _nested(wrap: Callable[[Any, int], Any], times: int, inner: Any) -> Any:
    return reduce(wrap, range(times), inner)


def _choices(keyword: str, wide: int, long: int) -> Any:
    return {"allOf": [{keyword: [_needs(f"a{i}_{j}") for j in range(wide)]} for i in range(long)]}


def _doubling(step: Callable[[dict[str, str]], Any]) -> Any:
    definitions: dict[str, Any] = {f"d{i}": step({"$ref": f"#/$defs/d{i + 1}"}) for i in range(30)}
    return {"$defs": definitions | {"d30": {"type": "string"}}, "$ref": "#/$defs/d0"}


def _chain(length: int, step: Callable[[dict[str, str]], Any]) -> Any:
    definitions: dict[str, Any] = {f"d{i}": step({"$ref": f"#/$defs/d{i + 1}"}) for i in range(length)}
    return {"$defs": definitions | {f"d{length}": _needs("a")}, "$ref": "#/$defs/d0"}


def _properties(count: int, **more: Any) -> Any:
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(count)}, **more}


BOMBS: dict[str, Callable[[], Any]] = {
    "allOf of anyOf": lambda: _choices("anyOf", 4, 20),
    "allOf of oneOf": lambda: _choices("oneOf", 4, 12),
    "references, doubled by allOf": lambda: _doubling(lambda ref: {"allOf": [ref, ref]}),
    "references, tripled by anyOf": lambda: _doubling(
        lambda ref: {"anyOf": [{"type": "array", "items": ref}, {"properties": {"a": ref}}, ref]}
    ),
    "if-then-else, 25 times": lambda: {
        "allOf": [
            {"if": _needs(f"k{i}"), "then": {"required": [f"t{i}"]}, "else": {"required": [f"e{i}"]}}
            for i in range(25)
        ]
    },
    "40 dependencies": lambda: {
        "type": "object",
        "dependentRequired": {f"a{i}": [f"b{i}"] for i in range(40)},
    },
    "not, 40 times": lambda: _nested(
        lambda inner, i: {"not": {"properties": {f"a{i % 3}": inner, "b": {"type": "string"}}}}, 40, {}
    ),
    "oneOf of 300": lambda: {
        "oneOf": [{"properties": {"k": {"const": i}, f"p{i}": {"type": "string"}}} for i in range(300)]
    },
    "oneOf of 40 overlapping patterns": lambda: {
        "oneOf": [{"properties": {"p": {"type": "string", "pattern": f"^a.*{i}"}}} for i in range(40)]
    },
    "unevaluatedProperties beside 30": lambda: {
        "anyOf": [_needs(f"x{i}") for i in range(30)],
        "unevaluatedProperties": False,
    },
    "a million items": lambda: {
        "type": "array",
        "items": {"type": "array", "minItems": 10**6, "maxItems": 10**6},
        "maxItems": 10**6,
    },
    "uniqueItems of 200 values": lambda: {
        "type": "array",
        "uniqueItems": True,
        "items": {"enum": list(range(200))},
    },
    "contains 40 to 90 of 1000": lambda: {
        "type": "array",
        "contains": {"enum": list(range(50))},
        "minContains": 40,
        "maxContains": 90,
        "maxItems": 1000,
    },
    "at least 500 properties": lambda: {"type": "object", "minProperties": 500, "maxProperties": 1000},
    "2,000 properties": lambda: _properties(2_000),
    "20,000 properties": lambda: _properties(20_000),
    "300 required, none declared": lambda: {"type": "object", "required": [f"r{i}" for i in range(300)]},
    "11 overlapping patternProperties": lambda: {
        "type": "object",
        "patternProperties": {f"a.*{c}.*b.*{c}": {"type": "integer"} for c in "cdefghijklm"},
    },
    "propertyNames, 2 ** 9 states": lambda: {
        "type": "object",
        "propertyNames": {"pattern": "^(a|b)*a(a|b){9}$"},
        "patternProperties": {"^b.*a.*b.{5}$": {"type": "string"}},
    },
    "nested quantifiers": lambda: {"type": "string", "pattern": "^(((a{1,100}){1,100}){1,100}){1,100}$"},
    "quantifiers beside lengths": lambda: {"pattern": "(x+x+)+y", "minLength": 5000, "maxLength": 100000},
    "a billion characters": lambda: {"type": "string", "minLength": 10**9, "pattern": "^[a-z]*$"},
    "2 ** 60 states": lambda: {"type": "string", "pattern": "^(a|b)*a(a|b){60}$"},
    "11 patterns at once": lambda: {
        "allOf": [{"type": "string", "pattern": f"a.{{{n}}}b"} for n in range(3, 14)]
    },
    "classes of all Unicode": lambda: {"pattern": "^[\\p{L}\\p{N}]{1,500}(\\p{Lu}|\\p{Ll}){0,400}$"},
    "100,000 strings": lambda: {"enum": [f"value number {i}" for i in range(100_000)]},
    "20,000 integers beside a bound": lambda: {
        "type": "integer",
        "enum": [i * 7919 for i in range(20_000)],
        "minimum": 5,
    },
    "20,000 strings beside a pattern": lambda: {
        "allOf": [{"enum": [f"v{i}" for i in range(20_000)]}, {"pattern": "^v.*[02468]$"}]
    },
    "a string of a million": lambda: {"const": "x" * 10**6},
    "39 divisors": lambda: {"allOf": [{"type": "number", "multipleOf": 0.01 * i} for i in range(1, 40)]},
    "all doubles": lambda: {"type": "number", "minimum": -1.79e308, "exclusiveMaximum": 1.79e308},
    "900 objects deep": lambda: _nested(lambda inner, _: {"properties": {"a": inner}}, 900, False),
    "3,000 arrays deep": lambda: _nested(lambda inner, _: {"type": "array", "items": inner}, 3000, {}),
    "a value 10,000 arrays deep": lambda: {"const": _nested(lambda inner, _: [inner], 10_000, 1)},
    "a chain of what excludes itself": lambda: _chain(11, lambda ref: {"oneOf": [ref, {"not": ref}]}),
    "a longer chain": lambda: _chain(40, lambda ref: {"oneOf": [ref, {"not": ref}, {"items": ref}]}),
    "a chain that judges a value": lambda: {
        **_chain(40, lambda ref: {"oneOf": [ref, {"not": ref}]}),
        "enum": [1, "a"],
    },
    "a value that excludes itself": lambda: {"enum": [1], "not": {"$ref": "#"}},
    "patterns that backtrack": lambda: {
        "enum": ["a" * 40 + "!"],
        "pattern": "(?:(?:(?:a*)*)*)*b",
    },
    "a pattern too large beside values": lambda: {
        "enum": ["a" * 40 + "!"],
        "pattern": "^(((a{1,100}){1,100}){1,100}){1,100}$",
    },
    "40 lookaheads": lambda: {
        "pattern": "^" + "".join(f"(?=.*{chr(97 + i % 26)}{{{i}}})" for i in range(1, 40))
    },
    "200 classes of Unicode": lambda: {"pattern": "|".join(f"\\p{{L}}{{{i}}}\\p{{Lu}}" for i in range(200))},
    "2,000 items of a tuple": lambda: {"type": "array", "prefixItems": [{"type": "string"}] * 2_000},
    "2,000 different items of a tuple": lambda: {
        "type": "array",
        "prefixItems": [{"type": "integer", "minimum": i} for i in range(2_000)],
    },
    "60 dependent schemas": lambda: {
        "type": "object",
        "dependentSchemas": {
            f"a{i}": {"properties": {f"a{(i + 1) % 60}": {"type": "string"}}, "minProperties": i}
            for i in range(60)
        },
    },
    "propertyNames, nested 10,000 deep": lambda: _nested(
        lambda inner, _: {"propertyNames": inner}, 10_000, {}
    ),
    "complements, nested 10,000 deep": lambda: _nested(lambda inner, _: {"not": inner}, 10_000, {}),
    "choices, nested 10,000 deep": lambda: _nested(
        lambda inner, _: {"anyOf": [inner, {"type": "null"}]}, 10_000, {"type": "string"}
    ),
    "10,000 references in a row": lambda: {
        "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(10_000)}
        | {"d10000": {"type": "null"}},
        "not": {"$ref": "#/$defs/d0"},
    },
    "5,000 references to anchors": lambda: {
        "$defs": {f"d{i}": {"$anchor": f"a{i}", "type": "string"} for i in range(5_000)},
        "properties": {f"p{i}": {"$ref": f"#a{i}"} for i in range(5_000)},
    },
    "unevaluatedProperties beside 300": lambda: {
        "anyOf": [_needs(f"x{i}") for i in range(300)],
        "unevaluatedProperties": {"type": "string"},
    },
    "15 groups of which one is needed": lambda: {
        **_properties(30),
        "requires_one_of": [[f"p{i}", f"p{i + 15}"] for i in range(15)],
    },
    "one that excludes itself": lambda: {
        "$defs": {
            "n": {
                "oneOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/n"}},
                    {"not": {"$ref": "#/$defs/n"}},
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}},
                ]
            }
        },
        "$ref": "#/$defs/n",
    },
}


@cache
def vocabulary() -> NativeModel:
    """Return the vocabulary that llama.cpp reads grammars with, for all processes that are forked later."""
    return NativeModel(model_path(), vocab_only=True)


@dataclass(frozen=True, slots=True)
class Task:
    """A schema by its name, and the property order to compile it with."""

    name: str
    order: PropertyOrder


def defuse(task: Task) -> dict[str, Any]:
    """Return the outcome of a schema.

    Its error, or the size of its grammar, which llama.cpp has read; and the cost.
    """
    schema = BOMBS[task.name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    outcome: dict[str, Any] = {"error": "", "characters": 0, "findings": 0, "read_s": 0.0}
    try:
        grammar = compile_schema(schema, property_order=task.order)
        outcome |= {"characters": len(str(grammar)), "findings": len(grammar.report)}
    except SchemaError as error:
        outcome["error"] = str(error)
    outcome["seconds"] = time.process_time() - start
    outcome["mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if not outcome["error"]:
        start = time.process_time()
        with NativeGrammar.parse(vocabulary(), str(grammar)):
            outcome["read_s"] = time.process_time() - start
    return outcome


def main(
    name: Annotated[list[str] | None, typer.Option(help=f"Schema, repeatable: {'; '.join(BOMBS)}.")] = None,
    limit: Annotated[float, typer.Option(help="Time limit per schema, in seconds.")] = 60.0,
) -> None:
    """Compile schemas that are made to blow up."""
    tasks = [Task(bomb, order) for bomb in name or BOMBS for order in ("declared", "any")]
    drawn = new_table(" | order | s | MiB | grammar | findings | read s", "Bombs", left=("order",))
    vocabulary()
    outcomes = dict(isolated(defuse, tasks, jobs=1, limit_s=limit, memory_mib=MEMORY_MIB))
    slowest = most = 0.0
    for index, task in enumerate(tasks):
        outcome = outcomes[index]
        if not isinstance(outcome, Finished):
            drawn.add_row(task.name, task.order, "-", "-", str(outcome), "", "")
            continue
        result = outcome.value
        slowest, most = max(slowest, result["seconds"]), max(most, result["mib"])
        size = "error" if result["error"] else f"{result['characters']:,}"
        costs = (f"{result['seconds']:.2f}", f"{result['mib']:.0f}", size)
        drawn.add_row(task.name, task.order, *costs, str(result["findings"]), f"{result['read_s']:.2f}")
    show(drawn)
    print(f"{len(BOMBS)} bombs, two orders each: slowest {slowest:.2f} s, most memory {most:.0f} MiB")


if __name__ == "__main__":
    typer.run(main)
