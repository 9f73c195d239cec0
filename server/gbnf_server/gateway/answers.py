"""The events of an answer, which every API writes in its own form.

    Started (TextDelta | ReasoningDelta | CallStarted ArgumentsDelta* CallEnded)* Finished

once for each answer of a request, one after another. A request for no answer has a `Finished` with the tokens
of its prompt. Calls do not overlap. A `CallStarted` without its `CallEnded` before `Finished` is a truncated
call: it must not be executed, and an answer that is not streamed leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from gbnf import Finding
from gbnf.tool_formats import Delta
from gbnf_server.backends.base import Usage
from gbnf_server.llama.token_values import TokenLogprob

GRAMMAR_IGNORED = "upstream_ignored_grammar"
"""The code of the error if a backend's answer is one that the grammar excludes."""


def is_not_enforced(finding: Finding) -> bool:
    """Return whether a grammar accepts what a client's schema forbids, or has no calls of the tool."""
    return finding.loosens or finding.kind == "left_out"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What constrained an answer, and what did not."""

    grammar_hash: str | None = None
    """"sha256:…" of the grammar's GBNF text, None for an unconstrained answer."""
    exact: bool = True
    """Each text of the grammar satisfies the schemas."""
    findings: tuple[Finding, ...] = ()
    """What the grammar does not enforce, and what was removed from schemas."""
    format: str | None = None
    """How calls are written, "native" or "json", None without tools."""
    call_odds: float | None = None
    """The log-odds that a small model means to call a tool, if it was asked."""
    from_results: bool = False
    """A small model was asked for its answer from its calls' results alone, since the request was done."""
    verified: bool = False
    """After decoding: the text was matched against the grammar again, and nothing is invalid."""
    invalid: tuple[str, ...] = ()
    """After decoding: what is wrong with arguments, as far as the grammar does not enforce it."""
    forced_tokens: int = 0
    """Those that the grammar determined."""
    sampled_tokens: int = 0
    """The others."""
    retries: int = 0
    """How often the backend was asked again."""
    shortened_at: int | None = None
    """The index in the answer from which on the token limit determined it, so that it could end."""
    repeated: str = ""
    """What the model repeated there without an end."""
    failed_before: tuple[str, ...] = ()
    """The tools of calls that have failed in the conversation with the same arguments."""
    ignored: tuple[str, ...] = ()
    """The paths of what in the request has no effect."""

    def header(self) -> str:
        """Return what is known before the answer, as a structured field of HTTP (RFC 9651, a dictionary)."""
        if self.grammar_hash is None:
            return "exact=?1" if self.exact else "exact=?0"
        return f'grammar="{self.grammar_hash}", exact=?{int(self.exact)}'

    def as_json(self) -> dict[str, Any]:
        """Return the field `x_gbnf` of an answer."""
        by_kind: dict[str, list[dict[str, str]]] = {"unenforced": [], "loosened": [], "notes": []}
        for finding in self.findings:
            shown = {name: getattr(finding, name) for name in ("tool", "pointer", "keyword", "reason")}
            kind = "unenforced" if finding.kind == "unenforced" else "loosened"
            by_kind[kind if is_not_enforced(finding) else "notes"].append(shown)
        answer: dict[str, Any] = {"grammar": self.grammar_hash, **by_kind}
        for name in (field.name for field in fields(self) if field.name not in {"grammar_hash", "findings"}):
            value = getattr(self, name)
            answer[name] = list(value) if isinstance(value, tuple) else value
        return answer


@dataclass(frozen=True, slots=True)
class Started:
    """An answer begins. `choice` counts the answers of a request from 0."""

    choice: int
    enforcement: Enforcement


@dataclass(frozen=True, slots=True)
class Finished:
    """An answer is complete.

    `reason`: "length" if the limit of tokens truncated it, "tool_calls" if it ends with calls. `stop_string`:
    that of the request which ended it. `logprobs`: one per token, if the request asked for them.
    `reasoning_tokens`: about how many of the answer's tokens are reasoning: its pieces are counted.
    """

    reason: Literal["stop", "length", "tool_calls"]
    usage: Usage
    enforcement: Enforcement
    stop_string: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    reasoning_tokens: int = 0


ReplyEvent: TypeAlias = Started | Delta | Finished
