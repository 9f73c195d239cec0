"""Selection of a text by a language tag such as "it", "it-IT" or "it_CH"."""

from __future__ import annotations

from collections.abc import Container, Mapping


def primary_language(tag: str) -> str:
    """Return the language of a tag, without its region."""
    return tag.replace("_", "-").split("-", maxsplit=1)[0]


def supported_language(tag: str, languages: Container[str]) -> str:
    """Return the tag's language if it is one of `languages`, otherwise "en"."""
    return short if (short := primary_language(tag)) in languages else "en"


def localized_text(texts: Mapping[str, str], tag: str) -> str:
    """Return the text in the tag's language if there is one, otherwise in English."""
    return texts[supported_language(tag, texts)]
