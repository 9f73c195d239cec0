"""The rules that lead small models."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import gbnf_server
from gbnf_server.planner.guidance import GUIDED, UNGUIDED, Guidance

RULES = [rule.name for rule in fields(Guidance)]
SOURCES = [
    path.read_text("utf-8")
    for path in Path(gbnf_server.__file__).parent.rglob("*.py")
    if path.name != "guidance.py"
]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_asked_for_and_described(rule: str) -> None:
    assert any(re.search(rf"\bguidance\.{rule}\b", source) for source in SOURCES)
    assert Guidance.__doc__ is not None
    assert f"`{rule}`" in Guidance.__doc__


def test_a_prompt_that_describes_tools_has_fewer_rules() -> None:
    rules = {rule: getattr(GUIDED.in_prompt(), rule) for rule in RULES}
    assert all(getattr(GUIDED, rule) for rule in RULES)
    assert not any(getattr(UNGUIDED, rule) for rule in RULES)
    assert 0 < sum(rules.values()) < len(RULES)
