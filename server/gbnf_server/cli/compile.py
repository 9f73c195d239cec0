"""`gbnf compile`: compile tools, or one JSON Schema, to GBNF."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from gbnf_server.cli.config import configured_providers
from gbnf_server.cli.input_files import (
    SCHEMA_OPTION,
    errors_of,
    read_schema_source,
    schemas_among,
    source_name,
)
from gbnf_server.cli.model_options import GrammarOptions, MaxToolsOption
from gbnf_server.cli.output import escape_line, plural, say, show_finding, stderr_console, write
from gbnf_server.cli.tool_options import PathsArgument, ToolSources
from gbnf_server.system.errors import InputError

if TYPE_CHECKING:
    from gbnf import Finding, Grammar
    from gbnf.requests.pool_filter import Selection


def compile_(
    context: typer.Context,
    paths: PathsArgument = None,
    *,
    sources: ToolSources,
    schema: Annotated[str | None, SCHEMA_OPTION] = None,
    query: Annotated[
        str | None,
        (
            "Include only the tools that the pool filter keeps for this request, as for a large model. "
            "`gbnf run` offers fewer to one with less than a billion parameters, or 3 billion if its chat "
            "template has tools: those also depend on the model's own choice and on earlier steps."
        ),
    ] = None,
    max_tools: MaxToolsOption = None,
    report: Annotated[bool, "Print to stderr what the grammar does not enforce."] = False,
    final_answer: Annotated[bool, "Include the tool final_answer."] = False,
    ask_user: Annotated[bool, "Include the tool ask_user."] = False,
    step: Annotated[
        list[int] | None, typer.Option(min=1), "Earlier step that from_step may refer to; repeatable."
    ] = None,
    options: GrammarOptions,
    strict: Annotated[
        bool, "Fail if a tool or the schema has a mistake, or a tool cannot be compiled."
    ] = False,
    json_: Annotated[bool, "Print a JSON object: grammar, exact, findings, kept, dropped."] = False,
) -> None:
    """Compile tools to one GBNF grammar on stdout, or one JSON Schema.

    The grammar of tools is that of a call of any of them. A JSON file among the paths is recognised by its
    content.

    \b
    Try:
      gbnf compile                                   the bundled tools
      gbnf compile my-tools/ more/manifest.toml      your own tools
      gbnf compile --query "find notes" --report     the tools for one request, 16 at most
      gbnf compile --final-answer > plan.gbnf        as the planner uses it
      gbnf compile --tools tools.json                a list of tools, as of an API
      gbnf compile --schema person.json              one JSON Schema
      gbnf compile --schema models.py:Person         one Python type
    """
    from gbnf.requests.pool_filter import Selection, filter_pool

    misspelt: list[Finding] = []
    selection = Selection(())
    manifests = [*(paths or ()), *([] if schema is None else [Path(schema)])]
    sources = sources.with_paths(manifests, context)
    if schemas := schemas_among(paths or [], schema):
        if len(sources) > 1 or query is not None or final_answer or ask_user or step:
            raise typer.BadParameter(
                f"{schemas[0]} is a JSON Schema, which is compiled alone: give no tools, and "
                "none of --query, --final-answer, --ask-user and --step"
            )
        grammar, misspelt = _schema_grammar(schemas[0], options, strict=strict)
    else:
        with sources.open() as pool:
            selection = Selection(pool)
            if query is not None:
                from gbnf_server.planner.options import MAX_TOOLS  # with the planner: 100 ms

                limit, providers = max_tools or MAX_TOOLS, configured_providers()
                selection = filter_pool(pool, query, limit=limit, providers=providers)
            built_in = {"final_answer": final_answer, "ask_user": ask_user}
            grammar = options.choice().of_tools(
                selection.kept, steps=tuple(step or ()), strict=strict, **built_in
            )
    if json_:
        value = {
            "grammar": str(grammar),
            "exact": grammar.exact,
            "findings": [asdict(finding) for finding in (*misspelt, *grammar.report)],
            "kept": [tool.name for tool in selection.kept],
            "dropped": {tool.name: reason for tool, reason in selection.dropped.items()},
        }
        write(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        write(str(grammar))
    if report:
        _show_report(grammar, selection)
        for finding in misspelt:
            show_finding(stderr_console(), finding)


def _schema_grammar(file: str, options: GrammarOptions, *, strict: bool) -> tuple[Grammar, list[Finding]]:
    """Return the grammar of a JSON Schema, and its misspelt keywords. Raises InputError."""
    from gbnf.tools.near_misses import misspelt_keywords

    content = read_schema_source(file).schema
    with errors_of(file):
        grammar = options.choice().of_schema(content)
    misspelt = list(misspelt_keywords("", content))
    if strict and misspelt:
        raise InputError(f"{source_name(file)}: {'; '.join(map(str, misspelt))}")
    return grammar, misspelt


def _show_report(grammar: Grammar, selection: Selection) -> None:
    """Print to stderr what a grammar does not enforce, and which tools the pool filter dropped."""
    console = stderr_console()
    rules, size = len(grammar.rules.productions), len(str(grammar).encode())
    if selection.kept:
        names = ", ".join(tool.name for tool in selection.kept)
        say(f"{plural(len(selection.kept), 'tool')}: {names}")
    for tool, reason in selection.dropped.items():
        say(f"left out {escape_line(tool.name)}: {escape_line(reason)}")
    say(f"{plural(rules, 'rule')}, {size} bytes")
    for finding in grammar.report:
        show_finding(console, finding)
    unenforced, loosened = (
        [f.kind for f in grammar.report].count(kind) for kind in ("unenforced", "loosened")
    )
    if grammar.exact:
        verdict = ("exact", "bold green"), ": every text of this grammar is valid for the schemas"
    else:
        verdict = ("not exact", "bold yellow"), f": {plural(unenforced, 'keyword')} left to the validator"
        verdict = verdict if unenforced else (verdict[0], f": {plural(loosened, 'malformed part')} removed")
    console.print(Text.assemble(*verdict), soft_wrap=True)
