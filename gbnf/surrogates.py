"""Surrogates: code points that Python strings and JSON escapes can contain, but UTF-8 cannot encode."""


def has_surrogate(text: str) -> bool:
    """Return whether a string contains a surrogate code point, paired or not."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def join_surrogates(text: str, errors: str = "strict") -> str:
    """Return a text with each surrogate pair replaced by the character that it encodes.

    A lone surrogate raises UnicodeDecodeError; with `errors` "replace" it becomes U+FFFD.
    """
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", errors)


def replace_lone_surrogates(text: str) -> str:
    """Return a text with U+FFFD for each lone surrogate, and surrogate pairs joined."""
    return join_surrogates(text, "replace")
