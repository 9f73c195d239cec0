"""The leaderboard's files: `BFCL_v4_<category>.json` of JSON lines, and `possible_answer/` beside them.

A question's line has `id`, `question` (turns, each a list of messages; the first turn counts), `function`
(a list of functions). An answer's has `id` and `ground_truth`: a list of expected calls, each
`{name: {argument: [acceptable values]}}`, where "" among the values means that the argument is optional.
Categories without correct calls have no file of answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gbnf_bench.errors import ResultsFileError

CATEGORIES = (
    "simple",
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)
"""Supported categories, in the table's order; `simple` was the name of `simple_python` before version 4."""

CallCount: TypeAlias = Literal["one", "several", "none", "some"]
"""Number of correct calls: exactly one, those of the answer in any order, none, or at least one of any."""

_FILE = re.compile(r"BFCL_v\d+_(?P<category>\w+)\.jsonl?")

PossibleAnswer: TypeAlias = Mapping[str, Mapping[str, Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class LeaderboardEntry:
    """One question. `expected` is empty if the category has no answers."""

    id: str
    category: str
    messages: tuple[Mapping[str, str], ...]
    functions: tuple[Mapping[str, Any], ...]
    expected: tuple[PossibleAnswer, ...]

    @property
    def kind(self) -> CallCount:
        """Number of calls that the category expects."""
        if "irrelevance" in self.category:
            return "none"
        if "relevance" in self.category:
            return "some"
        return "several" if "parallel" in self.category else "one"


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The entries of a folder, by category in the table's order, and the files of unsupported categories."""

    entries: Mapping[str, tuple[LeaderboardEntry, ...]]
    left_out: tuple[str, ...]

    @property
    def questions(self) -> list[LeaderboardEntry]:
        """The entries of all categories."""
        return [*chain.from_iterable(self.entries.values())]


def read_folder(folder: Path, *, categories: Sequence[str] = (), limit: int | None = None) -> Leaderboard:
    """Return the leaderboard's files in a folder.

    `categories` selects some of them, by default all; `limit` is the maximum number of entries of each.
    Raises ResultsFileError with file, line and hint.
    """
    for name in categories:
        if any(folder.glob(f"BFCL_*_{name}.json*")) and name not in CATEGORIES:
            raise ResultsFileError(f"the category {name!r} is not run; run are {', '.join(CATEGORIES)}")
        if name not in CATEGORIES:
            raise ResultsFileError(f"there is no category {name!r}; there are {', '.join(CATEGORIES)}")
    files = {
        match["category"]: path
        for path in sorted(folder.glob("BFCL_*"))
        if (match := _FILE.fullmatch(path.name)) is not None
    }
    if not files:
        raise ResultsFileError(
            f"{folder} holds no BFCL_v4_<category>.json. Give the folder `bfcl_eval/data` of the leaderboard."
        )
    wanted = [name for name in CATEGORIES if name in files and (not categories or name in categories)]
    if missing := [name for name in categories if name not in files]:
        raise ResultsFileError(
            f"{folder} holds no file of the category {missing[0]}; it has {', '.join(files)}"
        )
    return Leaderboard(
        {name: tuple(_entries(name, files[name], limit)) for name in wanted},
        tuple(name for name in files if name not in CATEGORIES),
    )


def _entries(category: str, path: Path, limit: int | None) -> Iterator[LeaderboardEntry]:
    answers = {}
    needs_answers = LeaderboardEntry("", category, (), (), ()).kind in {"one", "several"}
    if needs_answers:
        beside = path.parent / "possible_answer" / path.name
        if not beside.is_file():
            raise ResultsFileError(f"{beside} is missing: the answers lie in a folder beside the questions")
        answers = {identifier: truth for _, identifier, truth in _lines(beside, ("id", "ground_truth"))}
    for number, (line, identifier, turns, functions) in enumerate(
        _lines(path, ("id", "question", "function"))
    ):
        if number == limit:
            return
        place = f"{path}, line {line}"
        try:
            messages = tuple(
                {"role": str(message["role"]), "content": str(message["content"])} for message in turns[0]
            )
            described = tuple(functions if isinstance(functions, list) else [functions])
            expected = (
                tuple(
                    {name: _choices(values) for name, values in call.items()} for call in answers[identifier]
                )
                if needs_answers
                else ()
            )
            names = [function["name"] for function in described]
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise ResultsFileError(
                f"{place}: {identifier} is not of the leaderboard's format: {error!r}"
            ) from None
        if strange := [name for call in expected for name in call if name not in names]:
            raise ResultsFileError(
                f"{place}: the answer of {identifier} calls {strange[0]}, which it does not have"
            )
        yield LeaderboardEntry(str(identifier), category, messages, described, expected)


def _choices(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the acceptable values of each argument, a single one as a list."""
    return {key: value if isinstance(value, list) else [value] for key, value in values.items()}


def _lines(path: Path, keys: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return the number of each line, and its values of these keys."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsFileError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):  # a string may contain other line breaks
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            yield (number, *(value[key] for key in keys))
        except (ValueError, LookupError, TypeError) as error:
            raise ResultsFileError(
                f"{path}, line {number}: not a JSON object with {', '.join(keys)} ({error!r})"
            ) from None
