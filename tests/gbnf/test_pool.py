"""The pool filter: laws over random pools and requests, then tables of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.manifests import Executor, load_manifests
from gbnf.markers import Markers, without_paths
from gbnf.pool import filter_pool
from gbnf.providers import PROVIDERS

SHIPPED = load_manifests(Path(__file__).parents[2] / "manifests")
BY_NAME = {executor.name: executor for executor in SHIPPED}


def tool(name: Any, **offer: Any) -> Executor:
    return Executor.from_mapping({"name": name, "args": {}, "offer": offer})


MORE = (
    tool("find_files_notion"),
    tool("read_files_google_workspace"),
    tool("send_messages_notion", markers=["never said"]),
    tool("loyal", always=True, markers=["never said"]),
)
pools = st.lists(st.sampled_from([*SHIPPED, *MORE]), unique=True)
phrases = st.sampled_from(
    [
        "find", "google", "google photos", "drive", "gmail", "notion", "page", "web page", "near me", "qui",
        "vicino", "undo", "annulla", "/srv/undo", "https://notion.so/x", ".", ",", "qualcosa", "il", "l'",
    ]
)  # fmt: skip
queries = st.lists(phrases | st.text(max_size=6), max_size=8).map(" ".join)


@given(pools, queries)
def test_what_is_kept_keeps_its_order_and_the_rest_has_reasons(pool: Any, query: Any) -> None:
    selection = filter_pool(pool, query)
    assert list(selection.kept) == [executor for executor in pool if executor not in selection.dropped]
    assert set(selection.dropped) <= set(pool)
    assert all(selection.dropped.values())
    assert bool(selection.kept) == bool(pool)


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
def test_a_twin_goes_only_for_a_variant_that_stays(pool: Any, query: Any) -> None:
    selection = filter_pool(pool, query)
    for executor, reason in selection.dropped.items():
        if "takes its place" in reason:
            assert any(kept.name.startswith(executor.name + "_") for kept in selection.kept)


@given(st.text(max_size=60), st.text(max_size=10))
def test_any_text_can_be_searched(text: Any, marker: Any) -> None:
    found = Markers([marker])
    assert found.longest_in(text) <= found.all_in(text) <= {marker}
    without_paths(text)


def names(query: Any, pool: Any = SHIPPED) -> set[str]:
    return {executor.name for executor in filter_pool(pool, query).kept}


@pytest.mark.parametrize(
    ("query", "undo", "location", "google"),
    [
        ("", 0, 0, 0),
        ("cerca qualcosa", 0, 0, 0),
        ("qua e là", 0, 0, 0),
        ("find a bar near me", 0, 1, 0),
        ("where is everything", 0, 0, 0),
        ("un bar qui vicino", 0, 1, 0),
        ("QUI", 0, 1, 0),
        ("nei dintorni", 0, 1, 0),
        ("Annulla!", 1, 0, 0),
        ("ànnullà", 1, 0, 0),
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
        ('read "/srv/my undo/x"', 0, 0, 0),
        (r"read /srv/my\ undo/x", 0, 0, 0),
        ("read ./undo and ../here", 0, 0, 0),
        ("read ~/here", 0, 0, 0),
        (r"read C:\here\undo", 0, 0, 0),
        (r"read \\server\here", 0, 0, 0),
        ("read docs/undo.txt", 0, 0, 0),
        ("read docs/undo/", 0, 0, 0),
        ("read docs/undo/here", 0, 0, 0),
        ("read undo.txt", 0, 0, 0),
        ("read undo.txt here", 0, 1, 0),
        ("read file:///srv/undo", 0, 0, 0),
        ('write "undo" to a note', 1, 0, 0),
        ("search google", 0, 0, 1),
        ("search Google Drive", 0, 0, 1),
        ("cerca su drive", 0, 0, 1),
        ("open https://drive.google.com/x", 0, 0, 1),
        ("open google.com/x", 0, 0, 1),
        ("google/drive", 0, 0, 1),
        ("read /srv/google/drive", 0, 0, 0),
        ("mail ann@gmail.com", 0, 0, 0),
        ("my google photos", 0, 0, 0),
        ("google photos on google", 0, 0, 1),
        ("googled it", 0, 0, 0),
        ("my hard drive", 0, 0, 0),
    ],
)  # fmt: skip
def test_markers_in_requests(query: Any, undo: Any, location: Any, google: Any) -> None:
    kept = names(query)
    assert ("undo_last_turn" in kept) == bool(undo)
    assert ("request_location_from_user" in kept) == bool(location)
    assert ("find_files_google_workspace" in kept) == bool(google)
    assert ("find_files" in kept) != bool(google)  # the canonical twin goes where its variant is asked for


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
    assert "whole" in selection.notice
    assert filter_pool((), "hello").kept == ()


def test_a_new_provider_costs_one_line() -> None:
    providers = {**PROVIDERS, "_acme": ("acme", "acme cloud")}
    pool = (tool("find_files"), tool("find_files_acme"))
    assert [kept.name for kept in filter_pool(pool, "on Acme", providers=providers).kept] == [
        "find_files_acme"
    ]
    assert [kept.name for kept in filter_pool(pool, "on disk", providers=providers).kept] == ["find_files"]


def test_the_longer_marker_of_another_provider_shadows_the_shorter() -> None:
    providers = {"_google_workspace": ("google",), "_photos": ("google photos",)}
    pool = (tool("find"), tool("find_google_workspace"), tool("find_photos"))
    kept = filter_pool(pool, "in Google Photos", providers=providers, foreign_phrases=()).kept
    assert [executor.name for executor in kept] == ["find_photos"]


def test_scripts_without_spaces_match_by_character() -> None:
    pool = (tool("undo", markers=["取消"]), tool("other"))
    assert len(filter_pool(pool, "请取消上一步").kept) == 2
    assert len(filter_pool(pool, "请继续").kept) == 1
