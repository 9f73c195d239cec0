"""Help texts: from the lines of a source file to those of a terminal."""

from __future__ import annotations

from inspect import cleandoc

EXIT_CODES = """\b
Exit codes:
    0  success: the request was answered, the text accepted
    1  failure: the run ended without an answer of its own, or the text was rejected
    2  usage error
    3  invalid input file: a manifest, a schema, a grammar
    4  a model, a server or the machine does not work
  130  interrupted"""


def reflow(*texts: str | None) -> str:
    """Join the lines of each paragraph, except those that begin with \\b."""
    paragraphs = "\n\n".join(cleandoc(text or "") for text in texts).split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("\b") else " ".join(paragraph.split()) for paragraph in paragraphs
    )
