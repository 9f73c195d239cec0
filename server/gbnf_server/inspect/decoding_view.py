"""What the page shows of one call of a model: its tokens, and for each what else it could have been."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gbnf_server.inspect.pages.run_view import seconds
from gbnf_server.llama.token_values import TracedToken
from gbnf_server.planner.recording import RecordedCall, trace_to_json

ShownKind: TypeAlias = Literal["sampled", "drafted", "forced", "end", "untraced"]
"""As `TokenKind`; "untraced" is a whole text of which only a server knows the tokens."""

_END = "■"
_MOST_CHARACTERS = 200_000
"""Of a text or a grammar."""


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
