"""What a command imports before it works: start-up time is import time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gbnf_server.cli.commands import Commands

REPORT = """
import sys
from gbnf_server.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
HEAVY = {
    "anthropic", "asyncio", "httpx", "huggingface_hub", "hypothesis", "icalendar", "jinja2", "jsonschema",
    "lark", "llama_cpp", "mcp", "numpy", "openai", "prometheus_client", "pydantic", "rfc3987_syntax",
    "snowballstemmer", "starlette", "uvicorn",
}  # fmt: skip
OF_TYPER = {"pydantic"}  # which parses options with it


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
        (["compile"], {"jsonschema", *OF_TYPER}),
        (["inspect", "--help"], OF_TYPER),
        # a file needs no server, but the tokenizer of the bundled model
        (["inspect", "--html", "page.html"], {"llama_cpp", "numpy", "jinja2", "jsonschema", *OF_TYPER}),
        # what remains in a run: the model, its template, and the calls' validation
        (["run", "what time is it?"], {"llama_cpp", "numpy", "jinja2", "jsonschema", "asyncio", *OF_TYPER}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], needed: set[str], tmp_path: Path) -> None:
    modules = imported(*arguments, folder=tmp_path)
    assert modules & HEAVY <= needed
    assert needed or "gbnf" not in modules
    commands = {name for name in modules if name.startswith("gbnf_server.cli.")}
    others = {f"gbnf_server.cli.{name}" for name in ("batch", "bench", "chat", "mcp", "serve", "tune")}
    assert commands & others == set()


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
    summary = Commands().summaries()[name].help
    assert (Commands()[name].help or "").partition("\n\n")[0].strip() == summary
    assert Commands()[name].name == name
