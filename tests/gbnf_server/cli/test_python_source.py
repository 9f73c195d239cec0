"""Python types and functions that a command line names."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbnf import compile_schema
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.input_files import read_schema_source
from gbnf_server.cli.python_source import python_target
from support.command_line import Gbnf

CODE = """
import dataclasses, enum
from typing import Literal
from pydantic import BaseModel
from typing_extensions import TypedDict

print("imported")
Size = Literal["s", "m"]
SCHEMA = {"type": "integer"}

class Person(BaseModel):
    name: str
    age: int

@dataclasses.dataclass
class Point:
    x: int

class Unit(enum.Enum):
    CELSIUS = "C"

class Address(TypedDict):
    city: str

def weather(city: str, days: int = 1, unit: Unit = Unit.CELSIUS, tags: list[str] = []) -> str:
    return f"{city} {days} {unit.name} {','.join(tags)}"
"""
OWN_PROCESS = """
from gbnf import tool
from .numbers import OFFSET

@tool(name="add", effect="read", own_process=True)
def addition(number: int) -> int:
    return number + OFFSET

@tool
async def echo(text: str) -> str:
    return text

async def hidden(text: str) -> str:
    return text
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules that no other test has imported."""
    (tmp_path / "weather_code.py").write_text(CODE)
    (tmp_path / "kit" / "inner").mkdir(parents=True)
    for package in ("kit", "kit/inner"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "kit" / "inner" / "numbers.py").write_text("OFFSET = 4")
    (tmp_path / "kit" / "inner" / "own.py").write_text(OWN_PROCESS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in sys.modules.keys() - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("tools.py", ("tools.py", "")),
        ("a/b-c.py:name", ("a/b-c.py", "name")),
        ("./tools.py:Outer.Inner", ("./tools.py", "Outer.Inner")),
        ("package.module:Name", ("package.module", "Name")),
        *((text, None) for text in ("-", "tools.json", "my-tools/a", "get_now", "a:", ":a", "a-b:c")),
        *((text, None) for text in ("http://127.0.0.1:8080", "a:1", "package.module", "")),
    ],
)
def test_what_is_the_name_of_code(text: str, target: tuple[str, str] | None) -> None:
    assert python_target(text) == target


def test_a_file_is_no_code(folder: Path) -> None:
    (folder / "tools:mine").touch()
    assert python_target("tools:mine") is None


@pytest.mark.parametrize(
    "place", ["weather_code", "weather_code.py", "./weather_code.py", "{}/weather_code.py"]
)
@pytest.mark.parametrize("name", ["Person", "Point", "Unit", "Address", "Size", "SCHEMA"])
def test_a_type_is_compiled_as_in_python(gbnf: Gbnf, folder: Path, place: str, name: str) -> None:
    text = f"{place.format(folder)}:{name}"
    result = gbnf("compile", "--schema", text)
    assert (result.code, result.err) == (ExitCode.SUCCESS, "imported\n")
    value = getattr(sys.modules["weather_code"], name)
    assert result.out == str(compile_schema(value))
    source = read_schema_source(text)
    assert source.type is (None if name == "SCHEMA" else value)
    result = gbnf("inspect", "--schema", text, "--html", folder / "page.html")
    assert (result.code, (folder / "page.html").exists()) == (ExitCode.SUCCESS, True)


@pytest.mark.parametrize(
    "command",
    [
        ("call", "weather_code:weather", "city=Rome", "tags=a", "tags=b"),
        ("call", "weather_code.py:weather", '{"city": "Rome", "tags": ["a", "b"]}'),
        ("call", "./weather_code.py", "city=Rome", 'tags=["a", "b"]'),
        ("call", "weather", "city=Rome", "tags=a", "tags=b", "--tools", "weather_code.py"),
        ("call", "weather", "city=Rome", "tags=a", "tags=b", "--manifests", "weather_code.py"),
    ],
)
def test_a_function_is_called(gbnf: Gbnf, folder: Path, command: tuple[str, ...]) -> None:
    result = gbnf(*command)
    assert result.code == ExitCode.SUCCESS, result.err
    assert json.loads(result.out) == {"result": "Rome 1 CELSIUS a,b"}
    assert result.err == "imported\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kit/inner/own.py:addition", "kit.inner.own:addition"])
def test_a_process_of_its_own_imports_the_same_module(gbnf: Gbnf, folder: Path, name: str) -> None:
    result = gbnf("call", name, "number=3")
    assert (result.code, json.loads(result.out)) == (ExitCode.SUCCESS, {"result": 7})


def test_marked_functions_are_the_tools_of_a_file(gbnf: Gbnf, folder: Path) -> None:
    rows = json.loads(gbnf("manifests", "kit/inner/own.py", "--json").out)
    assert [(row["name"], row["effect"]) for row in rows] == [("add", "read"), ("echo", "write")]
    rows = json.loads(gbnf("manifests", "--tools", "kit.inner.own:hidden", "--json").out)
    assert [row["name"] for row in rows] == ["hidden"]


def test_the_configuration_names_files_relative_to_itself(
    gbnf: Gbnf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "gbnf.toml").write_text(
        'tools = "weather_code.py:weather"\n[compile]\nschema = "nowhere:Type"\n'
    )
    monkeypatch.setenv("GBNF_CONFIG", str(folder / "gbnf.toml"))
    monkeypatch.chdir(folder / "kit")
    assert [row["name"] for row in json.loads(gbnf("manifests", "--json").out)] == ["weather"]
    assert "the module 'nowhere' is neither" in gbnf("compile").err


FAILING = {
    "raising.py": "import weather_code\n\ndef fail():\n    int('x')\nfail()",
    "wrong.py": "\n\ndef f(:",
    "needing.py": "import no_such_package",
    "leaving.py": "\nraise SystemExit(3)",
    "starred.py": "def f(*names: str) -> None: ...",
    "nothing.py": "import os",
    "json.py": "",
    "other/weather_code.py": "",
}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_code:f", "the module 'no_code' is neither in {} nor installed."),
        ("wether_code:f", "Did you mean 'weather_code'?"),
        ("kit.inner.own_:f", "the module 'kit.inner.own_' is neither in {} nor installed. Did"),
        ("weather_code:whether", "weather_code has no 'whether'. Did you mean 'weather'?"),
        ("weather_code.py:Q", "It has Address, BaseModel, Literal"),
        ("kit:f", "It has no public names."),
        ("wether_code.py", "does not exist. Did you mean 'weather_code.py'?"),
        ("raising:f", "ValueError: invalid literal for int() with base 10: 'x' ({}/raising.py, line 4)"),
        ("wrong.py", "SyntaxError: invalid syntax (wrong.py, line 3)"),
        ("needing.py", "ModuleNotFoundError: No module named 'no_such_package' ({}/needing.py, line 1)"),
        ("leaving.py", "SystemExit: 3 ({}/leaving.py, line 2)"),
        ("starred.py", "{}/starred.py: f: the tool 'f' has the parameter '*names: str'"),
        ("nothing.py", "{}/nothing.py: the module 'nothing' has no function marked by `gbnf.tool`"),
        ("json.py", "another module is named 'json'. Rename the file."),
        ("weather_code:Size", "no schema describes"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_tool(gbnf: Gbnf, folder: Path, name: str, message: str) -> None:
    (folder / "other").mkdir()
    for file, code in FAILING.items():
        (folder / file).write_text(code)
    result = gbnf("manifests", "--tools", name)
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    assert message.format(os.path.realpath(folder)) in result.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("weather_code.py", "name a type in it, as weather_code.py:NAME."),
        ("weather_code:weather", "it is a function, not a type. Use --tools."),
        ("weather_code:dataclasses.dataclass", "it is a function, not a type"),
        ("subprocess:Popen", "subprocess:Popen: <class 'subprocess.Popen'> has no JSON Schema"),
        ("weather_code:Person.age", "weather_code has no 'age'."),
    ],
)
def test_what_is_no_schema(gbnf: Gbnf, folder: Path, name: str, message: str) -> None:
    result = gbnf("compile", "--schema", name)
    assert result.code == ExitCode.INPUT
    assert message in result.err


def test_two_files_cannot_be_the_same_module(gbnf: Gbnf, folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "weather_code.py").write_text(CODE)
    result = gbnf("manifests", "--tools", "weather_code.py", "--tools", "other/weather_code.py")
    assert "other/weather_code.py: another module is named 'weather_code'. Rename the file." in result.err


def test_several_tools_of_a_file_are_named(gbnf: Gbnf, folder: Path) -> None:
    result = gbnf("call", "kit/inner/own.py", "text=x")
    assert result.code == ExitCode.USAGE
    assert "unknown tool 'kit/inner/own.py'. The tools are add, echo." in " ".join(result.err.split())


def test_a_missing_extra_is_named(gbnf: Gbnf, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    for arguments in (("compile", "--schema", "weather_code:Size"), ("manifests", "weather_code.py")):
        result = gbnf(*arguments)
        assert result.code == ExitCode.ENVIRONMENT
        assert "pydantic is not installed. Install it: " in result.err
