"""Decodings and runs: what the page shows of each token and each step, and that as HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from markupsafe import Markup

from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf_server.inspect.live_decoding import MOST_REQUEST, MOST_TOKENS, Strategy
from gbnf_server.inspect.pages.run_view import RunView, decoding_label, seconds, view_run
from gbnf_server.inspect.pages.timeline import render_grammar_lines, render_timeline
from gbnf_server.inspect.rendering import Tab, render_template
from gbnf_server.llama.token_values import TracedToken
from gbnf_server.planner.events import RunStarted, StepOffer, StepStarted
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.recording import GrammarLines, RecordedCall, grammar_text, trace_to_json
from gbnf_server.planner.run_files import RecordedRun
from gbnf_server.planner.tool_offer import grammar_of_step

ShownKind: TypeAlias = Literal["sampled", "drafted", "forced", "end", "untraced"]
"""As `TokenKind`; "untraced" is a whole text of which only a server knows the tokens."""

_END = "■"
_MOST_CHARACTERS = 200_000
"""Of a text or a grammar."""

KINDS = {
    "sampled": "chosen in a step of the model",
    "drafted": "guessed, and confirmed in a step with others",
    "forced": "the only continuation that the grammar allows",
    "end": "the end",
}


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token as it is shown. `is_changed`: the model's likeliest token was refused here."""

    text: str
    kind: ShownKind
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class DecodingView:
    """A call of a model. `data`: an entry for each token (see `gbnf_server.planner.recording`)."""

    label: str
    facts: tuple[str, ...]
    tokens: tuple[TokenView, ...]
    data: tuple[Any, ...]
    changed: int
    error: str
    reasoning: str
    grammar: str
    messages: tuple[tuple[str, str], ...]


def view_decoding(decoding: RecordedCall, label: str) -> DecodingView:
    """Return what is shown of a call."""
    tokens = tuple(map(_token, decoding.trace))
    data = trace_to_json(decoding.trace)
    if not tokens and decoding.text:
        text = decoding.text[:_MOST_CHARACTERS]
        tokens = (TokenView(text, "untraced"),)
        data = [[text, "untraced", decoding.timings.completion_s, 0, None, None, []]]
    return DecodingView(
        label,
        tuple(_facts(decoding)),
        tokens,
        tuple(data),
        sum(token.is_changed for token in tokens),
        decoding.error,
        decoding.reasoning if not decoding.trace else "",
        decoding.grammar[:_MOST_CHARACTERS],
        tuple(_message(message) for message in decoding.messages),
    )


def _token(entry: TracedToken) -> TokenView:
    is_changed = bool(entry.candidates) and entry.candidates[0].refused_by is not None
    text = _END if entry.kind == "end" else visible(entry.token)
    return TokenView(text, entry.kind, is_changed)


def visible(token: bytes) -> str:
    """Return a token in a form that can be seen, also blanks, control characters and stray bytes."""
    text = token.decode(errors="backslashreplace")
    if not text.strip(" "):
        return "␣" * len(text) or "∅"
    text = text.replace("\r", "␍").replace("\n", "↵\n").replace("\t", "⇥\t")
    return "".join(each if each >= " " or each in "\n\t" else f"\\x{ord(each):02x}" for each in text)


def _facts(decoding: RecordedCall) -> list[str]:
    if decoding.error:
        return []
    facts = [
        f"{decoding.usage.prompt_tokens} prompt tokens"
        + (f" ({decoding.usage.cached_tokens} cached)" if decoding.usage.cached_tokens else ""),
        f"{decoding.usage.completion_tokens} generated",
    ]
    forced, drafted = decoding.usage.forced_tokens, decoding.usage.accepted_tokens
    if decoding.trace:  # as the tokens are marked: a forced text may have been drafted
        kinds = [entry.kind for entry in decoding.trace]
        forced, drafted = kinds.count("forced"), kinds.count("drafted")
    facts += [f"{forced} forced"] if forced else []
    facts += [f"{drafted} drafted"] if drafted else []
    facts.append(seconds(decoding.timings.prompt_s + decoding.timings.completion_s))
    if decoding.timings.grammar_s is not None:
        facts.append(f"{seconds(decoding.timings.grammar_s)} of it for the grammar")
    facts.append("with a grammar" if decoding.grammar else "without a grammar")
    if decoding.max_tokens:
        facts.append(f"at most {decoding.max_tokens} tokens")
        sampling = f"temperature {decoding.temperature:g}, seed {decoding.seed}"
        facts.append(sampling if decoding.temperature else "greedy")
    reason = f"the repetition of {decoding.repeated!r}" if decoding.repeated else "the token limit"
    facts += [f"truncated by {reason}"] if decoding.finish_reason == "length" else []
    if decoding.finish_reason != "length" and decoding.shortened_at is not None:
        facts.append(f"shortened by {reason} from character {decoding.shortened_at} on")
    return facts


def _message(message: Any) -> tuple[str, str]:
    content = message.get("content", "")
    others = {key: value for key, value in message.items() if key not in ("role", "content")}
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    if others:
        text = f"{text}\n{json.dumps(others, ensure_ascii=False, indent=2)}".strip()
    return str(message.get("role", "")), text[:_MOST_CHARACTERS]


def decoding_tab(
    runs: Sequence[RecordedRun], *, strategies: Mapping[Strategy, str] | None = None, model: str = ""
) -> Tab:
    """Return the tab of decodings: those of runs to choose from, and a form if they can be made live."""
    recorded = [
        (decoding_label(decoding, run, index), decoding)
        for run in runs
        for index, decoding in enumerate(run.decodings)
    ]
    html = render_template(
        "decoding_tab.html.j2",
        labels=[label for label, _ in recorded],
        decodings=[_decoding(view_decoding(decoding, label)) for label, decoding in recorded],
        kinds=KINDS,
        strategies=strategies,
        model=model,
        most_request=MOST_REQUEST,
        most_tokens=MOST_TOKENS,
    )
    return Tab("decoding", "A decoding", html)


def run_tab(
    runs: Sequence[RecordedRun], shown: AbstractSet[str] = frozenset(), tools: Sequence[Tool] = ()
) -> Tab:
    """Return the tab of runs, with the grammars of `tools` where a file has none.

    `shown`: the tools whose grammars the page shows, too.
    """
    grammars = GrammarLines()
    compiled: dict[StepOffer, str] = {}
    rendered = []
    first = 0
    for run in runs:
        view = view_run(_with_compiled_grammars(run, tools, compiled))
        html = render_timeline(
            view, grammars, level=3, note=_note(view, shown), shown=shown, first_decoding=first
        )
        rendered.append((view, html))
        first += len(run.decodings)
    html = render_template("run_tab.html.j2", runs=rendered, grammars=render_grammar_lines(grammars))
    return Tab("run", "A run" if len(runs) == 1 else "Runs", html)


def _with_compiled_grammars(
    run: RecordedRun, tools: Sequence[Tool], compiled: dict[StepOffer, str]
) -> RecordedRun:
    """Return a run with the grammars that `tools` give its steps, as JSON calls, unless it has grammars.

    `compiled` has those of earlier runs, and gets the new ones.
    """
    recorded = run.grammars or any(decoding.grammar for decoding in run.decodings)
    constrained = any(event.grammar for event in run.events if isinstance(event, RunStarted))
    if recorded or not constrained or not tools:
        return run
    pool = {tool.name: tool for tool in tools}
    for event in run.events:
        if isinstance(event, StepStarted) and event.offer not in compiled:
            try:
                compiled[event.offer] = grammar_text(grammar_of_step(event, pool, ResolvedOptions()))
            except GbnfError:
                compiled[event.offer] = ""
    return replace(run, grammars=compiled, are_compiled=True)


def _note(view: RunView, shown: AbstractSet[str]) -> str:
    """Return where the grammars of a run are from, or why there are none."""
    if view.recorded.are_compiled and view.has_grammars:
        return "The file has no grammars: those above were compiled from the tools that the page was given."
    if view.has_grammars or not view.steps:
        return ""
    note = "The file has no grammars: `gbnf run --record` writes them, and the tokens."
    return f"{note} Those of single tools are linked from the tools that a step offers." if shown else note


def render_decodings(labels: Sequence[str], decodings: Sequence[RecordedCall]) -> Markup:
    """Return what the form shows: a decoding, or two beside each other."""
    views = [view_decoding(decoding, label) for label, decoding in zip(labels, decodings, strict=True)]
    return Markup("").join(Markup('<div class="slot">{}</div>').format(_decoding(view)) for view in views)


def _decoding(view: DecodingView) -> Markup:
    # "<" would end the element; a reader of JSON takes the escape for it
    data = json.dumps(view.data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return render_template("decoding.html.j2", view=view, data=Markup(data), kinds=KINDS)  # noqa: S704  # see above
