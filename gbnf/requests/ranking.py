"""Ranking: how well each tool of a pool fits a request.

    Ranker   the protocol: a request and tools in, a score for each tool out
    BM25     the default ranker, which needs no model

BM25F (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", section 3.6): a word
counts more in a tool's name than in its description or affinity, and there more than in its arguments. Words
are compared by their English and Italian stems, without case and accents. Words that a request quotes, and
numbers, count half: they are values of arguments. A phrase of an affinity counts if a request has all of it.

Invariants: the score of a tool depends on the pool only through the number of tools that contain each word
of the request, so a tool without any of them changes no other score; a tool whose name is in the request is
first; the same input gives the same scores in every process.
"""

# A library such as bm25s would have to be wrapped: it has no fields, no alternatives for one word and no
# statistics that are independent of the pool's size, and it requires numpy, which `gbnf` does without. What
# it does better, millions of documents, is of no use here: a pool has hundreds of tools.

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, Protocol

from gbnf.requests import wording
from gbnf.requests.phrases import QUOTED, UNSPACED, plain_text
from gbnf.requests.values import most_calls, names_kind_of_file, numbers_in, without_told
from gbnf.schema.keywords import walk
from gbnf.schema_caches import schema_cache
from gbnf.tools.tool import Tool

_SATURATION: Final = 3.0
"""BM25's k1: the weighted frequency at which a word counts half as much as it can."""

_LENGTH_SHARE: Final = 0.5
"""BM25's b: how much of a frequency is divided by the length of the text."""

_COMMON: Final = 500
"""A word in this many tools has the weight log 2. In place of the pool's size, so that more tools do not
change the order of the others."""

_VALUE_WEIGHT: Final = 0.5
"""Of words in quotes, and of numbers."""

_NAMED: Final = 100_000.0
"""Added to the score of a tool whose name is in the request; no sum of 2,000 words reaches it."""

_MAX_QUERY_WORDS: Final = 2000
_LONGEST_WORD: Final = 64
"""Characters; longer words have no stem."""

_FIELDS: Final[Mapping[str, tuple[float, int]]] = {
    "name": (3.0, 3),
    "description": (2.0, 12),
    "affinity": (2.0, 1),
    "arguments": (1.0, 5),
    "values": (1.0, 5),
    "argument descriptions": (1.0, 30),
}
"""Each field's weight, and the words that a typical tool has in it."""
_PHRASE_SCORE: Final = math.log1p(_COMMON) * _FIELDS["affinity"][0] / (_FIELDS["affinity"][0] + _SATURATION)
"""Of a phrase of a tool's affinity: that of a word there which no other tool has."""
_PURPOSE: Final = frozenset(("name", "description", "values"))
"""The fields that say what a tool does, rather than what it is about or how it is called."""


_LANGUAGES: Final = {"en": "english", "it": "italian"}
_ARITHMETIC: Final = re.compile(
    r"\d\s*[*×÷^+]\s*\d|\d\s+[-−/]\s+\d|\d\s?%"
    rf"|\d ?(?:{'|'.join(wording.OPERATIONS)}) [$€£]?\d"
)
_ASKING: Final = ((_ARITHMETIC, " calculate expression"), (re.compile(r"\bhow late is it\b"), " time"))
"""What a request asks for in other words, such as an arithmetic expression."""
_STATED: Final = re.compile(r"(\w\.[a-z]\w{1,4}\b\W{1,3}should (?:now )?)read\b")
"""What a file is to contain: nothing is read."""
_PATH: Final = re.compile(r"(?<!\S)[\w~.-]*(?:/[\w.-]+)+|(?<!\S)[\w-]+\.[a-z]\w{1,4}\b(?!@)")
_GOVERNED: Final = 6
"""Words from a verb to the phrase that says where to, at most."""
_MOST_ASKED_FOR: Final = 2
"""Tools that a word may ask for; one of more tools says what they are about."""
_FILE: Final = re.compile(r"(?<!\S)[\w~./-]*\w\.(?!com\b|org\b|net\b)[a-z]\w{1,4}\b(?![@.]\w)")
"""The name of a file with its suffix."""
_IMPLIED: Final = (
    (_PATH, "file"),
    (re.compile(r"\w@\w"), "mail"),
    (re.compile(r"\b\d{1,2}:\d\d\b|\b\d{4}-\d\d-\d\d\b"), "calendar"),
)
_IMPLIED_WEIGHT: Final = 0.1
"""Of what paths, addresses and times are about: it decides between tools that fit equally by words."""

_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(rf"[{UNSPACED}]|[^\W\d_{UNSPACED}]+|\d+")
_NAME = re.compile(r"\w+(?:[.-]+\w+)*")


class Ranker(Protocol):
    """Says how well tools fit a request."""

    def rank(self, query: str, tools: Sequence[Tool], /) -> Sequence[float]:
        """Return a finite score for each tool, in the order of `tools`; the higher, the better it fits."""


@dataclass(frozen=True, slots=True)
class BM25Ranker:
    """Ranks by the words that a request and a tool have in common; see the module."""

    def rank(self, query: str, tools: Sequence[Tool]) -> list[float]:
        """Return the scores; 0 for a tool that has no word of the request."""
        query = _with_contents(query)
        documents = [_document(tool) for tool in tools]
        names = set(_NAME.findall(query))
        scores = [_NAMED if tool.name.casefold() in names else 0.0 for tool in tools]
        for terms, weight in _query_words(query).items():
            frequencies = [max(document.get(term, 0.0) for term in terms) for document in documents]
            containing = sum(frequency > 0 for frequency in frequencies)
            if not containing:
                continue
            rarity = weight * math.log1p(_COMMON / containing)
            for index, frequency in enumerate(frequencies):
                scores[index] += rarity * frequency / (frequency + _SATURATION)
        text = _spaced(query)
        return [
            score + _PHRASE_SCORE * len(_phrases_in(text, tool))
            for score, tool in zip(scores, tools, strict=True)
        ]


BM25: Final = BM25Ranker()
"""The default ranker."""


def common_words(query: str, tool: Tool, *, of_purpose: bool = False) -> tuple[str, ...]:
    """Return the words of a request for which `BM25` ranks a tool, in the request's order.

    They are without case and accents, each once. `of_purpose`: those of its name, its description and the
    values of its arguments, which say what it does.
    """
    words = dict.fromkeys(_WORD.findall(_PATH.sub(" ", _asked(query))))
    if not words:
        return ()
    languages = _languages(tuple(words))
    document = _document(tool, of_purpose=of_purpose)
    common = (word for word in words if any(term in document for term in _terms(word, languages)))
    return tuple(islice(common, _MAX_QUERY_WORDS))


def says_no_more(query: str, tool: Tool) -> bool:
    """Return whether each word of a request, but for stop words, is one for which `BM25` ranks a tool."""
    words = set(_WORD.findall(_asked(query)))
    languages = _languages(tuple(words))
    return 0 < sum(bool(_terms(word, languages)) for word in words) == len(common_words(query, tool))


def asking_words(query: str, tools: Sequence[Tool]) -> dict[Tool, frozenset[str]]:
    """Return the words of a request that ask for each tool, and for no more than one other.

    Those of its affinity, if that is no phrase, or all of the phrase; of a tool without an affinity, those of
    its name and description. Not those that only say where, "the files in the folder", what not to do, what
    the person did, or what is done with another tool, by one of its phrases.
    """
    unquoted = _PATH.sub(" ", QUOTED.sub(" ", _asked(query)))
    without = wording.SOUGHT_FOR.sub(
        r"\1", wording.PLACE.sub(" ", wording.TOLD.sub(" ", wording.FORBIDDEN.sub(" ", unquoted)))
    )
    words = dict.fromkeys(_WORD.findall(without))
    languages = _languages(_WORD.findall(unquoted))
    terms = {word: _terms(word, languages) for word in islice(words, _MAX_QUERY_WORDS)}
    words_of = {
        tool: frozenset(word for word, stems in terms.items() if not _requested(tool).isdisjoint(stems))
        for tool in tools
    }
    counts = Counter(chain.from_iterable(words_of.values()))
    common = {word for word in counts if counts[word] > _MOST_ASKED_FOR}
    # no phrase goes across a quote or a path: write "tickets" to a.txt
    text = _spaced(_PATH.sub(" 0 ", QUOTED.sub(" 0 ", _asked(query))))
    phrases = {tool: _phrases_in(text, tool) for tool in tools}
    if names_kind_of_file(query):  # "text file" says what is found and read, and not what to do with it
        reads = [tool for tool in tools if tool.run.effect == "read" and (words_of[tool] or phrases[tool])]
        objects = frozenset[str]().union(*map(_purpose, reads))
        phrases = {
            tool: frozenset(
                phrase
                for phrase in phrases[tool]
                if tool.run.effect == "read"
                or any(objects.isdisjoint(_terms(word, languages)[:1]) for word in phrase.split())
            )
            for tool in tools
        }
    governing = {tool: frozenset(_governing(text, phrases[tool])) for tool in tools if phrases[tool]}
    taken = {
        tool: frozenset[str]().union(*(governing[other] for other in governing if other is not tool))
        for tool in tools
    }
    return {tool: (words_of[tool] - common - taken[tool]) | phrases[tool] for tool in tools}


def _governing(spaced: str, phrases: Iterable[str]) -> Iterator[str]:
    """Yield the words before phrases that say where to: "put" of "put it in my calendar"."""
    for phrase in filter(wording.WHERE_TO.match, phrases):
        before = spaced[: spaced.index(f" {phrase} ")]
        yield from wording.CLAUSE_END.split(before)[-1].split()[-_GOVERNED:]


def _spaced(query: str) -> str:
    """Return the words of a request, each between single spaces."""
    return f" {' '.join(_WORD.findall(query))} "


def _phrases_in(spaced: str, tool: Tool) -> frozenset[str]:
    """Return the phrases of a tool's affinity that a request has. `spaced`: the request, see `_spaced`."""
    return frozenset(phrase for phrase in _phrases(tool) if f" {phrase} " in spaced)


@schema_cache(maxsize=8192)
def _phrases(tool: Tool) -> tuple[str, ...]:
    words = (_WORD.findall(plain_text(text)) for text in tool.affinity)
    return tuple(" ".join(several) for several in words if len(several) > 1)


@schema_cache(maxsize=8192)
def _requested(tool: Tool) -> frozenset[str]:
    """Return the terms of what a tool does and how it is asked for."""
    return _affinity(tool) if _words_of_affinity(tool) else _purpose(tool)


@schema_cache(maxsize=8192)
def _purpose(tool: Tool) -> frozenset[str]:
    """Return the terms of a tool's name and descriptions."""
    texts = [tool.name, *tool.descriptions.values()]
    return frozenset(term for text in texts for _, terms in _stemmed(text) for term in terms)


def fits_none(query: str, tools: Sequence[Tool]) -> bool:
    """Return whether no tool can be meant by a request, by its words and numbers.

    None has a word of it in its name, its description or the values of its arguments, or is for what it
    contains, and requires no more numbers than it has. False also where request and tools are not known to
    be in the same language.
    """
    spoken = _languages(_WORD.findall(plain_text(query)))
    described = " ".join(text for tool in tools for text in tool.descriptions.values())
    if len(spoken) > 1 or spoken[0] not in _languages(_WORD.findall(plain_text(described))):
        return False
    numbers = len(numbers_in(query))
    return not any(
        (common_words(query, tool, of_purpose=True) or _is_subject(query, tool))
        and _required_numbers(tool) <= numbers
        for tool in tools
    )


def is_about(query: str, tools: Sequence[Tool]) -> bool | None:
    """Return whether a request is about what some tools are for; None if that is not known.

    It is if it has a path, an address, a time or an expression, and a tool is for these, or a word of a
    tool's affinity; or the numbers that a tool requires, if these are several, and a word of what it does. It
    is not if all tools have an affinity, or if none can be meant.
    """
    numbers = len(numbers_in(query))
    if any(
        _is_subject(query, tool)
        or (1 < _required_numbers(tool) <= numbers and common_words(query, tool, of_purpose=True))
        for tool in tools
    ):
        return True
    return False if all(tool.affinity for tool in tools) or fits_none(query, tools) else None


def file_tools(tools: Sequence[Tool], subject: str = "file") -> tuple[Tool, ...]:
    """Return the tools that are for files, or for another subject."""
    terms = set(_terms(subject, ("english",)))
    return tuple(tool for tool in tools if not terms.isdisjoint(_described(tool)))


def file_readers(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools that are for files and change nothing."""
    return tuple(tool for tool in file_tools(tools) if tool.run.effect == "read")


@schema_cache(maxsize=8192)
def _described(tool: Tool) -> frozenset[str]:
    """Return the terms of a tool but for those of its values: a form may ask for a file."""
    texts = [text for field, text in _texts(tool) if field != "values"]
    return frozenset(term for text in texts for _, terms in _stemmed(text) for term in terms)


def names_file(query: str) -> bool:
    """Return whether a request has the name of a file, with its suffix."""
    return _FILE.search(plain_text(query)) is not None


def has_content_of(query: str) -> bool:
    """Return whether the first part of a request is about what is in something: send Anna what is in it."""
    text = QUOTED.sub(" ", plain_text(query))
    content = wording.CONTENT_OF.search(text)
    return content is not None and most_calls(text[: content.start()]) == 1


def _is_subject(query: str, tool: Tool) -> bool:
    """Return whether a tool is for what a request contains, or has a word of it in its affinity."""
    text = plain_text(query)
    words = [word for pattern, word in _IMPLIED if pattern.search(text)]
    words += _with_contents(query)[len(text) :].split()
    implied = {term for word in words for term in _terms(word, ("english",))}
    stems = {term for terms in _query_words(text) for term in terms}
    has_word = not stems.isdisjoint(_affinity(tool)) or bool(_phrases_in(text, tool))
    return has_word or not implied.isdisjoint(_document(tool))


def _required_numbers(tool: Tool) -> int:
    """Return how many arguments of a call have to be numbers."""
    properties = tool.args.get("properties", {})
    required = [properties.get(name) for name in tool.args.get("required", ())]
    return sum(
        isinstance(schema, Mapping) and schema.get("type") in ("integer", "number") for schema in required
    )


def request_language(query: str, tools: Sequence[Tool]) -> str:
    """Return the language that a request is written in, of those that the tools are described in.

    By its stop words and the words of these descriptions; "en" if that is not clear.
    """
    words = _WORD.findall(plain_text(_PATH.sub(" ", QUOTED.sub(" ", query))))[:_MAX_QUERY_WORDS]
    described = {"en", *(code for tool in tools for code in tool.descriptions)} & _LANGUAGES.keys()
    if len(described) == 1:
        return "en"
    counts = {code: sum(word in wording.STOP_WORDS[_LANGUAGES[code]] for word in words) for code in described}
    if list(counts.values()).count(max(counts.values())) > 1:  # stemmers take time to import
        for code in described:
            texts = [tool.descriptions[code] for tool in tools if code in tool.descriptions]
            stems = {
                _stem(word, _LANGUAGES[code]) for text in texts for word in _WORD.findall(plain_text(text))
            }
            counts[code] += sum(_stem(word, _LANGUAGES[code]) in stems for word in words)
    return max(sorted(counts), key=counts.__getitem__)


@schema_cache(maxsize=8192)
def _affinity(tool: Tool) -> frozenset[str]:
    return frozenset(
        term for word in _words_of_affinity(tool) for terms in _affinity_terms(word) for term in terms
    )


def _words_of_affinity(tool: Tool) -> tuple[str, ...]:
    """Return the affinity of a tool without its phrases."""
    return tuple(text for text in tool.affinity if len(_WORD.findall(text)) == 1)


@schema_cache(maxsize=8192)
def word_stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words, each marked with its language, without numbers and stop words."""
    words = islice(_stemmed(text), _MAX_QUERY_WORDS)
    return frozenset(term for word, terms in words if not word.isdecimal() for term in terms)


def _asked(query: str) -> str:
    """Return `_with_contents` of what the model itself is asked."""
    return _with_contents(without_told(query))


def _with_contents(query: str) -> str:
    """Return a request without case and accents, with the words of what it contains."""
    text = _STATED.sub(r"\1contain", plain_text(query))
    return text + "".join(words for pattern, words in _ASKING if pattern.search(text))


def _query_words(query: str) -> dict[tuple[str, ...], float]:
    """Return the words of a request, each as its terms, with their weights."""
    languages = _languages(_WORD.findall(query))
    weights: dict[tuple[str, ...], float] = {}
    unquoted = _PATH.sub(" ", QUOTED.sub(" ", query))
    values = " ".join(QUOTED.findall(query))
    for text, weight in ((unquoted, 1.0), (values, _VALUE_WEIGHT)):
        for word in _WORD.findall(text):
            if len(weights) < _MAX_QUERY_WORDS and (terms := _terms(word, languages)):
                weights.setdefault(terms, _VALUE_WEIGHT if word.isdecimal() else weight)
    for pattern, word in _IMPLIED:
        if pattern.search(query):
            weights.setdefault(_terms(word, languages), _IMPLIED_WEIGHT)
    return weights


@schema_cache(maxsize=8192)
def _document(tool: Tool, *, of_purpose: bool = False) -> Mapping[str, float]:
    """Return the terms of a tool, each with its frequency, weighted and divided by the lengths of fields."""
    frequencies: defaultdict[str, float] = defaultdict(float)
    for field, text in _texts(tool):
        if of_purpose and field not in _PURPOSE:
            continue
        weight, typical = _FIELDS[field]
        words = (
            [*_affinity_terms(text)]
            if field == "affinity"
            else [terms for _, terms in _stemmed(text) if terms]
        )
        share = weight / (1 - _LENGTH_SHARE + _LENGTH_SHARE * len(words) / typical)
        for terms in words:
            for term in terms:
                frequencies[term] += share
    return frequencies


def _texts(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield the fields of a tool with their texts, one for each language that they are written in."""
    yield "name", tool.name
    yield from (("description", text) for text in tool.descriptions.values())
    yield from (("affinity", text) for text in tool.affinity)  # each may be in another language
    names: list[str] = []
    values: list[str] = []
    descriptions: dict[str, list[str]] = {}
    for path, schema in walk(tool.model_args()):
        if len(path) > 1 and path[-2] == "properties":
            names.append(str(path[-1]))
        if not isinstance(schema, Mapping):
            continue
        choices = schema.get("enum", [schema.get("const")])
        values += [word for word in choices if isinstance(word, str)] if isinstance(choices, list) else []
        described = schema.get("description")
        for language, text in (described if isinstance(described, Mapping) else {"": described}).items():
            if isinstance(text, str):
                descriptions.setdefault(language, []).append(text)
    yield "arguments", " ".join(names)
    yield "values", " ".join(values)
    yield from (("argument descriptions", " ".join(texts)) for texts in descriptions.values())


def _stemmed(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the words of a text about a tool, each with its terms."""
    words = _WORD.findall(plain_text(_CAMEL_CASE.sub(" ", text)))
    languages = _languages(words)
    return ((word, _terms(word, languages)) for word in words)


def _languages(words: Sequence[str]) -> tuple[str, ...]:
    """Return the language of a text, by its stop words; all languages if that is not clear."""
    counts = {
        language: sum(word in stop_words for word in words)
        for language, stop_words in wording.STOP_WORDS.items()
    }
    return tuple(language for language, count in counts.items() if count == max(counts.values()))


def _terms(word: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Return the stems of a word; () for a stop word of one of the languages.

    An Italian word also has the form of an imperative without pronouns, which an affinity may have: "leggi"
    of "leggili". Nouns end like that, too, so its stem would be that of other words: "giorno" of "giornali".
    """
    if any(word in wording.STOP_WORDS[language] for language in languages):
        return ()
    stems = [f"{language}:{_stem(word, language)}" for language in languages]
    if "italian" in languages and (imperative := _PRONOUNS.sub("", word)) != word:
        stems.append(f"{_FORM}{imperative}")
    return tuple(stems)


_PRONOUNS: Final = re.compile(r"(?<=[^\W\d_]{3}[aei])(?:me|te|ce|glie)?(?:l[ioae]|mi|ci|gli|ne)\Z")
_FORM: Final = "form:"
"""Begins the term of a word as it is."""


def _affinity_terms(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the terms of each word of an affinity: its stems, and its form."""
    return ((*terms, f"{_FORM}{word}") for word, terms in _stemmed(text) if terms)


@schema_cache(maxsize=65536)
def _stem(word: str, language: str) -> str:
    if len(word) > _LONGEST_WORD:
        return word
    from snowballstemmer.english_stemmer import EnglishStemmer  # noqa: PLC0415  # few commands rank tools
    from snowballstemmer.italian_stemmer import ItalianStemmer  # noqa: PLC0415  # as above

    # a new stemmer for each word, since it has state and requests may be ranked in several threads
    stemmer = {"english": EnglishStemmer, "italian": ItalianStemmer}[language]()
    return str(stemmer.stemWord(word))
