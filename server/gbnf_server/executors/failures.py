"""Exceptions of executors, as text: one line for the model, a traceback for the executor's author."""

from __future__ import annotations

from pathlib import Path

LONGEST_TEXT = 4000
_LONGEST_TRACE = 16_000
_FRAMES = 200  # the last ones: infinite recursion has many


def describe_failure(name: str, code: str, error: BaseException) -> str:
    """Return the message of an exception of the tool `name`; `code` is the file whose line is shown."""
    import traceback  # noqa: PLC0415 - only where something went wrong

    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__, -_FRAMES) if frame.filename == code
    ]
    place = f" ({Path(code).name}, line {frames[-1].lineno})" if frames else ""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"'{name}' failed: {text[:LONGEST_TEXT]}{place}"


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an exception."""
    import traceback  # noqa: PLC0415 - as above

    return "".join(traceback.format_exception(error, limit=-_FRAMES))[-_LONGEST_TRACE:]
