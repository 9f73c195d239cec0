"""Arguments in the notations of tool-call formats.

Judges: llama.cpp's engine, jsonschema, and a naive writer and reader.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.compiler.grammar import CompiledRules, Grammar, link
from gbnf.compiler.layout import CompileOptions
from gbnf.compiler.pool import CompiledTool, compile_tool, compile_tools
from gbnf.errors import SchemaError
from gbnf.grammar.ir import Rules, literal
from gbnf.tools import Tool
from support.argument_schemas import ARGUMENTS, JSON, SIGNS, near
from support.effort import scaled
from support.notations import NOTATIONS, CannotReadError, CannotWriteError, first, read, write
from support.oracle import accepts, engine
from support.random_texts import generate
from support.values import canonical, in_declared_order, is_valid

OPTIONS = CompileOptions(closed=False, property_order="declared")
ANY_ORDER = CompileOptions(closed=False, property_order="any")
NAMES_OF_NOTATIONS = st.sampled_from(list(NOTATIONS))


def compiled(
    schema: Any, notation: Any, *, steps: bool = False, options: Any = OPTIONS, **more: Any
) -> Grammar:
    """The grammar of the arguments; raises SchemaError if there are none."""
    tool = compile_tool(Tool(name="t", args=schema, **more), options, steps, None, notation)
    if isinstance(tool, SchemaError):
        raise tool
    assert isinstance(tool, CompiledTool)
    head = {"root": tool.arguments, **({"fromStep": literal("7")} if steps else {})}
    return link([CompiledRules.of(Rules(head)), tool.part], tool.findings, options.whitespace)


@pytest.mark.slow
@pytest.mark.parametrize("notation", NOTATIONS)
def test_tools_whose_names_are_the_same_in_camel_case_share_no_rules(notation: str) -> None:
    free = {"type": "object", "properties": {"a": {}, "b": {"anyOf": [{}, {"type": "integer"}]}}}
    tools = [Tool(name=name, args=free) for name in ("a_b", "aB", "a.b")]
    pool = compile_tools(tools, OPTIONS, has_steps=False, strict=False, notation=NOTATIONS[notation])
    names = [name for tool in pool.tools for name in tool.part.names]
    assert len(pool.tools) == len(tools)
    assert len(names) == len(set(names))


@st.composite
def drawn_arguments(draw: st.DrawFn, schema: Any) -> dict[str, Any]:
    """Arguments near a schema, some with any value in the place of one."""
    found = {
        name: draw(JSON) if draw(st.integers(0, 4)) == 0 else value
        for name, value in draw(near(schema)).items()
    }
    declared = [name for name in schema["properties"] if name in found]
    return {name: found[name] for name in [*declared, *(name for name in found if name not in declared)]}


def judge(name: str, schema: Any, arguments: list[Any], choose: Any = first, options: Any = OPTIONS) -> None:
    """Assert that the engine accepts a text exactly if what is read from it is valid."""
    notation = NOTATIONS[name]
    written = []
    for one in arguments:
        with suppress(CannotWriteError):
            written.append((write(one, notation, choose), one))
    try:
        grammar = compiled(schema, notation, options=options)
        accepted = [found.complete for found in engine().match_many(grammar, [text for text, _ in written])]
    except SchemaError:
        grammar, accepted = None, [False] * len(written)
    for (text, given_arguments), is_accepted in zip(written, accepted, strict=True):
        try:
            value = read(text, notation, schema)
        except CannotReadError:
            assert not is_accepted, text
            continue
        if not is_valid(schema, value):
            assert not is_accepted or not (grammar and grammar.exact), (text, value)
        elif "\0" in text:
            assert not is_accepted  # llama.cpp takes it for the end of a text
        elif value == given_arguments and _must_be_accepted(name, schema, value, grammar, options):
            assert is_accepted, (text, schema, str(grammar))


def _must_be_accepted(name: str, schema: Any, value: Any, grammar: Grammar | None, options: Any) -> bool:
    kinds = {finding.kind for finding in grammar.report} if grammar else set()
    if name == "MiniMax-M3" and (grammar is None or "inexpressible" in kinds):  # only declared keys
        return False
    return options.property_order == "any" or in_declared_order(schema, value)


@settings(max_examples=scaled(50))
@given(data=st.data())
def test_a_text_is_accepted_exactly_if_its_arguments_are_valid(data: st.DataObject) -> None:
    schema = data.draw(ARGUMENTS)
    arguments = canonical(data.draw(drawn_arguments(schema)))
    options = data.draw(st.sampled_from([OPTIONS, ANY_ORDER]))
    if options is ANY_ORDER:
        arguments = dict(data.draw(st.permutations(list(arguments.items()))))
    name = data.draw(NAMES_OF_NOTATIONS)
    judge(name, schema, [arguments], lambda count: data.draw(st.integers(0, count - 1)), options)


@settings(max_examples=scaled(50))
@given(
    name=NAMES_OF_NOTATIONS,
    schema=ARGUMENTS,
    options=st.sampled_from([OPTIONS, ANY_ORDER]),
    seed=st.integers(0),
)
def test_a_derivation_reads_as_valid_arguments(name: str, schema: Any, options: Any, seed: int) -> None:
    notation = NOTATIONS[name]
    try:
        grammar = compiled(schema, notation, options=options)
    except SchemaError:
        assume(False)
    text = generate(grammar.rules, random.Random(seed))
    assert accepts(grammar, text)
    if grammar.exact:
        value = read(text, notation, schema)
        assert is_valid(schema, value), (text, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTATIONS)
@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"type": ["string", "null", "integer"]}, {}, {"enum": [*SIGNS, 1, None]}]
)
def test_every_awkward_string_is_accepted_where_it_can_be_read_back(name: str, schema: Any) -> None:
    arguments = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    judge(name, arguments, [{"a": text} for text in SIGNS])


def test_a_python_literal_has_the_keys_and_the_characters_of_its_schema() -> None:
    control = {"type": "string", "pattern": "^[\x83-\x9b]$"}
    inner = {"type": "object", "properties": dict.fromkeys(SIGNS, control), "additionalProperties": False}
    arguments = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    values = [{sign: "\x83"} for sign in SIGNS] + [{"a": chr(code)} for code in range(0x7F, 0xA1)]
    judge("Seed-OSS", arguments, [{"a": value} for value in values])


@pytest.mark.parametrize("name", ["Gemma-4", "MiniMax-M3"])
def test_nested_objects_are_told_from_arrays(name: str) -> None:
    arguments = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    judge(name, arguments, [{"a": value} for value in ([], {}, ["x"], {"b": "x"}, [{"b": ["x"]}])])


@pytest.mark.parametrize("name", NOTATIONS)
def test_a_call_gives_one_of_each_group(name: str) -> None:
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"a": text, "b": text}, "additionalProperties": False}
    grammar = compiled({**schema, "requires_one_of": [["a", "b"]]}, NOTATIONS[name])
    for arguments in ({}, {"a": "x"}, {"b": "x"}, {"a": "x", "b": "y"}):
        assert accepts(grammar, write(arguments, NOTATIONS[name], first)) == bool(arguments)


@pytest.mark.parametrize("name", NOTATIONS)
def test_a_step_reference_is_the_number_of_a_step(name: str) -> None:
    schema = {
        "type": "object",
        "properties": {"from_step": {"type": "integer", "fills": "a"}, "a": {"type": "string"}},
        "additionalProperties": False,
    }
    grammar = compiled(schema, NOTATIONS[name], steps=True)
    for number in (6, 7, 77):
        assert accepts(grammar, write({"from_step": number}, NOTATIONS[name], first)) == (number == 7)


FINDINGS = [
    ("Qwen3-Coder", {"type": "string"}, []),
    ("Qwen3-Coder", {"type": "string", "maxLength": 40}, []),
    ("MiniCPM5", {"type": "string"}, []),
    ("Qwen3-Coder", {"type": ["string", "null"]}, ["/properties/a"]),
    ("DeepSeek-V3.2", {"type": ["string", "null"]}, []),  # its forms name the type
    ("Qwen3-Coder", {"enum": ["a", "b"]}, []),
    ("Qwen3-Coder", {"enum": ["a", "\n</parameter>\n"]}, ["/properties/a"]),
    ("MiniCPM5", {"enum": ["a", "<![CDATA[x"]}, []),
    ("MiniMax-M3", {"type": ["string", "null"]}, ["/properties/a"]),
    ("trimmed", {"type": "string"}, []),
]


@pytest.mark.parametrize(("name", "schema", "pointers"), FINDINGS)
def test_what_cannot_be_written_is_reported_once(name: str, schema: Any, pointers: list[str]) -> None:
    properties = {"a": schema, "b": {"type": "string"}}
    arguments = {"type": "object", "properties": properties, "additionalProperties": False}
    report = compiled(arguments, NOTATIONS[name]).report
    assert [finding.pointer for finding in report if finding.pointer] == pointers
    assert [finding.pointer for finding in report].count("") == 1  # the delimiters
    assert all(finding.kind == "inexpressible" for finding in report)


def test_a_pattern_that_is_too_large_beside_the_delimiter_is_reported() -> None:
    arguments = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[^x]{1,2500}$"}}}
    grammar = compiled(arguments, NOTATIONS["Qwen3-Coder"])
    assert [one.pointer for one in grammar.report if one.kind == "unenforced"] == ["/properties/a"]
    assert grammar.match("<parameter=a>\nxx\n</parameter>\n</function>").complete


HOSTILE = {
    "long text": {"type": "string", "maxLength": 100_000},
    "long pattern": {"type": "string", "pattern": "^(a|b)*a(a|b){11}$", "maxLength": 3000},
    "many values": {"enum": [f"value {number}" for number in range(5_000)]},
    "many unions": {
        "anyOf": [{"type": "string", "pattern": f"^.*{letter}.{{0,9}}$"} for letter in "abcdefgh"]
        + [{"type": ["null", "boolean", "number", "array", "object"]}]
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Qwen3-Coder", "MiniMax-M3"])
@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_hostile_schemas_give_a_grammar(name: str, schema: Any) -> None:
    arguments = {"type": "object", "properties": {"a": schema, "b": schema}}
    grammar = compiled(arguments, NOTATIONS[name])
    assert accepts(grammar, generate(grammar.rules, random.Random(0), budget=0))
