"""Language tags: regions don't count, and English stands in for what we have no words in."""

from __future__ import annotations

import pytest

from gbnf.contracts import Contract, text
from gbnf.tools.tool import primary_language, supported_language


@pytest.mark.parametrize(
    ("tag", "short", "language"),
    [("it", "it", "it"), ("it-IT", "it", "it"), ("it_CH", "it", "it"), ("en-GB", "en", "en"),
     ("pt-BR", "pt", "en"), ("ita", "ita", "en"), ("", "", "en"), ("zh-Hant-TW", "zh", "en")],
)  # fmt: skip
def test_tags(tag: str, short: str, language: str) -> None:
    assert (primary_language(tag), supported_language(tag, {"en", "it"})) == (short, language)


def test_a_contract_asks_in_the_language_of_a_region_too() -> None:
    contract = Contract(title=text(), body=text(rest=True))
    assert contract.prompt("it-IT") == contract.prompt("it_CH") == contract.prompt("it")
    assert contract.prompt("it") != contract.prompt("pt-BR") == contract.prompt("en")
