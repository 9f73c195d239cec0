"""`gbnf.schema.json`, by which editors complete and check gbnf.toml, against the code that reads it."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typer.main import get_command

from gbnf_server.cli.app import app
from gbnf_server.cli.config import _ConfigReader, config_schema
from gbnf_server.system.errors import InputError

ROOT = Path(__file__).parents[3]
APPLICATION: Any = get_command(app)
SCHEMA: Any = json.loads((files("gbnf_server.cli") / "gbnf.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
COMMANDS = sorted(APPLICATION.commands)
VALUES: list[Any] = [True, 0, 7, -3, 1.5, "", "x", "native", [], ["x"], [True], [["x"]], {}, {"x": 1}]


def refusal(content: dict[str, Any]) -> str | None:
    """Return why the reader refuses a configuration."""
    reader, content = _ConfigReader(Path("gbnf.toml")), dict(content)
    try:
        list(reader.providers(content.pop("providers", {})))
        reader.defaults(content, APPLICATION, frozenset())
    except InputError as error:
        return str(error)
    return None


@pytest.mark.slow
def test_the_file_is_that_of_the_commands() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert config_schema(APPLICATION) == SCHEMA, "run: python docs/generate.py config"


def keys() -> list[tuple[str, ...]]:
    """The paths of all keys: of the top, and of the tables of commands."""
    top = SCHEMA["properties"]
    found: list[tuple[str, ...]] = [(name,) for name in top]
    for command in COMMANDS:
        forms = top[command].get("anyOf", [top[command]])
        found += [(command, name) for form in forms for name in form.get("properties", ())]
    return found


@given(path=st.sampled_from(keys()), value=st.sampled_from(VALUES), spell=st.booleans())
def test_what_the_reader_refuses_is_refused(path: tuple[str, ...], value: Any, spell: bool) -> None:
    name = path[-1].replace("-", "_") if spell else path[-1]
    content = {name: value} if len(path) == 1 else {path[0]: {name: value}}
    if VALIDATOR.is_valid(content):
        assert refusal(content) is None


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_has_a_value_that_both_accept(command: str) -> None:
    values = [True, 7, 1, "x", *(each for one in SCHEMA["$defs"].values() for each in one.get("enum", ()))]
    for path in (path for path in keys() if path[0] == command and len(path) == 2):
        contents: list[dict[str, Any]] = [{command: {path[1]: value}} for value in [*values, {}]]
        assert any(refusal(each) is None and VALIDATOR.is_valid(each) for each in contents), path


@pytest.mark.parametrize(
    "content",
    [
        {"modle": "x"}, {"run": {"sed": 1}}, {"yes": True}, {"run": {"yes": True}}, {"help": True},
        {"nosuch": {"model": "x"}}, {"run": {"stream": "yes"}}, {"run": {"stream": {}}}, {"model": 3},
        {"server": {"start": {"model": True}}}, {"providers": {"_x": {}}},
        {"providers": {"_x": {"name": ["x"]}}},
        {"providers": {"_x": {"names": [" "]}}}, {"providers": {"_x": "x"}}, {"providers": 3},
    ],
    ids=str,
)  # fmt: skip
def test_unknown_keys_and_other_types_are_refused(content: dict[str, Any]) -> None:
    assert refusal(content) is not None
    assert not VALIDATOR.is_valid(content)


def test_the_example_of_the_page_is_valid() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    content = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    assert "providers" in content
    assert refusal(content) is None
    assert [error.message for error in VALIDATOR.iter_errors(content)] == []
