"""The errors that this package raises, as one tree.

    GbnfError                              (gbnf.errors)
    └── ClientError                        the root of this package's errors
        ├── BackendError                   a model did not answer as it should
        │   ├── BackendUnreachable         no server there, or it went away
        │   ├── ServerError                the server answered with an error status
        │   ├── GrammarRefused             the engine refuses the grammar
        │   ├── ContextOverflow            the messages do not fit the model's context
        │   ├── MalformedText              the server's answer is not valid Unicode text
        │   └── ModelLoadError             the model file cannot be loaded
        ├── ExecutorError                  a tool failed; the message is written for the model
        │   └── ExecutorTimeout            a tool ran out of its time and was killed
        └── SetupError                     this machine lacks something: a workspace, a server build …

Foreign exceptions are translated at the seam where they appear; above it only this tree is caught.
Messages name the location, the value and a hint. An `ExecutorError` is one line: it goes into the
conversation, where the model reads it.
"""

from __future__ import annotations

from gbnf.errors import GbnfError


class GbnfServerError(GbnfError):
    """The root of every error that this package raises on purpose."""


class BackendError(GbnfServerError):
    """A model did not answer as it should."""


class BackendUnreachable(BackendError):  # noqa: N818 - its family says that it is an error
    """No server answers at the address, or the connection broke and retrying did not help."""


class ServerResponseError(BackendError):
    """The server answered with an error. Fields: `status` (HTTP), `message` (the server's own words)."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        said = f"the server answered HTTP {status}: {message}"
        if status in {401, 403}:
            said += ". Give the key that it wants: --api-key, LLAMA_API_KEY, or api_key in a program."
        super().__init__(said)

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may be answered later: the fault is the server's, or who may ask it."""
        return self.status >= 500 or self.status in {401, 402, 403, 404, 407, 408, 425, 429}


class GrammarRefused(BackendError):  # noqa: N818 - its family says that it is an error
    """The engine refuses the grammar. Field: `message` (the engine's own words)."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"the engine refuses the grammar: {message}")


class ContextOverflow(BackendError):  # noqa: N818 - its family says that it is an error
    """The messages do not fit. Fields: `needed`, `available` (tokens; None where the engine did not say)."""

    def __init__(self, needed: int | None, available: int | None) -> None:
        self.needed, self.available = needed, available
        need = "the messages" if needed is None else f"the messages ({needed} tokens)"
        have = "the model's context" if available is None else f"the model's context of {available} tokens"
        super().__init__(
            f"{need} do not fit {have}. Shorten the request, offer fewer tools, or use a longer context."
        )


class MalformedText(BackendError):  # noqa: N818 - its family says that it is an error
    """The server's answer is not UTF-8, or has an unpaired surrogate."""

    def __init__(self, fault: str) -> None:
        super().__init__(
            f"the server's answer holds {fault}, which is not valid Unicode text. "
            "Nothing of it is used; write it again."
        )


class ModelLoadError(BackendError):
    """The model file is missing, damaged, or of an architecture that the engine does not know."""


class ExecutorError(GbnfServerError):
    """A tool failed, and says why in one line that the model reads.

    Line breaks in the message become spaces, so that an executor may raise it with any text.
    """

    def __init__(self, message: str) -> None:
        self.message = " ".join(str(message).split())
        super().__init__(self.message)


class ExecutorTimeout(ExecutorError):  # noqa: N818 - its family says that it is an error
    """A tool ran out of time and was killed. Fields: `name` (the tool), `timeout_s`."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name, self.timeout_s = name, timeout_s
        super().__init__(
            f"'{name}' was stopped after {timeout_s:g} s without a result. Ask for less at once, "
            f"or raise `run.timeout_s` in its manifest."
        )


class SetupError(GbnfServerError):
    """This machine lacks something that the run needs; the message says what to do about it."""
