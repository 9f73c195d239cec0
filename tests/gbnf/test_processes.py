"""Sets have another order in each process: what they decide has to be the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.oracle import CHECKOUT

_PROGRAM = """
import sys
from gbnf import BM25, Tool, compile_pool, compile_schema, load_manifests

for schema in (
    {"type": "object", "properties": {"b": {}, "a": {"enum": ["x", "y", {"k": 1}]}}, "required": ["z", "q"]},
    {"anyOf": [{"type": ["string", "null"]}, {"properties": {"a": {"$ref": "#"}}}], "minimum": 1.5},
    {"allOf": [{"properties": {"a": {"minLength": 2}}}, {"properties": {"a": {"maxLength": 4}, "c": {}}}]},
):
    grammar = compile_schema(schema)
    print(grammar, *grammar.report)
tools = load_manifests(sys.argv[1])
print(compile_pool(tools, closed=False))
print(BM25.rank("find the notes of Rome e trova i file", tools))
args = {"minlength": 1, "maxlegth": 2, "properties": {"a": {"enums": [], "item": {}}}}
run = {"timeout": 3, "effects": "read", "memory": 1}
tool = Tool.from_mapping({"name": "a", "args": args, "run": run, "confirms": 1, "marker": 2, "effects": 3})
print(tool.fingerprint, *tool.findings, sep="\\n")
"""


@pytest.mark.slow
def test_grammars_scores_and_findings_are_the_same_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(CHECKOUT / "manifests")],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "7")
    }  # fmt: skip
    assert len(printed) == 1
    assert printed.pop().count("did you mean") == 10
