"""What a command imports before it works: start-up time is import time."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from gbnf_server.cli.commands import Commands
from gbnf_server.system.folders import manifests_path

REPORT = """
import sys
from gbnf_server.cli import main
class Output:  # reports at the first token of a run
    def write(self, text):
        if '"text_written"' in text:
            sys.exit()
    def flush(self): ...
if "--stream" in sys.argv:
    sys.stdout = Output()
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
HEAVY = {
    "anthropic", "asyncio", "attr", "httpx", "huggingface_hub", "hypothesis", "icalendar", "jinja2",
    "jsonschema", "lark", "llama_cpp", "mcp", "numpy", "openai", "prometheus_client",
    "pydantic", "referencing", "regex", "rfc3987_syntax", "rich", "snowballstemmer", "starlette", "uvicorn",
}  # fmt: skip


def imported(*arguments: str, folder: Path) -> set[str]:
    """Return the modules that a process has imported at its end."""
    process = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        capture_output=True, text=True, check=True, cwd=folder, timeout=120,
    )  # fmt: skip
    return set(process.stderr.splitlines()[-1].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--help"], set[str]()),
        (["--version"], set[str]()),
        (["compile", "--schema", "schema.json"], {"rich"}),
        (["compile"], {"regex", "rich"}),
        (["compile", "--manifests", str(manifests_path() / "get_now")], {"regex", "rich"}),
        (["inspect", "--help"], {"rich"}),
        # a file needs no server, but the tokenizer of the bundled model
        (["inspect", "--html", "page.html"], {"llama_cpp", "numpy", "jinja2", "regex", "rich"}),
        # up to the first token: the model, its template, and its thread
        (
            ["run", "what time is it?", "--stream", "--json"],
            {"llama_cpp", "numpy", "jinja2", "asyncio", "regex", "rich"},
        ),
        # what remains in a run: the calls' validation
        (
            ["run", "what time is it?"],
            {"llama_cpp", "numpy", "jinja2", "asyncio", "regex", "rich", "jsonschema", "referencing", "attr"},
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], needed: set[str], tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"properties": {"mail": {"format": "email"}}}')
    modules = imported(*arguments, folder=tmp_path)
    assert modules & HEAVY <= needed
    assert needed or {name for name in modules if name.startswith("gbnf.")} <= {"gbnf.lazy_names"}
    commands = {name for name in modules if name.startswith("gbnf_server.cli.")}
    others = {f"gbnf_server.cli.{name}" for name in ("batch", "bench", "chat", "mcp", "serve", "tune")}
    assert commands & others == set()


@pytest.mark.parametrize("name", [name for name in Commands() if name != "server"])
def test_values_are_converted_as_typer_does(name: str) -> None:
    command = Commands()[name]
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if parameter.is_eager:
            continue
        own, usual = parameter.process_value, partial(type(parameter).process_value, parameter)
        is_list = parameter.nargs == -1 or parameter.multiple
        for value in (parameter.default, "x", ".", "", *([["x", "."], (), []] if is_list else [])):
            assert _outcome(own, context, value) == _outcome(usual, context, value), (parameter.name, value)


def _outcome(convert: Any, context: Any, value: Any) -> object:
    try:
        found = convert(context, value)
    except Exception as error:  # noqa: BLE001  # typer does not export the class of its errors
        return str(error)
    return (list(found) or None) if isinstance(found, list | tuple) else found


@pytest.mark.slow
def test_the_compiler_is_not_imported_for_tools_that_are_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GBNF_COMPILE_CACHE", "1")
    assert "gbnf.compiler.lowering" in imported("compile", folder=tmp_path)
    assert "gbnf.compiler.lowering" not in imported("compile", folder=tmp_path)


@pytest.mark.parametrize("module", ["gbnf", "gbnf_server"])
def test_a_package_imports_nothing_by_itself(module: str) -> None:
    program = f"import sys; import {module}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) & HEAVY == set()


@pytest.mark.parametrize("name", list(Commands()))
def test_the_list_of_commands_shows_the_first_paragraph_of_each(name: str) -> None:
    summary = Commands().summaries()[name].short_help
    assert (Commands()[name].help or "").partition("\n\n")[0].strip() == summary
    assert Commands()[name].name == name
