"""`gbnf new`: write a new tool."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from gbnf.errors import ManifestError
from gbnf_server.cli.output import say, write, writing

_TEMPLATES = Path(__file__).parent / "templates"
_FILES = {
    "manifest.toml": "manifest.toml",
    "executor.py": "executor.py.txt",
    "test_$module.py": "test_executor.py.txt",
}
"""The files of a tool, and the template of each."""


def new(
    path: Annotated[
        Path, typer.Argument(), "DIR/NAME", "Folder of the tool; its last part is the tool's name."
    ],
) -> None:
    """Write a new tool: a manifest, an executor and a test, which work as they are.

    Change them to make the tool your own; comments in the files explain how. No existing file is overwritten.

    \b
    Try:
      gbnf new my-tools/count_words
      gbnf call my-tools/count_words '{"text": "two words"}'
      gbnf run "how many words has 'good morning'?" --manifests my-tools --terminal count_words
      python -m pytest my-tools/count_words
      gbnf manifests my-tools
    """
    from gbnf import tools
    from gbnf.tools import Tool

    name = path.name
    try:
        Tool.from_mapping({"name": name, "args": {}})
    except ManifestError as error:
        raise typer.BadParameter(f"{name!r}: {error.problem}. {error.hint}", param_hint="DIR/NAME") from None
    schema = Path(tools.__file__).with_name("manifest.schema.json").resolve().as_uri()
    names = {"name": name, "module": re.sub(r"\W", "_", name), "schema": schema}
    targets = [path / Template(file).substitute(names) for file in _FILES]
    with writing(f"{path} cannot be written"):
        try:
            path.mkdir(parents=True)
            for target, template in zip(targets, _FILES.values(), strict=True):
                text = (_TEMPLATES / template).read_text(encoding="utf-8")
                with target.open("x", encoding="utf-8") as written:
                    written.write(Template(text).substitute(names))
        except FileExistsError as error:
            problem = f"{error.filename} already exists. Choose another name"
            raise typer.BadParameter(problem, param_hint="DIR/NAME") from None
    for target in targets:
        write(str(target))
    folder = shlex.quote(str(path.parent))
    say(
        f'Try: gbnf call {shlex.quote(str(path))} \'{{"text": "two words"}}\'\n'
        f"     gbnf run \"how many words has 'good morning'?\" --manifests {folder} --terminal {name}"
    )
