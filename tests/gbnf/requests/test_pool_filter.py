"""The pool filter: laws over random pools and requests, then tables of requests."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.requests.phrases import PhraseMatcher, without_paths
from gbnf.requests.pool_filter import filter_pool
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, TOPIC_PHRASES, Provider
from support.pools import BUNDLED

BY_NAME = {tool.name: tool for tool in BUNDLED}


def make_tool(name: Any, **offer: Any) -> Tool:
    return Tool.from_mapping({"name": name, "args": {}, "offer": offer})


MORE = (
    make_tool("find_files_notion"),
    make_tool("read_files_google_workspace"),
    make_tool("send_messages_notion", markers=["never said"]),
    make_tool("edit_page", after=["find_files_notion", "send_messages_notion"], markers=["page"]),
    make_tool("publish_page", after=["edit_page"]),
    make_tool("loyal", always=True, markers=["never said"]),
    make_tool(
        "back", markers=["put … back", "here"], not_in=["here and there", "put … back up", "put them back"]
    ),
)
pools = st.lists(st.sampled_from([*BUNDLED, *MORE]), unique=True)
phrases = st.sampled_from(
    [
        "find", "google", "google photos", "drive", "gmail", "notion", "page", "web page", "near me", "qui",
        "vicino", "undo", "annulla", "/srv/undo", "https://notion.so/x", ".", ",", "qualcosa", "il", "l'",
        "google drive", "about", "in my drive", "notion page", "put", "back", "back up", "it", "here",
        "and there",
    ]
)  # fmt: skip
queries = st.lists(phrases | st.text(max_size=6), max_size=8).map(" ".join)


@given(pools, queries)
def test_what_is_kept_keeps_its_order_and_the_rest_has_reasons(pool: Any, query: Any) -> None:
    selection = filter_pool(pool, query)
    assert list(selection.kept) == [tool for tool in pool if tool not in selection.dropped]
    assert set(selection.dropped) <= set(pool)
    assert all(selection.dropped.values())
    assert bool(selection.kept) == bool(pool)


@given(pools, queries)
def test_the_prerequisites_of_what_is_kept_are_kept(pool: Any, query: Any) -> None:
    kept = {tool.name for tool in filter_pool(pool, query).kept}
    for tool in pool:
        if tool.name in kept:
            assert {each.name for each in pool} & set(tool.offer.after) <= kept


@given(pools, queries)
def test_filtering_twice_changes_nothing(pool: Any, query: Any) -> None:
    kept = filter_pool(pool, query).kept
    assert filter_pool(kept, query).kept == kept


@given(pools, queries, st.text("bcdfglmz ,;", max_size=20))
def test_irrelevant_words_change_nothing(pool: Any, query: Any, noise: Any) -> None:
    assert filter_pool(pool, f"{query} ; {noise}").kept == filter_pool(pool, query).kept


@given(pools, queries)
def test_case_and_accents_do_not_count(pool: Any, query: Any) -> None:
    accented = "".join(char + "\u0301" if char in "aeiou" else char for char in query.upper())
    # upper case may lengthen letters (ß), and accents may fall on other letters: only Latin text is asked for
    if query.isascii() and "://" not in query:
        assert filter_pool(pool, accented).kept == filter_pool(pool, query).kept


@given(pools, queries)
def test_a_tool_is_replaced_only_by_a_variant_that_is_kept(pool: Any, query: Any) -> None:
    selection = filter_pool(pool, query)
    for tool, reason in selection.dropped.items():
        if "replaces it" in reason:
            assert any(kept.name.startswith(tool.name + "_") for kept in selection.kept)


@given(pools, queries)
def test_a_tool_is_dropped_only_if_a_provider_is_named(pool: Any, query: Any) -> None:
    """A name alone brings variants and takes nothing away."""
    nameless = {suffix: Provider(each.names + each.places) for suffix, each in PROVIDERS.items()}
    full = set(filter_pool(pool, query, providers=nameless).kept)
    variants = {tool.name for tool in full}
    twins = {
        make_tool for make_tool in full if any(make_tool.name + suffix in variants for suffix in PROVIDERS)
    }
    dropped = full - set(filter_pool(pool, query).kept)
    assert dropped <= twins
    if not any(place in query for each in PROVIDERS.values() for place in each.places):
        assert not dropped


@given(st.text(max_size=60), st.text(max_size=10))
def test_any_text_can_be_searched(text: Any, marker: Any) -> None:
    found = PhraseMatcher([marker])
    assert found.find_longest(text) <= found.find_all(text) <= {marker}
    without_paths(text)


words = st.sampled_from(["put", "it", "back", "here", "and", "there", "up", ",", "/srv/x", "notes.md"])
texts = st.lists(words, max_size=9)


@given(texts, texts, st.lists(texts.map(" ".join), max_size=4))
def test_find_longest_ignores_markers_inside_longer_ones(before: Any, after: Any, markers: Any) -> None:
    text = " ".join([*before, "here", *after])
    alone = PhraseMatcher(markers)
    assert alone.find_all(text) == {
        each for marker in markers for each in PhraseMatcher([marker]).find_all(text)
    }
    assert alone.find_longest(text) <= alone.find_all(text)
    assert bool(alone.find_longest(text)) == bool(alone.find_all(text))
    if "/srv/x" not in text and "notes.md" not in text:  # a path is found by no marker
        assert PhraseMatcher([*markers, text]).find_longest(text) == {text}


@given(
    texts.map(" ".join), st.lists(texts.map(" ".join), max_size=3), st.lists(texts.map(" ".join), max_size=3)
)
def test_others_only_take_away(text: Any, markers: Any, others: Any) -> None:
    with_others = PhraseMatcher(markers, others).find_longest(text)
    assert with_others <= PhraseMatcher(markers).find_all(text) - set(others)
    if not PhraseMatcher(others).find_all(text):
        assert with_others == PhraseMatcher(markers).find_longest(text)
    assert not PhraseMatcher(markers, [text]).find_longest(text) or "/srv/x" in text or "notes.md" in text


@given(texts, texts, texts)
def test_a_gap_is_up_to_three_words_of_one_clause(before: Any, between: Any, after: Any) -> None:
    found = PhraseMatcher(["open … shut"]).find_all(" ".join([*before, "open", *between, "shut", *after]))
    assert bool(found) == (len(between) <= 3 and "," not in between)


@given(st.text(st.characters(categories=["L", "Zs"]), max_size=30), st.sampled_from(["NFC", "NFD"]))
def test_how_a_letter_is_encoded_does_not_count(text: Any, form: Any) -> None:
    assert PhraseMatcher([text]).find_all(unicodedata.normalize(form, text)) == PhraseMatcher(
        [text]
    ).find_all(text)


def test_a_long_run_of_combining_marks_is_read() -> None:
    """Sorted as NFKD wants it, in time that grows with the square, this would take minutes."""
    query = "an" + "\u0301\u0316" * 100_000 + "nulla"
    assert "undo_last_turn" in names(query)


def names(query: Any, pool: Any = BUNDLED) -> set[str]:
    return {tool.name for tool in filter_pool(pool, query).kept}


@pytest.mark.parametrize(
    ("query", "undo", "location", "google"),
    [
        ("", 0, 0, 0),
        ("qua e là", 0, 0, 0),
        ("find a bar near me", 0, 1, 0),
        ("un bar qui vicino", 0, 1, 0),
        ("Annulla!", 1, 0, 0),
        ("l'annulla", 1, 0, 0),
        ("l’annulla", 1, 0, 0),
        ("undone, undoing", 0, 0, 0),
        ("roll-back, please", 1, 0, 0),
        ("roll, back", 0, 0, 0),
        ("undo/redo", 1, 0, 0),
        ("“undo”", 1, 0, 0),
        ("read /srv/undo", 0, 0, 0),
        ("read (/srv/undo).", 0, 0, 0),
        ("read '/srv/my undo/x'", 0, 0, 0),
        (r"read /srv/my\ undo/x", 0, 0, 0),
        ("read ./undo and ../here", 0, 0, 0),
        (r"read C:\here\undo", 0, 0, 0),
        (r"read \\server\here", 0, 0, 0),
        ("read docs/undo.txt", 0, 0, 0),
        ("read docs/undo/", 0, 0, 0),
        ("read undo.txt", 0, 0, 0),
        ("read undo.txt here", 0, 1, 0),
        ("read file:///srv/undo", 0, 0, 0),
        ("open google.com/x", 0, 0, 1),
        ("mail ann@gmail.com", 0, 0, 0),
        ("my google photos", 0, 0, 0),
        ("google photos on google", 0, 0, 1),
        ("my hard drive", 0, 0, 0),
    ],
)  # fmt: skip
def test_markers_in_requests(query: Any, undo: Any, location: Any, google: Any) -> None:
    kept = names(query)
    assert ("undo_last_turn" in kept) == bool(undo)
    assert ("request_location_from_user" in kept) == bool(location)
    assert ("find_files_google_workspace" in kept) == bool(google)
    assert ("find_files" in kept) == (google < 2)  # the canonical twin is dropped if the provider is named


@pytest.mark.parametrize(
    "query",
    [
        "search Google Drive",
        "google/drive",
        "open https://drive.google.com/x",
        "find the budget in my drive",
        "find the budget on our Drive",
        "trova il bilancio nel mio drive",
        "find the Google Doc about Rome",
        "are there files called rome in google docs",
        "list the gdocs",
    ],
)
def test_a_variant_replaces_its_twin_if_the_provider_is_named(query: str) -> None:
    kept = names(query)
    assert "find_files_google_workspace" in kept
    assert "find_files" not in kept


@pytest.mark.parametrize(
    "query",
    [
        "find my notes about the drive to Rome",
        "find the note about our hotel on my drive to Rome",
        "list the files on my drive D",
        "search my notes for the word Google",
        "trova le note su Gmail e Outlook",
        "find my notes about Google Drive",
        "which of my files mentions Google Docs?",
        "trova i file che parlano di Google Drive",
        "Drive safely! find the file directions.txt",
        "search google",
        "cerca su drive",
        "copy the budget from my drive to notes.txt",
    ],
)
def test_a_word_that_only_may_mean_a_provider_brings_its_variant_and_drops_nothing(query: str) -> None:
    assert {"find_files", "find_files_google_workspace"} <= names(query)


@pytest.mark.parametrize(
    ("query", "notion", "base"),
    [
        ("read page 3 of report.pdf", 1, 1),
        ("I have no notion of what is in rome.md", 1, 1),
        ("what do my notes on Notion say?", 1, 1),
        ("read the page about notion pages", 1, 1),
        ("read the page Rome in Notion", 1, 0),
        ("read https://www.notion.so/rome", 1, 0),
        ("leggi la pagina Notion su Roma", 1, 0),
        ("read my home page", 0, 1),
        ("read rome.md", 0, 1),
    ],
)
def test_notion_is_a_provider_only_if_named_as_one(query: str, notion: int, base: int) -> None:
    tools = ("read_files", "write_files")
    pool = [make_tool(name + suffix) for name in tools for suffix in ("", "_notion")]
    expected = {
        name + suffix for name in tools for suffix, wanted in (("", base), ("_notion", notion)) if wanted
    }
    assert names(query, pool) == expected


@pytest.mark.parametrize(
    "query",
    [
        "take it back", "take that back", "please take back what you did", "put the file back",
        "put my old notes back", "put notes/rome.md back", "put everything back where it was",
        "put it back", "restore the files you deleted", "can you restore notes/rome.md?",
        "bring my notes back", "roll that back", "roll the last change back", "reverse what you just did",
        "reverse the last step", "I want my files back", "can I get notes/rome.md back?",
        "I want it back to how it was", "reverse your previous step", "voglio disfare l'ultimo passo",
        "riporta tutto a posto", "give me my notes back", "get the files back", "I'd like that undone",
        "cancel the last change", "cancel that", "make it as it was before", "go back one step", "Ctrl-Z",
        "annullalo", "puoi annullarla?", "annullami l'ultima cosa", "annulli l'ultima operazione",
        "ripristinali", "vorrei ripristinarle", "ripristina i file che hai cancellato", "disfalo",
        "disfai tutto", "vorrei disfare quello che hai fatto", "revoca l'ultima modifica",
        "rimetti a posto", "rimetti tutto com'era prima", "rimettilo dov'era", "puoi rimetterli a posto?",
        "torna come prima", "riporta tutto com'era", "riportali com'erano", "rivoglio i miei file",
        "ridammi le note", "recupera i file che hai cancellato", "cancella l'ultima operazione",
        "fai un passo indietro",
    ],
)  # fmt: skip
def test_wordings_that_take_the_last_turn_back(query: str) -> None:
    assert "undo_last_turn" in names(query)


@pytest.mark.parametrize(
    "query",
    [
        "when do I go back to work?", "remind me to get back to Anna", "when do I get back home?",
        "I want to go back to Rome", "get me back to the list", "back up my notes",
        "put my notes in order and back up the rest", "put the notes, then come back", "put it back-up",
        "send the report back to Marco", "create a folder for the restored paintings",
        "create the folder backups", "recover the password of my account",
        "write the list in reverse order", "cancel that meeting", "cancel my subscription",
        "the list of undone tasks", "what was it like before?", "indica la via per tornare a casa",
        "com'era il tempo ieri?", "quando torna Anna?", "recupera le note su Roma",
        "cancella il file rome.md", "cancella la riunione", "metti le note a posto",
        "leggi il disfacimento.txt", "rimettersi in forma", "la riunione è stata annullata",
        "come prima cosa, leggi", "riporta i totali nel file conti.csv",
        "aggiungi in calendario 'disfare' il 1 febbraio",
    ],
)  # fmt: skip
def test_wordings_that_take_nothing_back(query: str) -> None:
    assert "undo_last_turn" not in names(query)


@pytest.mark.parametrize(
    "query",
    [
        "where's the nearest pharmacy?", "find the closest pharmacy", "the museum closest to me",
        "restaurants in my area", "a bar close by", "what is around me?", "cafés near us",
        "what's my current location", "which city am I in?", "in what place am I right now?",
        "how far is the station from me?", "my coordinates", "la farmacia più prossima",
        "tell me where I am", "where are we?", "find a bar in this neighborhood",
        "a bakery within walking distance", "in the vicinity", "Dov'è la farmacia più vicina?",
        "qual è il ristorante più vicino", "farmacie vicine", "ristoranti vicini",
        "ristoranti nelle vicinanze", "trova un bar in zona", "che c'è da queste parti?",
        "un bar nei paraggi", "dove mi trovo?", "dove siamo?", "in che città sono",
        "cerca un cinema nella mia zona", "un hotel qua vicino", "bar a due passi",
        "qual è la mia posizione attuale?", "tell anna to come to where I am",
    ],
)  # fmt: skip
def test_wordings_that_need_the_place_of_the_person(query: str) -> None:
    assert "request_location_from_user" in names(query)


@pytest.mark.parametrize(
    "query",
    [
        "the nearest date", "round it to the nearest integer", "round 12.34 to the nearest 10",
        "which event is closest to Friday?", "find the closest match", "write to my closest friends",
        "the nearest deadline", "around five o'clock", "near the end of notes.txt", "close the file",
        "a summary of the area of research", "in the area of finance", "my position on taxes",
        "where is everything", "where are my notes?", "which meeting am I in?", "la data più vicina",
        "l'intero più vicino", "gli impegni più vicini", "scrivi ai vicini", "scrivi al mio vicino",
        "invita la vicina di casa", "dove sono le note su Roma?", "dove sono finiti i file?",
        "dove siamo rimasti?", "avvicinare", "qua e là",
    ],
)  # fmt: skip
def test_wordings_that_need_no_place_of_the_person(query: str) -> None:
    assert "request_location_from_user" not in names(query)


def test_three_canonical_tools_do_without_new_ones() -> None:
    request = BY_NAME["request_new_executor"]
    tools = [BY_NAME["compute"], BY_NAME["get_now"], BY_NAME["read_files"]]
    others = [BY_NAME["find_files_google_workspace"], BY_NAME["undo_last_turn"]]
    assert request in filter_pool([request, *tools[:2], *others], "undo google").kept
    assert request not in filter_pool([request, *tools], "").kept


def test_a_filter_that_would_empty_the_pool_says_so() -> None:
    pool = (BY_NAME["undo_last_turn"], BY_NAME["find_files_google_workspace"])
    selection = filter_pool(pool, "hello")
    assert selection.kept == pool
    assert not selection.dropped
    assert "drops none" in selection.notice
    assert filter_pool((), "hello").kept == ()


def test_a_new_provider_costs_one_line() -> None:
    providers = {**PROVIDERS, "_acme": Provider(("acme",), places=("acme cloud",))}
    pool = (make_tool("find_files"), make_tool("find_files_acme"))
    base, variant = "find_files", "find_files_acme"
    for query, kept in (("on Acme Cloud", {variant}), ("on Acme", {base, variant}), ("on disk", {base})):
        assert {each.name for each in filter_pool(pool, query, providers=providers).kept} == kept
    for topic in TOPIC_PHRASES:
        assert len(filter_pool(pool, f"{topic} Acme Cloud", providers=providers).kept) == 2


def test_a_provider_may_be_what_was_a_foreign_phrase() -> None:
    providers = {**PROVIDERS, "_photos": Provider(("google photos",))}
    pool = (make_tool("find"), make_tool("find_photos"))
    assert filter_pool(pool, "my google photos", providers=providers).kept == pool


def test_the_longer_marker_of_another_provider_shadows_the_shorter() -> None:
    providers = {"_google_workspace": Provider(("google",)), "_photos": Provider((), ("google photos",))}
    pool = (make_tool("find"), make_tool("find_google_workspace"), make_tool("find_photos"))
    kept = filter_pool(pool, "in Google Photos", providers=providers, unrelated_phrases=()).kept
    assert [tool.name for tool in kept] == ["find_photos"]


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("put it back", 1),
        ("put it back up", 0),
        ("put it back up, then put it back", 1),
        ("here", 1),
        ("here and there", 0),
        ("here and there, and here", 1),
        ("put, back", 0),
        ("put it down and run back", 0),
        ("put them back", 0),
        ("put them back, and put it back", 1),
    ],
)
def test_a_marker_does_not_count_in_phrases_that_mean_something_else(query: str, kept: int) -> None:
    assert len(filter_pool([MORE[-1], BY_NAME["compute"]], query).kept) == 1 + kept


def test_scripts_without_spaces_match_by_character() -> None:
    pool = (make_tool("undo", markers=["取消"]), make_tool("other"))
    assert len(filter_pool(pool, "请取消上一步").kept) == 2
    assert len(filter_pool(pool, "请继续").kept) == 1


@pytest.mark.parametrize(
    ("query", "offered"),
    [
        ("delete the file old.txt", {"delete_files"}),
        ("get rid of the logs", {"delete_files"}),
        ("take the old logs away", {"delete_files"}),
        ("what is left if I take 348 away from 1200?", set()),
        ("elimina i file csv", {"delete_files"}),
        ("which csv files are in the folder data?", set()),
        ("find the text files in trips and tell me what they contain", set()),
        ("let me know what time it is", set()),
        ("write anna@example.com that we are late", {"send_messages"}),
        ("email the list to Anna", {"send_messages"}),
        ("avvisa marta@example.com", {"send_messages"}),
        ("what is 12*31?", set()),
        ("tell bob@example.com to delete old.txt and write 'x' to y.txt", {"send_messages"}),
        ("tell bob to read a.txt, delete old/a.txt and close the door", {"send_messages"}),
        ("email bob@example.com that he should delete a.txt", {"send_messages"}),
        ("mail bob@example.com: the draft is done, please remove a.txt", {"send_messages"}),
        ("send bob@example.com a mail saying delete a.txt", {"send_messages"}),
        ("remind me to delete old.txt", {"send_messages"}),
        ("add a reminder to delete the backup on Friday", {"send_messages"}),
        ("di' a bob@example.com di cancellare a.txt", {"send_messages"}),
        ("avvisa marco che deve eliminare a.txt", {"send_messages"}),
        ("ask bob@example.com to come, and delete a.txt", {"send_messages", "delete_files"}),
        ("mail bob@example.com: hi. Then delete a.txt", {"send_messages", "delete_files"}),
        ("email the draft to bob@example.com and delete it", {"send_messages", "delete_files"}),
        ("tell bob@example.com that I'm late and delete a.txt", {"send_messages", "delete_files"}),
        ("ricorda ad Anna di venire. Poi cancella b.txt", {"delete_files"}),
        ("tell me to delete a.txt", {"delete_files"}),
        ("ask Bob to email me the report", {"send_messages"}),
        ("ricorda ad Anna di mandarmi il file", {"send_messages"}),
        (
            "ask bob@example.com to undo it and delete a.txt. Then remove b.txt",
            {"send_messages", "delete_files"},
        ),
    ],
)
def test_what_deletes_or_sends_is_offered_if_the_request_says_so(query: str, offered: set[str]) -> None:
    kept = {tool.name for tool in filter_pool(BUNDLED, query).kept}
    assert kept & {"delete_files", "send_messages"} == offered
