"""Append to a file so that nobody ever reads half of what was appended."""

from __future__ import annotations

import os


def append_whole(descriptor: int, data: bytes) -> None:
    """Append data to a file that nobody else writes to, all of it or, if the disk is full, nothing.

    Raises OSError.
    """
    before, written = os.fstat(descriptor).st_size, 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except BaseException:
        os.ftruncate(descriptor, before)
        raise
