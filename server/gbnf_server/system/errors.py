"""The errors of this package, as one tree below `gbnf.errors.GbnfError`.

    GbnfServerError
    ├── BackendError                 a model did not answer as it should
    │   ├── BackendUnreachableError  no server answers, or the connection broke
    │   │   └── AnswerTimeoutError   the server is there, and did not finish its answer in time
    │   ├── ServerResponseError      the server answered with an error status
    │   ├── GrammarRefusedError      the engine refuses the grammar
    │   ├── RequestNotSupportedError the backend has no such option
    │   ├── ContextOverflowError     the messages do not fit the model's context
    │   ├── MalformedTextError       the server's answer is not valid Unicode text
    │   ├── ModelLoadError           the model file cannot be loaded
    │   ├── ChatTemplateError        the model's chat template fails
    │   └── ConversationRefusedError the model's chat template refuses this conversation
    ├── HttpError                    a request to a server of ours has no answer (gbnf_server.web)
    ├── ExecutorError                a tool failed; the message is for the model
    │   └── ExecutorTimeoutError     a tool exceeded its time limit
    ├── ExtractionError              no answer of a model has the value (gbnf_server.planner.extraction)
    ├── SetupError                   this machine lacks something: a workspace, a server build …
    │   ├── RunLogError              runs cannot be logged or resumed (gbnf_server.planner.runs.run_log)
    │   └── McpServerError           an MCP server does not start (gbnf_server.mcp)
    └── InputError                   a file from the user cannot be used
        ├── BatchFileError           a file of requests (gbnf_server.planner.batch)
        ├── ResultsFileError         stored runs or a leaderboard's files (gbnf_bench)
        ├── InvalidSuiteError        all problems of one suite (gbnf_bench)
        ├── RunFileError             a file of recorded runs (gbnf_server.planner)
        └── McpConfigError           MCP servers that are given wrongly (gbnf_server.mcp)

Foreign exceptions are translated where they are raised. Messages give the location, the value and a hint; an
`ExecutorError` is one line, since it becomes a message of the conversation.

Outside of the tree are signals that no caller of the package sees: `CallRefusedError`, `SuiteFieldError`,
`ClientLeftError`, and, since drivers pass every GbnfError to the planner, `ReplayError` and
`InterruptedCallError`.
"""

from __future__ import annotations

from gbnf.errors import GbnfError


class GbnfServerError(GbnfError):
    """The root of the errors of this package."""


class BackendError(GbnfServerError):
    """A model did not answer as it should. `is_retryable`: whether the same request may succeed later."""

    is_retryable = False


class BackendUnreachableError(BackendError):
    """No server answers at the address, or the connection broke and retrying did not help."""

    is_retryable = True


class AnswerTimeoutError(BackendUnreachableError):
    """The server took the request, and did not finish its answer within the time limit."""


class ServerResponseError(BackendError):
    """The server answered with an error. Fields: `status` (HTTP), `message` (the server's)."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        # an error of the server, or of authorization
        self.is_retryable = status >= 500 or status in {401, 402, 403, 404, 407, 408, 425, 429}
        text = f"the server answered with HTTP {status}: {message}"
        if status in {401, 403}:
            text += ". Set its API key: --api-key, LLAMA_API_KEY, or api_key in a program."
        super().__init__(text)


class GrammarRefusedError(BackendError):
    """The engine refuses the grammar. Field: `message` (the engine's)."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"the engine refuses the grammar: {message}")


class RequestNotSupportedError(BackendError):
    """A backend does not support a field of a request. Fields: `backend`, `field`, `hint`."""

    def __init__(self, backend: str, field: str, hint: str) -> None:
        self.backend, self.field, self.hint = backend, field, hint
        super().__init__(f"{backend} does not support {field}. {hint}")


class ContextOverflowError(BackendError):
    """The messages do not fit. Fields: `needed`, `available` (tokens; None if unknown)."""

    def __init__(self, needed: int | None, available: int | None) -> None:
        self.needed, self.available = needed, available
        need = "the messages" if needed is None else f"the messages ({needed} tokens)"
        have = "the model's context" if available is None else f"the model's context of {available} tokens"
        super().__init__(
            f"{need} do not fit {have}. Shorten the request, offer fewer tools, or use a longer context."
        )


class MalformedTextError(BackendError):
    """The server's answer is not UTF-8, or has an unpaired surrogate."""

    def __init__(self, fault: str) -> None:
        super().__init__(
            f"the server's answer contains {fault}, which is not valid Unicode text. "
            "It is discarded; write it again."
        )


class ModelLoadError(BackendError):
    """The model file is missing, damaged, or of an architecture that the engine does not know."""


class ChatTemplateError(BackendError):
    """A chat template fails, even for a plain question; the message says why."""


class ConversationRefusedError(BackendError):
    """The model's chat template refuses this conversation: its roles, or its size."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"the model's chat template refuses the conversation: {reason}")


class ExecutorError(GbnfServerError):
    """A tool failed; the model reads the message.

    Line breaks in the message become spaces: an executor may raise it with any text.
    """

    def __init__(self, message: str) -> None:
        self.message = " ".join(str(message).split())
        super().__init__(self.message)


class ExecutorTimeoutError(ExecutorError):
    """A tool exceeded its time limit. Fields: `name` (the tool), `timeout_s`, `killed` (whether it was)."""

    def __init__(self, name: str, timeout_s: float, *, killed: bool = True) -> None:
        self.name, self.timeout_s, self.killed = name, timeout_s, killed
        how = (
            f"was stopped after {timeout_s:g} s without a result"
            if killed
            else f"has no result after {timeout_s:g} s; its thread may still be running"
        )
        super().__init__(f"'{name}' {how}. Request less at once, or raise its limit `run.timeout_s`.")


class SetupError(GbnfServerError):
    """The machine lacks something that the run needs; the message says how to fix that."""


class InputError(GbnfServerError):
    """A file from the user cannot be used; the message says which and why."""
