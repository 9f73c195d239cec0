"""The pool filter: which tools are offered for a request.

Pure and deterministic. First the rules, which are data: `[offer]` in the manifests, and the tables of
`gbnf.tools.providers`. Then, with a limit, the ranking (`gbnf.requests.ranking`). Invariants: kept tools keep
their order; each dropped tool has a reason; filtering twice changes nothing, unless there is a margin; a pool
that is not empty does not become empty; the prerequisites of a kept tool are kept; a tool that the rules ask
for is not dropped for its rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gbnf.errors import InvalidArgumentError
from gbnf.requests.phrases import PhraseMatcher
from gbnf.requests.ranking import BM25, Ranker
from gbnf.requests.values import without_told
from gbnf.schema_caches import schema_cache
from gbnf.tools import Tool
from gbnf.tools.manifest_checks import ESCAPE_HATCH
from gbnf.tools.prerequisites import with_prerequisites
from gbnf.tools.providers import PROVIDERS, TOPIC_PHRASES, UNRELATED_PHRASES, Provider

BEST = 3
"""How many tools a margin keeps in any case: those with the highest scores."""
CLEAR = 0.7
"""A tool fits by far if no other has this share of its score. The first call of a small model is one of those
that have it: of 200 requests of the leaderboard's category `multiple`, the right tool is the first of 197."""

_RECIPIENTS = frozenset({"to", "recipient", "recipients"})


@dataclass(frozen=True, slots=True)
class Selection:
    """The tools offered for a request, in pool order; why each other tool is dropped; a notice, or "".

    `outranked`: of the dropped tools those that only their rank excludes, the best first.
    """

    kept: tuple[Tool, ...]
    dropped: Mapping[Tool, str] = field(default_factory=dict)
    notice: str = ""
    outranked: tuple[Tool, ...] = ()


def filter_pool(
    tools: Iterable[Tool],
    query: str,
    *,
    limit: int | None = None,
    margin: float = 0.0,
    best: int = BEST,
    ranker: Ranker = BM25,
    providers: Mapping[str, Provider] = PROVIDERS,
    unrelated_phrases: Iterable[str] = UNRELATED_PHRASES,
) -> Selection:
    """Drop the tools that a request, in any language, does not need.

    `limit`: of the tools that the rules allow, keep the so many that `ranker` finds the best; None for all.
    Those with `offer.always`, those whose marker is in the request, and prerequisites are kept besides.
    `margin`: with a limit, also drop a tool whose score is less than this share of the best score, except for
    the `best` first tools. If no score is above 0, the ranking says nothing, and the margin drops none.

    A variant is offered if the request names its provider, and replaces the tool that it varies if the
    request says that the work is to be done there. `providers`: suffix of a variant's name -> phrases that
    name the provider. `unrelated_phrases`: phrases that contain one of those and mean something else. If
    the rules would drop every tool, they drop none, and `notice` says so.

    Raises InvalidArgumentError for a limit below 1, and if the ranker does not return a score for each tool.
    """
    if limit is not None and limit < 1:
        raise InvalidArgumentError(f"limit is {limit}; it must be at least 1, or None for all tools")
    pool = tuple(tools)
    rules = _FilterRules(pool, query, providers, unrelated_phrases)
    dropped = {tool: reason for tool in pool if (reason := rules.reason_to_drop(tool))}
    kept = with_prerequisites((tool for tool in pool if tool not in dropped), pool)
    notice = ""
    if pool and not kept:
        notice = f"the filter would drop all {len(pool)} tools, so it drops none"
        kept = pool
    for tool in kept:
        dropped.pop(tool, None)
    ranked = [tool for tool in kept if not rules.asks_for(tool)]
    needed = {name for tool in kept for name in tool.offer.after}
    count = sum(tool.name not in needed for tool in ranked)
    if limit is None or count <= (min(limit, best) if margin else limit):
        return Selection(kept, dropped, notice)
    scores = scored(ranked, query, ranker)
    ranks = {tool: rank for rank, tool in enumerate(sorted(ranked, key=lambda tool: -scores[tool]), 1)}
    least = margin * max(scores.values())
    near = sum(score >= least for score in scores.values()) if least > 0 else len(ranked)
    allowed = min(limit, max(near, best))
    if len(ranked) == allowed + 1 <= limit:
        allowed += 1  # `find_tools` would take the place of the only one
    near_best = with_prerequisites((tool for tool in kept if ranks.get(tool, 0) <= allowed), kept)
    outranked = tuple(tool for tool in ranks if tool not in near_best)
    for tool in outranked:
        place = f"ranked {_ordinal(ranks[tool])} of {len(ranked)} for this request"
        dropped[tool] = place + (
            f", and the limit is {limit}" if allowed == limit else ", with a score far below the first"
        )
    return Selection(near_best, dropped, notice, outranked)


def best_first(tools: Sequence[Tool], query: str, ranker: Ranker = BM25) -> tuple[Tool, ...]:
    """Return the tools in the order of their scores, those of equal scores in the order given.

    Raises InvalidArgumentError if the ranker does not return a finite score for each tool.
    """
    scores = scored(tools, query, ranker)
    return tuple(sorted(tools, key=lambda tool: -scores[tool]))


def scored(tools: Sequence[Tool], query: str, ranker: Ranker) -> dict[Tool, float]:
    """Return the score of each tool. Raises as `best_first` does."""
    scores = ranker.rank(query, tools)
    if len(scores) != len(tools) or not all(map(math.isfinite, scores)):
        raise InvalidArgumentError(f"{ranker!r} did not return a finite score for each of {len(tools)} tools")
    return dict(zip(tools, scores, strict=True))


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def heeds_only_asked(tool: Tool) -> bool:
    """Return whether what a request tells somebody else to do is no reason to offer a tool.

    So it is with what changes something: "tell a@b.org to delete x" deletes nothing. What sends messages does
    what is told, though, and what reads is safe.
    """
    return tool.run.effect == "write" and _RECIPIENTS.isdisjoint(tool.args.get("properties", {}))


class _FilterRules:
    def __init__(
        self,
        pool: tuple[Tool, ...],
        query: str,
        providers: Mapping[str, Provider],
        unrelated_phrases: Iterable[str],
    ) -> None:
        self._providers = providers
        self._tools = {tool.name: tool for tool in pool}
        self._canonical = sum(tool.offer.role != ESCAPE_HATCH and self._suffix(tool) is None for tool in pool)
        self._named, self._placed = _provider_phrases(
            tuple(providers.items()), tuple(unrelated_phrases)
        ).read(query)
        plain = tuple(marker for tool in pool if not tool.offer.not_in for marker in tool.offer.markers)
        self._query, self._asked = query, without_told(query)
        self._markers = {text: _finder(plain).find_all(text) for text in (query, self._asked)}

    def asks_for(self, tool: Tool) -> bool:
        """Return whether `tool` is offered whatever its rank."""
        return tool.offer.always or bool(tool.offer.markers and not self._no_marker(tool))

    def reason_to_drop(self, tool: Tool) -> str:
        """Return why `tool` is not offered, "" if it is. The first reason counts."""
        return "" if tool.offer.always else self._unrequested(tool) or self._variant_instead(tool)

    def _unrequested(self, tool: Tool) -> str:
        least, suffix = tool.offer.unless_canonical_at_least, self._suffix(tool)
        if least is not None and self._canonical >= least:
            return f"the pool has {self._canonical} canonical tools, at least {least}"
        if (reason := self._no_marker(tool)) or suffix is None or suffix in self._named:
            return reason
        return f"the request does not name the provider ({_some(_words_for(self._providers[suffix]))})"

    def _no_marker(self, tool: Tool) -> str:
        offer = tool.offer
        text = self._asked if heeds_only_asked(tool) else self._query
        markers = (
            _finder(offer.markers, offer.not_in).find_longest(text) if offer.not_in else self._markers[text]
        )
        if not offer.markers or not markers.isdisjoint(offer.markers):
            return ""
        return f"the request contains none of its markers ({_some(tool.offer.markers)})"

    def _variant_instead(self, tool: Tool) -> str:
        for suffix in self._providers:
            variant = self._tools.get(tool.name + suffix) if suffix in self._placed else None
            if variant is not None and not self._unrequested(variant):
                return f"{variant.name} replaces it, since the request names that provider as the place"
        return ""

    def _suffix(self, tool: Tool) -> str | None:
        """Return the provider's suffix in a variant's name, the longest if several match."""
        matching = [
            suffix for suffix in self._providers if tool.name.endswith(suffix) and tool.name != suffix
        ]
        return max(matching, key=len, default=None)


class _ProviderPhrases:
    """The phrases for providers. Those inside longer ones do not count: "google" in "google photos"."""

    def __init__(self, providers: tuple[tuple[str, Provider], ...], unrelated: tuple[str, ...]) -> None:
        self._places = {suffix: frozenset(provider.places) for suffix, provider in providers}
        topics = {
            suffix: {f"{topic} {place}" for place in places for topic in TOPIC_PHRASES}
            for suffix, places in self._places.items()
        }
        self._words = {suffix: topics[suffix].union(_words_for(provider)) for suffix, provider in providers}
        self._unrelated = unrelated
        self._names = PhraseMatcher(word for _, provider in providers for word in _words_for(provider))

    @cached_property
    def _markers(self) -> PhraseMatcher:
        return PhraseMatcher([*self._unrelated, *(word for words in self._words.values() for word in words)])

    def read(self, query: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the suffixes of the providers that `query` names, and of those that it names as places."""
        if not self._names.find_all(query):  # each topic's phrase contains the name of a place
            return frozenset(), frozenset()
        phrases = self._markers.find_longest(query)
        named, placed = (
            frozenset(suffix for suffix, words in table.items() if not words.isdisjoint(phrases))
            for table in (self._words, self._places)
        )
        return named, placed


_provider_phrases = schema_cache(maxsize=8)(_ProviderPhrases)
_finder = schema_cache(maxsize=64)(PhraseMatcher)


def _words_for(provider: Provider) -> tuple[str, ...]:
    return provider.names + provider.places


def _some(markers: tuple[str, ...]) -> str:
    shown = ", ".join(repr(marker) for marker in markers[:5])
    return f"{shown} …" if len(markers) > 5 else shown
