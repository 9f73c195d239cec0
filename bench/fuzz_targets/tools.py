"""Pools of tools, and the arguments of one that are to be repaired."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import jsonschema
from hypothesis import strategies as st

from fuzz_targets.common import ORDERS, SEEDS, Target, accepts
from gbnf import compile_pool, load_manifests, validate_call
from gbnf.calls.repair import repair_call
from gbnf.dialects import call_schema, schema_violation
from gbnf.errors import GbnfError
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.system.folders import manifests_path
from support.oracle import engine
from support.pools import json_values
from support.random_texts import generate
from support.schemas import SCHEMAS
from support.values import NAMES, values_near

_TOOL_NAMES = ["a_b", "aB", "a.b", "json", "a", "root", "string", "final", "x-y", "get_now", "A"]


@st.composite
def tools(draw: st.DrawFn) -> dict[str, Any]:
    """The arguments of one tool, as a manifest declares them."""
    names = draw(st.lists(st.sampled_from([*NAMES, "from_step"]), unique=True, max_size=4))
    properties: dict[str, Any] = {}
    for name in names:
        kind = draw(st.integers(0, 7))
        properties[name] = draw(SCHEMAS)
        if kind == 0:
            properties[name] = {**properties[name], "runtime_resolved": True}
        elif kind == 1 and len(names) > 1:
            other = draw(st.sampled_from([option for option in names if option != name]))
            properties[name] = {"type": "integer", "fills": other}
    args: dict[str, Any] = {"type": "object", "properties": properties}
    if names:
        args["required"] = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
        if draw(st.booleans()):
            groups = st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=2)
            args["requires_one_of"] = draw(st.lists(groups, min_size=1, max_size=2))
    more = draw(st.sampled_from(["silent", "silent", "closed", "open", "typed"]))
    if more != "silent":
        args["additionalProperties"] = {"closed": False, "open": True, "typed": {"type": "integer"}}[more]
    return args


_POOL_CASES = st.fixed_dictionaries(
    {
        "tools": st.dictionaries(st.sampled_from(_TOOL_NAMES), tools(), max_size=3),
        "shipped": st.lists(st.sampled_from(["find_files", "get_now", "send_messages"]), unique=True),
        "steps": st.sampled_from([[], [1], [1, 3]]),
        "options": st.fixed_dictionaries(
            {
                "property_order": ORDERS,
                "final_answer": st.booleans(),
            }
        ),
        "seed": SEEDS,
    }
)


def _pool(case: Mapping[str, Any]) -> list[Tool]:
    pool = [tool for tool in load_manifests(manifests_path()) if tool.name in case["shipped"]]
    for name, args in case["tools"].items():
        if name not in case["shipped"]:
            pool.append(Tool.from_mapping({"name": name, "description": "A tool.", "args": args}))
    return pool


def check_pool(case: Mapping[str, Any]) -> str:
    """Check that derived calls are valid or reported; foreign arguments and unknown names are refused."""
    options, steps = case["options"], tuple(case["steps"])
    try:
        pool = _pool(case)
        grammar = compile_pool(pool, steps=steps, **options)
    except GbnfError:
        return "no grammar"
    engine().check(grammar)
    tools = [*pool, FINAL_ANSWER] if options["final_answer"] else pool
    open_tools = {finding.tool for finding in grammar.report if finding.kind == "unenforced"}
    schema = _call_schema(pool, steps, final_answer=options["final_answer"])
    for shift in range(3):
        text = generate(grammar.rules, random.Random(case["seed"] + shift))
        assert accepts(grammar, text), f"the engine refuses {text}, which the grammar derives"
        call = json.loads(text)
        validation = validate_call(call, tools, steps=steps)
        reported = call["name"] in open_tools
        assert validation.ok or reported, f"derived {text}: {validation.errors}"
        if schema is not None and validation.ok:
            assert schema_violation(schema, text) is None, f"the joint schema refuses {text}"
        for other in tools:
            mixed = {**call, "name": other.name}
            if other.name not in open_tools and not validate_call(mixed, tools, steps=steps).ok:
                refused = not accepts(grammar, json.dumps(mixed, ensure_ascii=False))
                assert refused, f"{mixed} is accepted, with the arguments of {call['name']}"
        unknown = json.dumps({**call, "name": f"{call['name']}_"}, ensure_ascii=False)
        assert not accepts(grammar, unknown), f"the name in {unknown} is unknown, and accepted"
    return "reported" if open_tools else "exact"


def _call_schema(pool: list[Tool], steps: tuple[int, ...], *, final_answer: bool) -> dict[str, Any] | None:
    try:
        schema = call_schema(pool, steps=steps, final_answer=final_answer)
    except GbnfError:
        return None
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


_REPAIR_CASES = st.one_of(
    st.fixed_dictionaries(
        {
            "args": tools(),
            "arguments": st.dictionaries(st.sampled_from([*NAMES, "A_B", "Name"]), json_values, max_size=4),
            "options": st.fixed_dictionaries(
                {"clamp": st.booleans(), "unknown": st.sampled_from(["drop", "refuse"])}
            ),
        }
    ),
    tools().flatmap(
        lambda args: st.fixed_dictionaries(
            {
                "args": st.just(args),
                "arguments": st.fixed_dictionaries(
                    {}, optional={name: _bent(schema) for name, schema in args["properties"].items()}
                ),
                "options": st.just({}),
            }
        )
    ),
)


def _bent(schema: Any) -> st.SearchStrategy[Any]:
    """Values near a schema, as models spoil them: in a text, in a list, out of one."""
    values = values_near(schema)
    return st.one_of(
        values,
        values.map(json.dumps),
        values.map(str),
        values.map(lambda value: [value]),
        values.map(lambda value: value[0] if isinstance(value, list) and value else value),
    )


def check_repair(case: Mapping[str, Any]) -> str:
    """A valid call stays; every change is listed; what is repaired is valid, and stays as it is."""
    try:
        tool = Tool.from_mapping({"name": "t", "description": "t", "args": case["args"]})
    except GbnfError:
        return "no tool"
    call = {"name": "t", "arguments": case["arguments"]}
    before = json.dumps(call)
    valid = validate_call(call, [tool]).ok
    repaired = repair_call(call, [tool], **case["options"])
    assert json.dumps(call) == before, "the call that was given is changed"
    assert repaired.validation == validate_call(repaired.call, [tool]), "the verdict is of another call"
    json.dumps(repaired.call)
    changed = json.dumps(repaired.call) != before
    assert changed == bool(repaired.coercions), f"{repaired.call}, by {repaired.coercions}"
    if valid:
        assert not changed, f"a valid call is changed: {repaired.coercions}"
        return "valid"
    if not repaired.ok:
        return "refused"
    again = repair_call(repaired.call, [tool], **case["options"])
    assert again.call == repaired.call, f"once more: {again.coercions}"
    return "repaired"


POOL = Target("pool", _POOL_CASES, check_pool)
REPAIR = Target("repair", _REPAIR_CASES, check_repair)
