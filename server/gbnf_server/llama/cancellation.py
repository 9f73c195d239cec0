"""Cancel a call of a model, also in the middle of an evaluation, from any thread.

llama.cpp asks a callback between two operations whether to go on. A callback in Python would have to wait for
the interpreter's lock each time, so it is C's `strlen`, of a text that is empty until the evaluation is to
end.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any


class AbortFlag:
    """The text that llama.cpp looks at. `address`: where it is."""

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        self.address = ctypes.addressof(self._text)

    def set(self) -> None:
        """End the evaluation that is running, or the next one."""
        self._text[0] = b"x"

    def clear(self) -> None:
        """Let evaluations run."""
        self._text[0] = b"\0"

    @staticmethod
    def callback(kind: Any) -> Any:
        """Return the callback as a value of llama.cpp's type for it."""
        return ctypes.cast(ctypes.CDLL("msvcrt" if sys.platform == "win32" else None).strlen, kind)


class Cancellation(threading.Event):
    """Ends one call once it is set. `evaluation`: the flag of the evaluation that runs for the call, if any.

    The flag may be that of a later evaluation when it is set: whoever sees an evaluation end looks at the
    event, and evaluates again what is not cancelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.evaluation: AbortFlag | None = None

    def set(self) -> None:
        """Cancel the call."""
        super().set()
        flag = self.evaluation
        if flag is not None:
            flag.set()
