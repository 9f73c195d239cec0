"""Help texts, written in lines of a source file and shown in lines of a terminal."""

from __future__ import annotations

from inspect import cleandoc

EXIT_CODES = """\b
Exit codes:
    0  done: answered, accepted, written
    1  no: the run ended without an answer of its own, or the text was refused
    2  the command line is wrong
    3  an input file is wrong: a manifest, a schema, a grammar
    4  a model, a server or the machine is in the way
  130  interrupted"""


def reflow(*texts: str | None) -> str:
    """Join the lines of each paragraph, but for those that begin with \\b, whose lines stay as they are."""
    paragraphs = "\n\n".join(cleandoc(text or "") for text in texts).split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("\b") else " ".join(paragraph.split()) for paragraph in paragraphs
    )
