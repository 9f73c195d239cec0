"""Language tags such as "it", "it-IT" and "it_CH", and which of the texts that we have they mean."""

from __future__ import annotations

from collections.abc import Container, Mapping


def primary_language(tag: str) -> str:
    """The language of a tag, without its region."""
    return tag.replace("_", "-").split("-", maxsplit=1)[0]


def supported_language(tag: str, languages: Container[str]) -> str:
    """The tag's language where it is one of `languages`, else English."""
    return short if (short := primary_language(tag)) in languages else "en"


def localized_text(texts: Mapping[str, str], tag: str) -> str:
    """The text in the tag's language where there is one, else in English."""
    return texts[supported_language(tag, texts)]
