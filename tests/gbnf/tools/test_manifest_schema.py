"""`manifest.schema.json`, by which editors complete and check manifests, against the code that reads them."""

from __future__ import annotations

import copy
import json
import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf.errors import ManifestError
from gbnf.schema.keywords import APPLICATORS
from gbnf.schema.metaschema import _FORMS
from gbnf.tools import OfferPolicy, RunPolicy, Tool
from gbnf.tools.manifest_checks import _KNOWN
from support.json_values import SIMPLE, nested

ROOT = Path(__file__).parents[3]
SCHEMA: Any = json.loads((files("gbnf.tools") / "manifest.schema.json").read_text("utf-8"))
KEYWORDS = SCHEMA["$defs"]["schema"]["properties"]
VALIDATOR = Draft202012Validator(SCHEMA)
EXTENSIONS = {"fills", "runtime_resolved"}
BASE: dict[str, Any] = {
    "name": "a",
    "args": {"type": "object", "properties": {"x": {"type": "string"}, "step": {"type": "integer"}}},
}
PATHS = [
    *((key,) for key in SCHEMA["properties"]),
    *((table, key) for table in ("offer", "run") for key in SCHEMA["properties"][table]["properties"]),
    *(("args", key) for key in sorted(KEYWORDS.keys() - EXTENSIONS)),
    *(("args", "properties", "x", key) for key in sorted(KEYWORDS.keys() - EXTENSIONS)),
    *(("args", "properties", "step", key) for key in sorted(EXTENSIONS)),
]
VALUES = [
    True, False, 0, 1, 3, 64, -1, 1.5, "", "x", "read", "object", [], ["x"], [3], [True], [{}], [["x"]], [[]],
    [{"type": 3}], {}, {"x": "y"}, {"x": 3}, {"x": ["x"]}, {"x": True}, {"type": 3},
]  # fmt: skip
MEANING = (
    "cannot be resolved", "does not resolve", "recursive", "must name another", "no property of the group",
    "invalid regular", "a regular expression", "not declared", "digits",
)  # fmt: skip
"""What the reader says of a value whose type is right."""


def changed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the base with a value at a path."""
    manifest = copy.deepcopy(BASE)
    table = manifest
    for key in path[:-1]:
        table = table.setdefault(key, {})
    table[path[-1]] = value
    return manifest


def refusal(manifest: dict[str, Any]) -> str | None:
    """Return why the reader refuses a manifest."""
    try:
        Tool.from_mapping(manifest)
    except ManifestError as error:
        return error.problem
    return None


def test_its_keys_are_those_that_are_read() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for table, policy in (("offer", OfferPolicy), ("run", RunPolicy)):
        read = {field.name for field in fields(policy)}
        assert SCHEMA["properties"][table]["properties"].keys() == read
    assert SCHEMA["properties"].keys() == _KNOWN
    assert (_FORMS.keys() | APPLICATORS.keys() | EXTENSIONS) <= KEYWORDS.keys()
    assert SCHEMA["properties"]["run"]["properties"]["effect"]["enum"] == ["read", "write"]


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_it_refuses_the_values_that_the_reader_refuses_and_no_others(path: tuple[str, ...]) -> None:
    unlike = {}
    for value in VALUES:
        manifest = changed(path, value)
        problem = refusal(manifest)
        if (problem is None) != VALIDATOR.is_valid(manifest) and not (
            isinstance(value, str) and any(words in str(problem) for words in MEANING)
        ):
            unlike[str(value)] = problem
    assert unlike == {}


@given(path=st.sampled_from(PATHS), value=nested(SIMPLE, st.sampled_from([*KEYWORDS, "x", "step"]), size=8))
def test_it_accepts_what_the_reader_accepts(path: tuple[str, ...], value: Any) -> None:
    manifest = changed(path, value)
    if refusal(manifest) is None:
        assert [error.message for error in VALIDATOR.iter_errors(manifest)] == []


@pytest.mark.parametrize("key", ["name", "args"])
def test_it_requires_what_the_reader_requires(key: str) -> None:
    manifest = {name: value for name, value in BASE.items() if name != key}
    assert refusal(manifest) is not None
    assert not VALIDATOR.is_valid(manifest)


MANIFESTS = [path for folder in ("manifests", "examples") for path in (ROOT / folder).rglob("manifest.toml")]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.parent.name))
def test_the_manifests_of_the_repository_are_valid(path: Path) -> None:
    manifest = tomllib.loads(path.read_text("utf-8"))
    assert [error.message for error in VALIDATOR.iter_errors(manifest)] == []
