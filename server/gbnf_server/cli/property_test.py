"""`gbnf test`: property-test the grammars of manifests with llama.cpp's engine, or our own matcher."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.text import Text

from gbnf.extras import install_command, is_installed
from gbnf_server.cli.errors import ExitCode, interruptible
from gbnf_server.cli.model_options import ModelSource, VocabOption
from gbnf_server.cli.output import escape_line, plural, progress_bar, stderr_console, stdout_console, write
from gbnf_server.cli.tool_options import PathArgument, ToolSources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gbnf import Grammar
    from gbnf.testing import Counterexample
    from gbnf.tools import Tool

STEPS = (1, 3)
"""Earlier steps for step references, in the tests that have some."""


def property_test(
    context: typer.Context,
    path: PathArgument = None,
    *,
    sources: ToolSources,
    examples: Annotated[int, typer.Option(min=1), "Examples of each kind for each tool."] = 50,
    seed: Annotated[int, typer.Option(min=0), "Seed of the examples."] = 0,
    vocab: VocabOption = None,
) -> None:
    """Property-test manifests: find calls that their grammar wrongly accepts or rejects.

    For each tool, with and without earlier steps, check with llama.cpp's grammar engine: texts that the
    grammar derives are valid calls or explained by the report; calls that violate one constraint are
    rejected; valid calls are accepted. Counterexamples are shrunk. Only the vocabulary of the model is read.
    Without llama.cpp (the extra `local`), this toolkit's own matcher judges, and the output says so.

    \b
    Try:
      gbnf test                                the bundled tools
      gbnf test my-tools/ --examples 500
      gbnf test my-tools/ --vocab model.gguf   with the tokens of your model

    \b
    Exit codes: 0 success, 1 counterexample found, 3 invalid manifest, 4 the engine does not work.
    """
    with interruptible(), sources.with_paths([path] if path else [], context).open() as pool:
        accepts, engine = _engine(vocab)
        counterexamples = _tested(pool, accepts, examples, seed)
    for tool, smallest in counterexamples:
        _show(tool, smallest)
    counted, by = plural(len(pool), "tool"), f"{engine}, seed {seed}"
    if counterexamples:
        write(f"{plural(len(counterexamples), 'counterexample')} in {counted} ({by})")
        raise typer.Exit(ExitCode.FAILURE)
    write(f"{counted} sound and complete in {plural(examples, 'example')} of each kind ({by})")


_Accepts: TypeAlias = "Callable[[Grammar, str], bool]"


def _engine(vocab: str | None) -> tuple[_Accepts, str]:
    """Return a function that judges whether a grammar accepts a text, and its name."""
    if vocab is None and not is_installed("local"):
        own = f"this toolkit's matcher; for llama.cpp's engine: {install_command('local')}"
        return lambda grammar, text: grammar.match(text).complete, own

    from gbnf_server.llama.grammar_checker import GrammarChecker

    engine = GrammarChecker.load(ModelSource(vocab).path())
    return lambda grammar, text: engine.match(grammar, text).complete, engine.name


def _tested(
    tool_pool: Sequence[Tool], accepts: _Accepts, examples: int, seed: int
) -> list[tuple[str, Counterexample]]:
    """Return the first counterexample of each tool and law, with a progress bar on stderr."""
    searches = list(_searches(tool_pool, accepts, examples, seed))
    counterexamples: dict[tuple[str, str], Counterexample] = {}
    with progress_bar(stderr_console()) as bar:
        task = bar.add_task("", total=sum(kinds for _, _, kinds, _ in searches) * examples)
        done = 0
        for tool, law, kinds, search in searches:
            bar.update(task, description=f"{tool}: {law}")
            if (tool, law) not in counterexamples:
                smallest = search(progress=partial(bar.advance, task))
                if smallest is not None:
                    counterexamples[tool, law] = smallest
            done += kinds * examples
            bar.update(task, completed=done)  # shrinking tries more, and a small language has fewer
    return [(tool, smallest) for (tool, _), smallest in counterexamples.items()]


def _searches(
    tool_pool: Sequence[Tool], accepts: _Accepts, examples: int, seed: int
) -> Iterator[tuple[str, str, int, Callable[..., Counterexample | None]]]:
    """Yield the tool, the law, how many kinds of examples are tried, and the search.

    Each tool is alone for what its grammar derives, and in the pool of all for calls, broken and valid.
    """
    from gbnf import compile_pool
    from gbnf.testing import PoolSubject, find_incomplete, find_unsound
    from gbnf.tools.tool import offered_args

    for tool in tool_pool:
        for steps in ((), STEPS) if tool.step_references else ((),):
            if offered_args(tool, steps) is None:
                continue
            pooled = PoolSubject(tuple(tool_pool), steps, only=tool.name)
            alone, pool = compile_pool([tool], steps=steps), compile_pool(tool_pool, steps=steps)
            options: dict[str, Any] = {"examples": examples, "seed": seed}
            sound = partial(find_unsound, alone, pooled, accepts=_acceptance(accepts, alone, pool), **options)
            complete = partial(find_incomplete, pool, pooled, accepts=_acceptance(accepts, pool), **options)
            yield tool.name, "sound", 2, sound
            yield tool.name, "complete", 1, complete


def _acceptance(accepts: _Accepts, *grammars: Grammar) -> Callable[[str], bool]:
    """Return a function: whether a text is accepted with any of the grammars."""
    return lambda text: any(accepts(grammar, text) for grammar in grammars)


def _show(tool: str, example: Counterexample) -> None:
    """Print a counterexample."""
    console = stdout_console()
    problem = {
        "sound": "not sound: an invalid call is accepted",
        "complete": "not complete: a valid call is refused",
    }
    console.print(Text.assemble((escape_line(tool), "bold red"), f"  {problem[example.law]}"), soft_wrap=True)
    lines = [("broken", example.broken)] if example.broken else []
    lines += [("call", example.text), ("engine", example.engine)]
    lines += [("validator", error) for error in example.errors or ("valid",)]
    lines += [("finding", str(finding)) for finding in example.findings] or [("finding", "none")]
    for head, text in lines:
        console.print(Text.assemble((f"  {head:<10}", "dim"), escape_line(text)), soft_wrap=True)
