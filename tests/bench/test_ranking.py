"""The bench of the ranking: its sets and its numbers, over a leaderboard of two requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from gbnf.requests.ranking import BM25
from gbnf.tools import Tool
from ranking import DEVELOPMENT, HELD_OUT, PlainBM25, bound, main, recall, request_set


def function(name: str, description: str) -> dict[str, Any]:
    properties = {"place": {"type": "string", "description": "where"}}
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "dict", "properties": properties},
    }


WEATHER = function("get_weather", "The forecast of a place.")
SONG = function("play_song", "Play a song.")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A leaderboard of all categories, each with a request for the weather and one in another script."""
    (tmp_path / "possible_answer").mkdir()
    for category in {*HELD_OUT, *(name for names in DEVELOPMENT for name in names)}:
        first = "" if category in HELD_OUT else "dev_"
        functions = [{**each, "name": first + each["name"]} for each in (WEATHER, SONG)]
        asked = ["forecasts for Rome", "天気"]
        questions = [
            {
                "id": f"{category}_{index}",
                "question": [[{"role": "system", "content": "song"}, {"role": "user", "content": text}]],
                "function": functions,
            }
            for index, text in enumerate(asked)
        ]
        answers = [
            {"id": f"{category}_{index}", "ground_truth": [{functions[0]["name"]: {"place": ["Rome"]}}]}
            for index in range(len(asked))
        ]
        file = f"BFCL_v4_{category}.json"
        (tmp_path / file).write_text("\n".join(map(json.dumps, questions)), "utf-8")
        (tmp_path / "possible_answer" / file).write_text("\n".join(map(json.dumps, answers)), "utf-8")
    return tmp_path


class Reversed:
    """Ranks the last tool first."""

    def rank(self, _query: str, tools: Sequence[Tool]) -> Sequence[float]:
        return range(len(tools))


def test_the_recall_and_the_bound(data: Path) -> None:
    given = request_set(HELD_OUT, data)
    assert [tool.name for tool in given.pool] == ["get_weather", "play_song"]
    assert [query for query, _ in given.requests] == ["forecasts for Rome", "天気"]
    assert recall(given, Reversed(), (1, 2)) == [0, 1]
    assert recall(given, BM25, (1, 2)) == [1, 1]
    assert bound(given) == 0.5
    weather, song = PlainBM25().rank("the weather", given.pool)
    assert weather > song >= 0


def test_functions_are_left_out_with_their_requests(data: Path) -> None:
    given = request_set(HELD_OUT, data, without={"get_weather"})
    assert ([tool.name for tool in given.pool], given.requests) == (["play_song"], ())


def test_it_prints_a_row_for_each_ranking(data: Path) -> None:
    app = Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--data", str(data)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert done.output.count("gbnf.BM25") == done.output.count("plain BM25") == 3
    assert "held out: live_multiple" in done.output
