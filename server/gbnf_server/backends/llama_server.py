"""A llama-server over HTTP, never trusted.

A call renders the messages with the model's own template (`/apply-template`) and completes the prompt with
our grammar (`/completion`). That way nothing on the server parses the answer: no thoughts are split off into
another field, no tool format is looked for, and the grammar binds from the first character that we get.
The text is then replayed through our own matcher.

The control flow is written once, as generators that yield what to do next (`_Send`, `_Wait`); a sync and an
async driver do it. What must stay true: every error of httpx is translated here, and with each message comes
the server's address or its own words.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar

import httpx

from gbnf.prompt import Message, PromptStyle
from gbnf_server.backends.answers import read_completion, unpack
from gbnf_server.backends.base import DEMONSTRATION_MODEL, Completion
from gbnf_server.backends.conversation import Roles, TemplateFailure, adapt, probe
from gbnf_server.backends.thinking import close_thinking
from gbnf_server.engine import guard
from gbnf_server.errors import BackendError, BackendUnreachable, ServerError

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Send:
    """A request to make; its response is the reply, or an httpx.RequestError thrown in."""

    method: Literal["GET", "POST"]
    path: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Wait:
    """Let so many seconds pass."""

    seconds: float


_Flow: TypeAlias = Generator[_Send | _Wait, httpx.Response | None, _Result]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a server says of itself and its model; asked for once, and again after it was gone."""

    context_length: int
    prompt_style: PromptStyle
    roles: Roles


class LlamaServer:
    """A llama-server at an address. Its answers carry what they violate of the grammar, if anything.

    Broken connections are tried `retries` times again, after `backoff` seconds, twice that, and so on; a
    server that is still loading its model (HTTP 503) for up to `patience` seconds. `timeout` is how long one
    answer may take, in seconds. `prompt_style`: by default "minimal" for the embedded model, else "full".
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        connect_timeout: float = 5.0,
        retries: int = 3,
        backoff: float = 0.25,
        patience: float = 60.0,
        prompt_style: PromptStyle | None = None,
    ) -> None:
        """Nothing is sent yet. Raises BackendUnreachable where the URL is no address."""
        try:
            address = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise BackendUnreachable(f"{url!r} is no address of a server: {error}") from None
        if address.scheme not in {"http", "https"} or not address.host:
            raise BackendUnreachable(
                f"{url!r} is no address of a server. Give one like http://127.0.0.1:8080."
            )
        self.url = str(address)
        self.name = f"llama-server at {self.url}"
        self._timeout, self._retries, self._backoff, self._patience = timeout, retries, backoff, patience
        self._prompt_style = prompt_style
        self._options: dict[str, Any] = {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
            "timeout": httpx.Timeout(timeout, connect=connect_timeout),
            # made once, since it takes 20 ms; plain HTTP needs none
            "verify": ssl.create_default_context() if address.scheme == "https" else False,
            "trust_env": not _is_loopback(address.host),  # no proxy reaches this machine's own loopback
        }
        self._client = httpx.Client(**self._options)
        self._facts: _Facts | None = None

    @property
    def context_length(self) -> int:
        """The tokens that one conversation may have, as the server says. Asks it, the first time."""
        return self._drive(self._learn()).context_length

    @property
    def prompt_style(self) -> PromptStyle:
        return self._prompt_style or self._drive(self._learn()).prompt_style

    def complete(
        self,
        messages: Sequence[Message],
        *,
        grammar: str | None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Answer the conversation; see `Backend`."""
        completion = self._drive(self._complete(messages, grammar, max_tokens, temperature, seed))
        if on_text is not None:
            on_text(completion.text)
        return completion

    async def acomplete(
        self,
        messages: Sequence[Message],
        *,
        grammar: str | None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """As `complete`, for an event loop; cancelling it closes the connection, and the server stops."""
        completion = await self._adrive(self._complete(messages, grammar, max_tokens, temperature, seed))
        if on_text is not None:
            on_text(completion.text)
        return completion

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What to do, as generators.

    def _complete(
        self,
        messages: Sequence[Message],
        grammar: str | None,
        max_tokens: int,
        temperature: float,
        seed: int,
    ) -> _Flow[Completion]:
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; an answer has at least one token")
        if grammar is not None:
            guard(grammar)  # a server hangs and crashes on the same grammars as the engine in this process
        facts = yield from self._learn()
        prompt = yield from self._render(adapt(messages, facts.roles))
        body: dict[str, Any] = {
            "prompt": prompt if grammar is None else close_thinking(prompt),
            "n_predict": max_tokens,
            "temperature": temperature,
            "samplers": ["temperature"],  # as in process: nothing but the temperature shapes the choice
            "seed": seed,
            "cache_prompt": True,
        }
        if grammar is not None:
            body["grammar"] = grammar
        return read_completion((yield from self._request("POST", "/completion", body)), grammar)

    def _learn(self) -> _Flow[_Facts]:
        if self._facts is None:
            props = yield from self._request("GET", "/props")
            try:
                length = int(props["default_generation_settings"]["n_ctx"])
            except (KeyError, TypeError, ValueError):
                raise BackendError(
                    f"{self.url}/props does not tell the context's length. Is it a llama-server?"
                ) from None
            is_demonstration = any(
                DEMONSTRATION_MODEL in str(props.get(key, "")) for key in ("model_alias", "chat_template")
            )
            roles = yield from self._probe()
            self._facts = _Facts(length, "minimal" if is_demonstration else "full", roles)
        return self._facts

    def _probe(self) -> _Flow[Roles]:
        """Drive `conversation.probe` with the server's own template."""
        probing = probe()
        try:
            messages = next(probing)
            while True:
                try:
                    rendered = yield from self._render(messages)
                except ServerError as error:
                    if error.status not in {400, 500}:
                        raise
                    messages = probing.throw(TemplateFailure(error.message))
                else:
                    messages = probing.send(rendered)
        except StopIteration as found:
            roles: Roles = found.value
            return roles
        except TemplateFailure as error:
            raise BackendError(f"the model's chat template cannot be used: {error}") from None

    def _render(self, messages: Sequence[Message]) -> _Flow[str]:
        body = {"messages": list(messages), "chat_template_kwargs": {"enable_thinking": False}}
        answer = yield from self._request("POST", "/apply-template", body)
        prompt = answer.get("prompt")
        if not isinstance(prompt, str):
            raise BackendError(f"{self.url}/apply-template answered without a prompt. Is it a llama-server?")
        return prompt

    def _request(
        self, method: Literal["GET", "POST"], path: str, body: dict[str, Any] | None = None
    ) -> _Flow[dict[str, Any]]:
        """Make one request, again where that may help. Raises BackendUnreachable, or what `unpack` does."""
        broken, waited, pause = 0, 0.0, self._backoff
        while True:
            try:
                response = yield _Send(method, path, body)
            except httpx.RequestError as error:
                self._facts = None  # another server, or another model, may come up there
                broken += 1
                if broken > self._retries or not _may_pass(error):
                    raise BackendUnreachable(self._explain(error)) from error
            else:
                assert response is not None
                if response.status_code != httpx.codes.SERVICE_UNAVAILABLE or waited >= self._patience:
                    return unpack(response)
            yield _Wait(pause)
            waited += pause
            pause = min(2 * pause, 5.0)

    def _explain(self, error: httpx.RequestError) -> str:
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return (
                    f"no llama-server answers at {self.url} ({error or 'time-out'}). "
                    "Start one with `gbnf server start --model …`, or check the address."
                )
            case httpx.TimeoutException():
                return (
                    f"llama-server at {self.url} gave no answer within {self._timeout:g} s. "
                    "Allow fewer tokens, or a longer time-out."
                )
            case _:
                return (
                    f"the connection to llama-server at {self.url} broke ({error or type(error).__name__}). "
                    "It may have been stopped: its log says more."
                )

    # The drivers.

    def _drive(self, flow: _Flow[_Result]) -> _Result:
        try:
            effect = next(flow)
            while True:
                try:
                    reply = self._perform(effect)
                except httpx.RequestError as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(reply)
        except StopIteration as done:
            result: _Result = done.value
            return result

    def _perform(self, effect: _Send | _Wait) -> httpx.Response | None:
        match effect:
            case _Send(method, path, body):
                if self._client.is_closed:
                    raise BackendError(f"{self.name} has been closed. Make a new one.")
                return self._client.request(method, path, json=body)
            case _Wait(seconds):
                time.sleep(seconds)
                return None

    async def _adrive(self, flow: _Flow[_Result]) -> _Result:
        """As `_drive`; with a client for each call, since one is bound to the event loop it was made in."""
        if self._client.is_closed:
            raise BackendError(f"{self.name} has been closed. Make a new one.")
        async with httpx.AsyncClient(**self._options) as client:
            try:
                effect = next(flow)
                while True:
                    reply = None
                    try:
                        match effect:
                            case _Send(method, path, body):
                                reply = await client.request(method, path, json=body)
                            case _Wait(seconds):
                                await asyncio.sleep(seconds)
                    except httpx.RequestError as error:
                        effect = flow.throw(error)
                    else:
                        effect = flow.send(reply)
            except StopIteration as done:
                result: _Result = done.value
                return result


def _may_pass(error: httpx.RequestError) -> bool:
    """Tell whether trying again may help: not where the server is at work on the first try still."""
    if isinstance(error, httpx.TimeoutException):
        return isinstance(error, httpx.ConnectTimeout)
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
