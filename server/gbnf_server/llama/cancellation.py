"""Cancel a call of a model, also in the middle of an evaluation, from any thread.

llama.cpp asks a callback between two operations whether to go on. A callback in Python would have to wait for
the interpreter's lock each time, so it is C's `strlen`, of a text that is empty until the evaluation is to
end.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gbnf_server.system.errors import AnswerTimeoutError, BackendError

_LONGEST_STEP_S = 120.0
"""For a step of a call: a batch of a large model on a slow machine may take a minute."""
_LONGEST_END_S = 10.0
"""For a cancelled call to end."""


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
    event, and evaluates again what is not cancelled. `error`: what a cancelled call raises.
    """

    def __init__(self) -> None:
        super().__init__()
        self.evaluation: AbortFlag | None = None
        self.error = BackendError("the call was cancelled")
        self._step, self._since, self._set_at = "", time.monotonic(), 0.0

    def set(self) -> None:
        """Cancel the call."""
        self._set_at = self._set_at or time.monotonic()
        super().set()
        flag = self.evaluation
        if flag is not None:
            flag.set()

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Cancel the call with AnswerTimeoutError if it is in this context for longer; None for no limit."""
        timer = threading.Timer(min(seconds or 0.0, threading.TIMEOUT_MAX), self._time_out, (seconds,))
        timer.daemon = True
        if seconds is not None:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _time_out(self, seconds: float) -> None:
        problem = f"the model in this process did not finish its answer within {seconds:g} s"
        self.error = AnswerTimeoutError(f"{problem}. Allow fewer tokens, or a longer timeout.")
        self.set()

    def begin(self, step: str) -> None:
        """Begin a step of the call, "" for waiting. Raises `error` if the call is cancelled."""
        self._step, self._since = step, time.monotonic()
        if self.is_set():
            raise self.error

    def overdue(self, now: float) -> str:
        """Return what takes longer than it should at `now` (`time.monotonic()`), "" for nothing."""
        if not self._step:
            return ""
        if self.is_set() and now - self._set_at > _LONGEST_END_S:
            return f"a call that was cancelled {now - self._set_at:.0f} s ago does not end: {self._step}"
        if now - self._since > _LONGEST_STEP_S:
            return f"a call has been at one step for {now - self._since:.0f} s: {self._step}"
        return ""
