"""The names of rules are camelCase, whatever compiles the grammar, and whatever tools and keys are called."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool, compile_schema
from gbnf.errors import SchemaError
from gbnf.protocols.call_protocols import json_grammar, with_reasoning_grammar
from gbnf.protocols.protocol import Offered
from gbnf.protocols.readers import either_grammar
from gbnf.tools import Tool
from gbnf_server.backends.reasoning import KNOWN_REASONING_TAGS, reasoning_grammar
from support.effort import scaled
from support.schemas import SCHEMAS
from support.tool_formats import FAMILIES

NAMES = st.sampled_from(
    ["one_call", "first-root", "call 2", "given_text", "Größe", "日本", "9", "ws", "root"]
)
PROPERTIES = st.dictionaries(
    NAMES | st.text(max_size=4),
    st.sampled_from([{"type": "string", "pattern": "^[a-c]+-[0-9_]+$"}, {"type": "integer"}, {}]),
    max_size=3,
)
TOOLS = st.dictionaries(NAMES, PROPERTIES, min_size=1, max_size=3).map(
    lambda tools: [Tool(name, args={"type": "object", "properties": args}) for name, args in tools.items()]
)


def assert_camel_case(grammar: Grammar) -> None:
    names = re.findall(r"^(\S+) ::=", str(grammar), re.MULTILINE)
    assert names[0] == "root"
    assert [name for name in names if not re.fullmatch("[a-z][a-zA-Z0-9]*", name)] == []


@given(schema=SCHEMAS)
def test_of_schemas(schema: Any) -> None:
    try:
        assert_camel_case(compile_schema(schema))
    except SchemaError:
        return


@given(tools=TOOLS, steps=st.sampled_from([(), (1, 2)]), parallel=st.booleans())
def test_of_pools_with_and_without_reasoning_and_of_the_projects_own_format(
    tools: Any, steps: Any, parallel: bool
) -> None:
    pool = compile_pool(tools, final_answer=True, steps=steps)
    assert_camel_case(pool)
    assert_camel_case(with_reasoning_grammar(pool))
    calls = json_grammar(Offered(tuple(tools), not steps, parallel), also_final_answer=True)
    assert_camel_case(calls)
    assert_camel_case(either_grammar(calls, calls))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@settings(max_examples=scaled(10))
@given(tools=TOOLS, wanted=st.sampled_from(["auto", "required", "none", "a tool"]), flag=st.booleans())
def test_of_formats(family: Any, tools: Any, wanted: str, flag: bool) -> None:
    wanted = tools[0].name if wanted == "a tool" else wanted
    answers = family.form.grammar(tools, tool_choice=wanted, parallel=flag, reasoning=not flag)
    assert_camel_case(answers)
    assert_camel_case(family.form.text_grammar(compile_pool(tools)))
    assert_camel_case(either_grammar(answers, compile_pool(tools)))


@pytest.mark.parametrize("tags", KNOWN_REASONING_TAGS, ids=lambda tags: tags.begin)
def test_of_reasoning(tags: Any) -> None:
    assert_camel_case(reasoning_grammar(tags.end))
