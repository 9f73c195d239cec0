"""The ranking: laws over random pools and requests, then tables of requests that have to find their tool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.errors import InvalidArgumentError
from gbnf.requests.phrases import plain_text
from gbnf.requests.pool_filter import BEST, Selection, best_first, filter_pool
from gbnf.requests.ranking import (
    BM25,
    asking_words,
    common_words,
    fits_none,
    has_content_of,
    is_about,
    request_language,
)
from gbnf.tools import FIND_TOOLS, OfferPolicy, Tool
from support.effort import scaled
from support.pools import BUNDLED


def make_tool(name: str, description: str = "", properties: Any = None, **offer: Any) -> Tool:
    args = {"type": "object", "properties": properties or {}}
    return Tool.from_mapping({"name": name, "description": description, "args": args, "offer": offer})


VOCABULARY = (
    "list read book flight weather forecast city user invoice send message folder chart price convert "
    "currency song play"
)
words = st.sampled_from(VOCABULARY.split())
names = st.lists(words, min_size=1, max_size=3).map("_".join)
tools = st.builds(
    make_tool,
    names,
    st.lists(words, max_size=8).map(" ".join),
    st.dictionaries(
        words, st.builds(lambda text: {"type": "string", "description": text}, words), max_size=3
    ),
)
pools = st.lists(tools, min_size=1, max_size=12, unique_by=lambda tool: tool.name)
queries = st.lists(
    words | st.sampled_from(["the", "8", '"the report"', "Il", "città", "qqq"]), max_size=8
).map(" ".join)
limits = st.integers(1, 14)
wanted = st.builds(make_tool, st.just("wanted"), always=st.just(True)) | st.builds(
    make_tool, st.just("marked"), markers=st.just(["price", "song"])
)


def assert_rank(ranked: Sequence[Tool], *first: str) -> None:
    assert [tool.name for tool in ranked[: len(first)]] == list(first)


@settings(max_examples=scaled(50))
@given(pools, wanted, queries, limits)
def test_the_limit_holds_and_every_other_tool_has_its_rank(
    pool: list[Tool], extra: Tool, query: str, limit: int
) -> None:
    unlimited = filter_pool([*pool, extra], query)
    selection = filter_pool([*pool, extra], query, limit=limit)
    assert list(selection.kept) == [tool for tool in [*pool, extra] if tool not in selection.dropped]
    assert set(selection.kept).isdisjoint(selection.dropped)
    assert all(selection.dropped.values())
    assert (extra in selection.kept) == (extra in unlimited.kept)
    assert sum(tool != extra for tool in selection.kept) == min(limit, len(pool))
    assert set(selection.outranked) == selection.dropped.keys() - unlimited.dropped.keys()
    for place, tool in enumerate(selection.outranked, limit + 1):
        assert f"{place}" in selection.dropped[tool].split(" of ")[0]


@given(pools, queries, limits)
def test_the_kept_tools_score_best(pool: list[Tool], query: str, limit: int) -> None:
    selection = filter_pool(pool, query, limit=limit)
    scores = dict(zip(pool, BM25.rank(query, pool), strict=True))
    ranked = [scores[tool] for tool in selection.outranked]
    assert ranked == sorted(ranked, reverse=True)
    assert not ranked or min(scores[tool] for tool in selection.kept) >= ranked[0]


@settings(max_examples=scaled(50))
@given(pools, wanted, queries, limits, st.floats(0.01, 1))
def test_a_margin_drops_only_what_scores_far_below_the_first(
    pool: list[Tool], extra: Tool, query: str, limit: int, margin: float
) -> None:
    given = [*pool, extra]
    without, selection = (filter_pool(given, query, limit=limit, margin=each) for each in (0.0, margin))
    assert set(selection.kept) <= set(without.kept)
    assert (extra in selection.kept) == (extra in without.kept)
    scores = dict(zip(pool, BM25.rank(query, pool), strict=True))
    best = max(scores.values())
    kept = [tool for tool in selection.kept if tool != extra]
    assert len(kept) >= min(BEST, limit, len(pool))
    for tool in set(without.kept) - set(selection.kept):
        assert scores[tool] < margin * best
        assert scores[tool] <= min(scores[each] for each in kept)
        assert "far below the first" in selection.dropped[tool]
    if best == 0:
        assert selection == without


def test_a_margin_leaves_what_fits_nearly_as_well() -> None:
    names = ("get_weather", "get_time", "get_price", "play_song", "roll_dice", "send_mail")
    pool = [make_tool(name) for name in names]

    def kept(query: str) -> list[str]:
        return [tool.name for tool in filter_pool(pool, query, limit=8, margin=0.3).kept]

    assert kept("the weather, please") == ["get_weather", "get_time", "get_price"]
    assert kept("the time, the price, the song and a mail") == [
        "get_time",
        "get_price",
        "play_song",
        "send_mail",
    ]
    assert kept("che ore sono?") == list(names)
    # find_tools would take the place of the only one
    assert [tool.name for tool in filter_pool(pool[:4], "the weather", limit=8, margin=0.3).kept] == [
        *names[:4]
    ]


@st.composite
def ordered_pools(draw: st.DrawFn) -> list[Tool]:
    """Pools in which tools come after earlier ones."""
    pool: list[Tool] = []
    for tool in draw(pools):
        names = [each.name for each in pool]
        after = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
        pool.append(replace(tool, offer=OfferPolicy(after=tuple(after))))
    return draw(st.permutations(pool))


@settings(max_examples=scaled(50))
@given(ordered_pools(), queries, limits)
def test_prerequisites_are_kept_besides_and_ranking_again_changes_nothing(
    pool: list[Tool], query: str, limit: int
) -> None:
    selection = filter_pool(pool, query, limit=limit)
    kept = {tool.name for tool in selection.kept}
    needed = {name for tool in selection.kept for name in tool.offer.after}
    assert needed <= kept
    assert len(kept - needed) <= limit
    assert len(kept) >= min(limit, len(pool))
    assert [tool for tool in pool if tool.name in kept] == list(selection.kept)
    assert filter_pool(selection.kept, query, limit=limit) == Selection(selection.kept)


@given(pools, queries, st.integers(0, 3))
def test_a_limit_that_all_tools_fit_changes_nothing(pool: list[Tool], query: str, more: int) -> None:
    assert filter_pool(pool, query, limit=len(pool) + more) == filter_pool(pool, query)


@settings(max_examples=scaled(50))
@given(pools, queries, st.integers(0, 12))
def test_an_irrelevant_tool_changes_no_score(pool: list[Tool], query: str, place: int) -> None:
    alien = make_tool("zyx_wvu", "Zyx wvu tsr. " * 20, {"uvw": {"type": "string"}})
    place = min(place, len(pool))
    scores = BM25.rank(query, [*pool[:place], alien, *pool[place:]])
    assert scores.pop(place) == 0
    assert scores == BM25.rank(query, pool)


@settings(max_examples=scaled(50))
@given(pools, queries, st.randoms())
def test_the_order_of_the_pool_changes_no_score(pool: list[Tool], query: str, random: Any) -> None:
    shuffled = random.sample(pool, len(pool))
    scores = dict(zip(shuffled, BM25.rank(query, shuffled), strict=True))
    assert [scores[tool] for tool in pool] == BM25.rank(query, pool)


@given(pools, queries)
def test_case_and_accents_change_no_score(pool: list[Tool], query: str) -> None:
    accented = "".join(char + "\u0301" if char in "AEIOU" else char for char in query.upper())
    assert BM25.rank(accented, pool) == BM25.rank(query, pool)


@settings(max_examples=scaled(50))
@given(pools, queries)
def test_tools_with_words_of_a_request_are_those_with_a_score(pool: list[Tool], query: str) -> None:
    for tool, score in zip(pool, BM25.rank(query, pool), strict=True):
        words = common_words(query, tool)
        assert bool(words) == (score > 0)
        assert {word.casefold() for word in words} <= set(re.findall(r"\w+", plain_text(query)))
        assert BM25.rank(" ".join(words), [tool])[0] > 0 or not words


@settings(max_examples=scaled(50))
@given(pools, st.data())
def test_a_name_finds_its_tool(pool: list[Tool], data: st.DataObject) -> None:
    tool = data.draw(st.sampled_from(pool))
    assert_rank(best_first(pool, tool.name), tool.name)
    assert tool in filter_pool(pool, f"Use {tool.name.upper()}, please.", limit=1).kept


@given(st.text(max_size=80), st.text(max_size=40))
def test_any_text_can_be_ranked(query: str, description: str) -> None:
    scores = BM25.rank(query, [make_tool("some_tool", description), FIND_TOOLS])
    assert all(0 <= score < 1e6 for score in scores)


def test_a_hostile_request_takes_bounded_time() -> None:
    """Each with 200,000 characters or more; unbounded, the stemmer or the quotes would take minutes."""
    for query in (
        '"' * 200_000,
        "ab" * 100_000,
        " ".join(map(str, range(50_000))),
        "a\u0301\u0316" * 100_000,
    ):
        assert len(BM25.rank(query, BUNDLED)) == len(BUNDLED)


OFFICE = (
    make_tool("list_invoices", "Return the invoices of a customer."),
    make_tool("getUserInfo", "Profile of an account."),
    make_tool(
        "plot", "Draw a diagram.", {"series": {"type": "string", "description": "Numbers to visualize"}}
    ),
    make_tool("thermostat", "Climate.", {"mode": {"enum": ["heating", "cooling"]}}),
    make_tool("conta_parole", "Conta le parole di un testo."),
    make_tool("prenota", "Prenota un tavolo in un ristorante della città."),
    make_tool("manda", "Invia un messaggio a una persona."),
    Tool.from_mapping(
        {
            "name": "fatture",
            "description": {"en": "Bills of a month.", "it": "Le fatture di un mese."},
            "args": {},
        }
    ),
)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("I need the invoice of the customer Rossi", "list_invoices"),
        ("customers' invoicing", "list_invoices"),
        ("info about a user", "getUserInfo"),
        ("who owns these accounts?", "getUserInfo"),
        ("a visualization of some numbers", "plot"),
        ("turn on the heating", "thermostat"),
        ("quante parole ci sono in questo testo?", "conta_parole"),
        ("vorrei prenotare dei tavoli", "prenota"),
        ("un ristorante nelle citta vicine", "prenota"),
        ("inviare messaggi alle persone", "manda"),
        ("mostrami la fattura di questo mese", "fatture"),
        ("show me the bill of the month", "fatture"),
    ],
)
def test_requests_find_their_tools(query: str, name: str) -> None:
    assert_rank(best_first(OFFICE, query), name)


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("who won the world cup in 1998?", True),
        ("what is the number of the beast?", True),
        ("I need the invoice of the customer Rossi", False),
        ("turn on the heating", False),
        ("chi ha vinto il mondiale?", False),  # in another language than these tools
        ("1998", False),  # in no language
        ("ワールドカップの優勝者は", False),
        ("", False),
    ],
)
def test_what_fits_no_tool_is_known_in_the_tools_language_only(query: str, fits: bool) -> None:
    assert fits_none(query, OFFICE[:4]) is fits


@given(st.integers(0, 4), st.integers(0, 4))
def test_a_tool_that_requires_more_numbers_than_a_request_has_is_not_meant(required: int, said: int) -> None:
    names = [f"side{number}" for number in range(required)]
    numbers = {name: {"type": "number"} for name in names}
    args = {"type": "object", "properties": numbers, "required": names}
    area = Tool.from_mapping({"name": "area", "description": "Calculate the area of a figure.", "args": args})
    query = " and ".join(
        ["what is the area of a figure", *(f"a side of {number} m" for number in range(said))]
    )
    assert fits_none(query, [area]) is (said < required)
    is_given = 1 < required <= said
    assert is_about(query, [area]) is (False if said < required else is_given or None)


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("crea una cartella", "it"),
        ("leggi 'the little prince.txt'", "it"),
        ("read 'la dolce vita.txt'", "en"),
        ("open il/la/gli.txt", "en"),
        ("2**16", "en"),
        ("", "en"),
        ("フォルダ", "en"),
    ],
)
def test_the_language_of_a_request_is_one_that_tools_are_described_in(query: str, language: str) -> None:
    texts = {"en": "Create folders. Read and open files.", "it": "Crea cartelle. Legge file."}
    tools = [replace(make_tool("files"), descriptions=texts)]
    assert request_language(query, tools) == language
    assert request_language(query, [make_tool("files", "Create folders.")]) == "en"
    assert request_language(query, []) == "en"


def test_the_name_counts_more_than_the_description_and_that_more_than_arguments() -> None:
    pool = [
        make_tool("alpha", "Something else.", {"book": {"type": "string"}}),
        make_tool("beta", "Book something."),
        make_tool("book", "Something else."),
    ]
    assert_rank(best_first(pool, "I would like to book"), "book", "beta", "alpha")


def test_the_affinity_of_a_tool_finds_it_and_says_nothing_of_what_it_does() -> None:
    tools = [replace(make_tool("a"), affinity=("plumber",)), make_tool("b")]
    assert best_first(tools[::-1], "a plumber, please")[0].name == "a"
    assert common_words("a plumber, please", tools[0]) == ("plumber",)
    assert not common_words("a plumber, please", tools[0], of_purpose=True)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("what is 12*31?", "sums"),
        ("12 - 31", "sums"),
        ("18 % of 250", "sums"),
        ("quick question: 48 times 17?", "sums"),
        ("48 più 17", "sums"),
        ("what does notes/rome.md say?", "texts"),
        ("rome.md", "texts"),
        ("something for ann@example.com", "post"),
        ("2026-11-23, 17:30", "agenda"),
    ],
)
def test_what_a_request_contains_says_what_it_is_about(query: str, name: str) -> None:
    about = {
        "sums": "Calculate an expression.",
        "texts": "Show a file.",
        "post": "Deliver mail.",
        "agenda": "Fill a calendar.",
    }
    tools = [make_tool(key, text) for key, text in about.items()]
    assert best_first(tools, query)[0].name == name
    assert best_first(tools, f"plots, {query}")[0].name == name
    assert (
        best_first([*tools, make_tool("plots")], f"plots {query}")[0].name == "plots"
    )  # its words count more
    subject = [tool for tool in tools if tool.name == name]
    assert is_about(query, subject)
    music = [make_tool("x", "Play music.")]
    assert is_about("some music", music) is is_about("musica", music) is None
    assert is_about("hello there", tools) is False
    plumbing = [replace(make_tool("a"), affinity=("plumber", "water"))]
    assert is_about("the water is off", plumbing)
    assert is_about("hello there", plumbing) is False


def test_the_words_of_a_path_find_no_tool() -> None:
    tools = [make_tool("make_soup"), make_tool("b", "Read a file.")]
    assert best_first(tools, "what does soup/txt.md say?")[0].name == "b"


@pytest.mark.parametrize(
    ("query", "name", "asked"),
    [
        ("mail giulia the time", "send_messages", {"mail"}),
        ("find the csv files and put them into the folder old", "create_dirs", set()),  # where
        ("find a free slot and put it in my calendar", "create_events", {"in my calendar"}),
        ("find a free slot and put it in my calendar", "write_files", set()),  # where the phrase says
        ("put it in my calendar and save it in a.txt", "write_files", {"save"}),
        ("send anna@example.com what is in the report", "send_messages", {"send"}),  # not to where
        ("put the dentist on Friday at 9 on my calendar", "create_events", {"on my calendar"}),
        ("segna il dentista nell'agenda venerdì alle 9", "create_events", {"nell agenda"}),
        ("a.txt should read milk", "write_files", {"should contain"}),
        ("a.txt should read milk", "read_files", set()),
        ("I should read a.txt", "read_files", {"read"}),
        ("write 'hello' to a.txt", "send_messages", set()),  # no phrase goes across a quote
        ("write 'hello' to ann", "write_files", {"write"}),
        ("find all files and read them", "write_files", set()),  # one word of a phrase
        ("the list should be read", "write_files", set()),
        ("show me what every text file in drafts says", "write_files", set()),  # what is read, not what to do
        ("a text file in drafts that says hello", "write_files", {"text file"}),
        ("a text file b.txt with the contents of a.txt", "write_files", {"text file"}),
        ("delete it", "get_now", set()),
        ("read a.txt, but do not write or send anything", "write_files", set()),
        ("read a.txt, but do not write or send anything", "send_messages", set()),
        ("don't forget to mail giulia", "send_messages", {"mail"}),
        # what the person did
        ("where did I put my tickets?", "write_files", set()),
        ("mail ann a list of the notes we keep in wiki", "write_files", set()),
        ("keep a list of my books in books.md", "write_files", {"keep"}),
        ("all i remember is its name", "create_events", set()),
        ("what have we written so far?", "write_files", set()),
        ("dove ho messo il passaporto?", "write_files", set()),
        # what something is looked for
        ("propose 3 slots for an appointment with the dentist", "create_events", set()),
        ("trova un'ora libera per una riunione", "create_events", set()),
        ("find a free hour and book it for a meeting", "create_events", {"book", "meeting"}),
        ("schedule a call for a meeting", "create_events", {"schedule", "meeting"}),
        # what the person wants
        ("I need to write a note", "write_files", {"write", "note"}),
        ("I want to delete what I saved", "delete_files", {"delete"}),
        ("we have to mail giulia", "send_messages", {"mail"}),
        ("could we schedule a call with Ann tomorrow?", "create_events", {"schedule"}),
        ("please can I send a message", "send_messages", {"send", "message"}),
        ("I already wrote to giulia", "write_files", set()),
        ("trova i log in build e cancellali", "delete_files", {"cancellali"}),
        ("trova la nota e mandamela", "send_messages", {"mandamela"}),
        ("apri le note e leggile", "read_files", {"apri", "leggile"}),
        ("leggi i giornali di oggi", "get_now", set()),
        ("compila il modulo", "compute", set()),
        ("trova locali aperti", "find_files", {"trova"}),
        ("i file di aprile", "read_files", set()),
    ],
)
def test_the_words_that_ask_for_a_tool(query: str, name: str, asked: set[str]) -> None:
    words = next(words for tool, words in asking_words(query, BUNDLED).items() if tool.name == name)
    assert words == asked


@given(pools, queries)
def test_few_tools_are_asked_for_by_one_word_of_a_request(pool: list[Tool], query: str) -> None:
    asking = asking_words(query, pool)
    assert list(asking) == pool
    for tool, words in asking.items():
        assert words <= set(common_words(query, tool))
        assert all(sum(word in others for others in asking.values()) <= 2 for word in words)


@pytest.mark.parametrize(
    ("query", "content"),
    [
        ("send anna@example.com what is in the report", True),
        ("mandami il contenuto del diario", True),
        ("ruth@example.com needs the text of drafts/speech.md", True),
        ("write the text of the song in a.txt", False),  # not of a file
        ("create a folder, then tell me what's in the report", False),  # after another part
        ("send anna@example.com 'what is in the report'", False),
        ("send anna@example.com the report", False),
    ],
)
def test_a_request_for_the_content_of_something(query: str, content: bool) -> None:
    assert has_content_of(query) == content


def test_a_phrase_of_an_affinity_counts_where_a_request_has_all_of_it() -> None:
    phrased = replace(make_tool("a", "Add events."), affinity=("in my diary",))
    plain = replace(make_tool("b", "Find slots."), affinity=("diary", "my"))
    for query, first in (("lunch, in my diary", "a"), ("my diary, in short", "b")):
        scores = BM25.rank(query, [phrased, plain])
        assert ("a" if scores[0] > scores[1] else "b") == first


def test_a_quoted_word_counts_less() -> None:
    pool = [make_tool("send_report"), make_tool("add_task")]
    assert_rank(best_first(pool, 'add "send the report" as a task'), "add_task")


def test_the_reason_is_the_rank() -> None:
    pool = [make_tool(f"tool_{letter}") for letter in "abcdefghijklmnopqrstuvw"]
    selection = filter_pool(pool, "something", limit=2)
    assert [selection.dropped[pool[place - 1]].split()[1] for place in (3, 4, 11, 12, 13, 21, 22, 23)] == [
        "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd",
    ]  # fmt: skip
    assert selection.dropped[pool[2]] == "ranked 3rd of 23 for this request, and the limit is 2"


class Fixed:
    """A ranker that returns what it is told."""

    def __init__(self, *scores: float) -> None:
        self.scores = scores

    def rank(self, _query: str, _tools: Sequence[Tool]) -> Sequence[float]:
        return self.scores


def test_another_ranker_decides() -> None:
    pool = [make_tool("price"), make_tool("song"), make_tool("chart")]
    selection = filter_pool(pool, "the price of a chart", limit=2, ranker=Fixed(-3, 0.5, 0))
    assert [tool.name for tool in selection.kept] == ["song", "chart"]


@pytest.mark.parametrize("scores", [(), (1.0, 2.0), (1.0, 2.0, float("nan")), (1.0, 2.0, float("inf"))])
def test_a_ranker_that_does_not_score_each_tool_is_an_error(scores: tuple[float, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="for each of 3 tools"):
        filter_pool([make_tool("a"), make_tool("b"), make_tool("c")], "x", limit=1, ranker=Fixed(*scores))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_1(limit: int) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        filter_pool(BUNDLED, "x", limit=limit)
