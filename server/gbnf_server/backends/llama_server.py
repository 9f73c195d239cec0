"""A llama-server over HTTP, never trusted.

A call renders the messages with the model's own template (`/apply-template`) and completes the prompt with
our grammar (`/completion`). That way nothing on the server parses the answer: no thoughts are split off into
another field, no tool format is looked for, and the grammar binds from the first character that we get.
The text is then replayed through our own matcher.

What to do is written as flows of `exchange`, which does it, blocking or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from gbnf.control_tokens import Escape, escaper, names_in, removed_by
from gbnf.prompt import Message, PromptStyle
from gbnf_server.backends.answers import read_completion, unpack
from gbnf_server.backends.base import DEMONSTRATION_MODEL, Completion
from gbnf_server.backends.conversation import Roles, TemplateFailure, adapt, probe
from gbnf_server.backends.exchange import Exchange, Flow, Method, Patience
from gbnf_server.backends.images import marked, refuse_images
from gbnf_server.backends.served import Served
from gbnf_server.backends.streaming import CompletionLines, Spoken
from gbnf_server.backends.thinking import Markers, beginning, close_thinking, markers_of, opened, opens
from gbnf_server.backends.wire import count, member
from gbnf_server.engine import guard
from gbnf_server.errors import BackendError, ServerError


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a server says of itself and its model; `told` is its own words, which change with either."""

    told: dict[str, Any]
    context_length: int
    prompt_style: PromptStyle
    roles: Roles
    escape: Escape
    markers: Markers | None
    takes_images: bool
    media_marker: str
    model: str


class LlamaServer(Served):
    """A llama-server at an address. Its answers carry what they violate of the grammar, if anything.

    Broken connections are tried `retries` times again, after `backoff` seconds, twice that, and so on; a
    server that is still loading its model (HTTP 503) for up to `patience` seconds. `timeout` is how long an
    answer may take, in seconds, up to its last byte. `prompt_style`: by default
    "minimal" for the embedded model, else "full". `guard_grammars=False` saves a reading of each new grammar,
    and is only for grammars that all come from our compiler.
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
        guard_grammars: bool = True,
    ) -> None:
        """Nothing is sent yet. Raises BackendUnreachable where the URL is no address."""
        self._exchange = Exchange(
            url,
            called="llama-server",
            api_key=api_key,
            patience=Patience(timeout, connect_timeout, retries, backoff, patience),
            advice="Start one with `gbnf server start --model …`",
            on_broken=self._forget,
        )
        self.url = self._exchange.url
        self.name = f"llama-server at {self.url}"
        self._prompt_style = prompt_style
        self._guarded = guard_grammars
        self._facts: _Facts | None = None
        self._reuses = True

    @property
    def context_length(self) -> int:
        """The tokens that one conversation may have, as the server says. Asks it, the first time."""
        return self._exchange.drive(self._learn()).context_length

    @property
    def prompt_style(self) -> PromptStyle:
        return self._prompt_style or self._exchange.drive(self._learn()).prompt_style

    @property
    def model_name(self) -> str:
        """The name of the model's file, as the server says."""
        return self._exchange.drive(self._learn()).model

    @property
    def markers(self) -> Markers | None:
        """Where the model's thoughts begin and end, None for one that does not think aloud."""
        return self._exchange.drive(self._learn()).markers

    @property
    def takes_images(self) -> bool:
        """Whether the server was started with a model that sees (`--mmproj`)."""
        return self._exchange.drive(self._learn()).takes_images

    def forget_prompts(self) -> None:
        """Have the server evaluate the next call's prompt from its first token, whatever it remembers."""
        self._reuses = False

    def _complete(
        self,
        messages: Sequence[Message],
        grammar: str | None,
        max_tokens: int,
        temperature: float,
        seed: int,
        on_text: Callable[[str], None] | None,
    ) -> Flow[Completion]:
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; an answer has at least one token")
        if grammar is not None and self._guarded:
            guard(grammar)  # a server hangs and crashes on the same grammars as the engine in this process
        facts = yield from self._learn(anew=True)
        prompt, images = yield from self._prompt(messages, facts, constrained=grammar is not None)
        body: dict[str, Any] = {
            "prompt": {"prompt_string": prompt, "multimodal_data": images} if images else prompt,
            "n_predict": max_tokens,
            "temperature": temperature,
            "samplers": ["temperature"],  # as in process: nothing but the temperature shapes the choice
            "seed": seed,
            "cache_prompt": self._reuses,
        }
        self._reuses = True
        if grammar is not None:
            body["grammar"] = grammar
        elif facts.markers is not None:
            body["preserved_tokens"] = list(facts.markers.tokens)  # else special tokens are left out
        begun = opens(prompt)
        if on_text is None:
            response = yield from self._exchange.request("POST", "/completion", body, tokens=max_tokens)
            return read_completion(unpack(response), grammar, begun)
        spoken = Spoken(on_text, held=grammar is not None, opened=begun)
        lines = CompletionLines(spoken, max_tokens)
        response = yield from self._exchange.request(
            "POST", "/completion", {**body, "stream": True}, on_line=lines.feed, tokens=max_tokens
        )
        return spoken.end(read_completion(unpack(response, lines.end()), grammar, begun))

    def _prompt(
        self, messages: Sequence[Message], facts: _Facts, *, constrained: bool
    ) -> Flow[tuple[str, list[str]]]:
        """The prompt, with a marker for each image, and the images."""
        if not facts.takes_images:
            refuse_images(messages, self.name)
        told, images = marked(adapt(messages, facts.roles, facts.escape), facts.media_marker)
        said, begin = beginning(told)
        if begin is not None and facts.markers is not None:
            prompt = yield from self._render(said, thinking=True)
            return opened(prompt, begin, facts.markers), images
        prompt = yield from self._render(said)
        return close_thinking(prompt) if constrained else prompt, images

    def _learn(self, *, anew: bool = False) -> Flow[_Facts]:
        """The facts, asked for once; with `anew` again: another model may have come up at the address."""
        facts = self._facts
        if facts is not None and not anew:
            return facts
        props = yield from self._request("GET", "/props")
        if facts is None or props != facts.told:
            length = count(member(props, "default_generation_settings", "n_ctx"))
            if not length:
                raise BackendError(
                    f"{self.url}/props does not tell the context's length. Is it a llama-server?"
                )
            is_demonstration = any(
                DEMONSTRATION_MODEL in str(props.get(key, "")) for key in ("model_alias", "chat_template")
            )
            roles = yield from self._probe()
            template = str(props.get("chat_template", ""))
            marker = str(props.get("media_marker") or _MEDIA_MARKER)
            facts = _Facts(
                props,
                length,
                "minimal" if is_demonstration else "full",
                roles,
                escaper(
                    removed_by(template)
                    | {marker}
                    | names_in(f"{template} {props.get('bos_token')} {props.get('eos_token')}")
                ),
                markers_of(template),
                bool(member(props, "modalities", "vision")),
                marker,
                PurePath(str(props.get("model_path") or props.get("model_alias") or "")).name,
            )
        self._facts = facts
        return facts

    def _probe(self) -> Flow[Roles]:
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

    def _render(self, messages: Sequence[Message], *, thinking: bool = False) -> Flow[str]:
        body = {"messages": list(messages), "chat_template_kwargs": {"enable_thinking": thinking}}
        answer = yield from self._request("POST", "/apply-template", body)
        prompt = answer.get("prompt")
        if not isinstance(prompt, str):
            raise BackendError(f"{self.url}/apply-template answered without a prompt. Is it a llama-server?")
        return prompt

    def _request(self, method: Method, path: str, body: dict[str, Any] | None = None) -> Flow[dict[str, Any]]:
        """The object that one request is answered with. Raises BackendUnreachable, or what `unpack` does."""
        return unpack((yield from self._exchange.request(method, path, body)))

    def _forget(self) -> None:
        self._facts = None


_MEDIA_MARKER = "<__media__>"
"""What stands for an image in a prompt, where the server does not say; llama.cpp's own choice."""
