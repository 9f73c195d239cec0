"""What the pages say of keys, variables, files and commands, against the code."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gbnf.tools import BUILT_IN_TOOLS, OfferPolicy, RunPolicy
from gbnf_server.cli.app import app
from gbnf_server.gateway.answers import GRAMMAR_IGNORED
from gbnf_server.gateway.anthropic_messages.request import THREAD_REFUSED
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import ContextOverflowError, ModelLoadError, ServerResponseError
from gbnf_server.system.model_files import check_gguf
from support.smollm2 import requires_smollm2

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("server/**/*.md"),
    ]
)


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", path.read_text("utf-8"))
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not (path.parent / link).exists()] == []


def test_the_errors_of_this_toolkit_are_texts_of_its_code() -> None:
    section = page("docs/how-to/troubleshooting.md").partition("## This toolkit")[2]
    headings = "\n".join(re.findall(r"^### (.*)$", section, re.MULTILINE))
    quoted = set(re.findall(r"`([^`]+)`", headings)) - {"gbnf.toml"}
    parts = {part.strip(" .") for text in quoted for part in text.split("…")} - {""}
    files = [file for folder in ("gbnf", "server") for file in (ROOT / folder).rglob("*.py")]
    with pytest.raises(ModelLoadError) as missing:
        check_gguf(Path("missing"))
    texts = [*(file.read_text("utf-8") for file in files), str(missing.value)]
    texts += [str(ContextOverflowError(9, 8)), str(ServerResponseError(401, ""))]
    assert len(parts) >= 12
    assert [part for part in sorted(parts) if not any(part in text for text in texts)] == []


def test_every_error_of_the_gateway_has_its_row() -> None:
    names = {"GRAMMAR_IGNORED": GRAMMAR_IGNORED, "THREAD_REFUSED": THREAD_REFUSED}
    raised = set()
    for folder in ("gateway", "web"):
        for file in (ROOT / "server/gbnf_server" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                match node:
                    case ast.Call(ast.Name("HttpError"), [ast.Constant(status), _, ast.Constant(code), *_]):
                        raised.add((status, code))
                    case ast.Call(ast.Name("HttpError"), [ast.Constant(status), _, ast.Name(name), *_]):
                        raised.add((status, names[name]))
    section = page("docs/how-to/operate-the-gateway.md").partition("## Status codes")[2]
    rows = re.findall(r"^\| (?:(\d{3}) \| )?((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    described = {(int(status or 400), code) for status, codes in rows for code in re.findall(r"\w+", codes)}
    assert described == raised


def test_every_variable_has_its_line() -> None:
    read = {
        name
        for folder in ("gbnf", "server", "manifests")
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bGBNF(?:_[A-Z]+)+\b", file.read_text("utf-8"))
    }
    known = set(re.findall(r"`(\w+)`", page("docs/reference/environment.md")))
    assert "GBNF_TIMEZONE" in read
    assert read - known == set()


def test_every_key_of_a_manifest_has_its_line() -> None:
    text = page("docs/reference/manifests.md")
    keys = {
        f"{table}.{field.name}"
        for table, of in (("offer", OfferPolicy), ("run", RunPolicy))
        for field in fields(of)
    }
    rows = dict(re.findall(r"^\| `([\w.]+)` \|.*\| (.*?) \|$", text, re.MULTILINE))
    assert keys <= rows.keys()
    policy = RunPolicy()
    assert rows["run.effect"] == f'`"{policy.effect}"`'
    assert rows["run.timeout_s"] == f"`{policy.timeout_s:g}`"
    assert rows["run.memory_mb"] == f"`{policy.memory_mb}`"
    assert rows["run.max_result_kb"] == f"`{policy.max_result_kb}`"
    assert all(f"`{tool.name}`" in text for tool in BUILT_IN_TOOLS)


@pytest.mark.slow
def test_the_commands_of_the_readme_work_in_their_order(tmp_path: Path) -> None:
    block = next(each for each in page("README.md").split("```") if "\ngbnf check" in each)
    lines = [line for line in block.splitlines() if line.startswith(("gbnf compile", "gbnf check"))]
    script = "\n".join([f'gbnf() {{ "{sys.executable}" -m gbnf_server "$@"; }}', *lines])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert len(lines) == 2
    assert done.stdout.startswith("rejected at line 1, column 17")
    assert "left out" in done.stderr


@pytest.mark.slow
@requires_smollm2
@pytest.mark.skipif(not model_path().is_file(), reason="there is no demonstration model yet")
@pytest.mark.parametrize(("name", "least"), [("README.md", 3), ("docs/how-to/extract.md", 4)])
def test_the_programs_of_a_page_run_one_after_the_other(tmp_path: Path, name: str, least: int) -> None:
    (tmp_path / "model.gguf").write_bytes(model_path().read_bytes())
    programs = re.findall(r"^```python\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    assert len(programs) >= least
    (tmp_path / "programs.py").write_text("\n".join(programs), "utf-8")
    command = [sys.executable, str(tmp_path / "programs.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@requires_smollm2
@pytest.mark.skipif(not model_path().is_file(), reason="there is no demonstration model yet")
def test_the_commands_of_the_tutorial_work_in_their_order(tmp_path: Path) -> None:
    """Save each named block, run each `sh` block, and compare each `text` block with what was printed."""
    (tmp_path / "model.gguf").write_bytes(model_path().read_bytes())
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("gbnf", "-m gbnf_server"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    printed = ""
    blocks = re.findall(
        r"(?:^`(\S+)`:\n\n)?^```(\w+)\n(.*?)^```$", page("docs/tutorial.md"), re.MULTILINE | re.DOTALL
    )
    for path, language, text in blocks:
        if path:
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        elif language == "sh":
            script = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(
                script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (text, done.stderr)
            printed = done.stdout
        else:
            assert (language, text) == ("text", printed)
    assert [language for _, language, _ in blocks].count("sh") >= 13


def test_the_options_in_the_documents_exist() -> None:
    texts = [path.read_text("utf-8") for path in PAGES if path.name != "CHANGELOG.md"]
    commands = [
        line for text in texts for line in re.findall(r"(?:^|`|&& )gbnf ([^\n`#|&]*)", text, re.MULTILINE)
    ]
    assert "run" in {command.split()[0] for command in commands}
    assert {option for command in commands for option in unknown_options(command.split())} == set()


def unknown_options(words: list[str]) -> set[tuple[str, str]]:
    """Return the options of a `gbnf` command line that its command does not have, with the command's name."""
    command: Any = get_command(app)
    words = words[: words.index("--")] if "--" in words else words  # the rest is for another program
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    known = {option for each in command.params for option in each.opts} | {"--help"}
    return {(command.name, word) for word in words if word.startswith("--")} - {
        (command.name, option) for option in known
    }


def test_an_unknown_option_is_found() -> None:
    assert unknown_options(["run", "…", "--json", "--jsn"]) == {("run", "--jsn")}
    assert unknown_options(["server", "install", "--jobs", "2"]) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cli", "python", "lint"])
def test_the_generated_reference_is_up_to_date(name: str) -> None:
    if name == "python":
        pytest.importorskip("griffe2md", reason="needs the extra docs")
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_is_in_the_architecture() -> None:
    rows = [line.split("|")[1] for line in page("ARCHITECTURE.md").splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    packages = {
        path.name
        for package in ("gbnf", "server/gbnf_server")
        for path in (ROOT / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert {name for name in packages if not name.startswith("__")} <= named
