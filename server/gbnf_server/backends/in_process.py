"""A model in this process: llama-cpp-python's low-level API, with a decoding loop of our own.

The parts are in `gbnf_server.llama`: allowed tokens (`constraint`), the choice of a token (`sampler`),
forced text and drafts (`drafts`), the KV cache (`kv_cache`), and the loop (`decoder`).
"""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex

from gbnf import Grammar
from gbnf.errors import ToolFormatError
from gbnf.prompts.control_tokens import make_escaper, strings_removed_by
from gbnf.prompts.messages import PromptStyle
from gbnf.tool_formats import ReasoningDelta, TemplateRenderer, TextDelta
from gbnf_server.backends.answer import RequestBackend
from gbnf_server.backends.base import BackendEvent, Completion, Dialect, ModelInfo, Request, Timings, Usage
from gbnf_server.backends.image_messages import refuse_images
from gbnf_server.backends.model_traits import model_traits
from gbnf_server.backends.prompts import TemplateRules, roles_of
from gbnf_server.backends.reasoning import ReasoningSplitter, open_reasoning_tags
from gbnf_server.backends.value_probabilities import value_probabilities
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.constraint import Constraint
from gbnf_server.llama.decoder import Decoder
from gbnf_server.llama.drafts import DraftHistory
from gbnf_server.llama.evidence_bias import EvidenceBias
from gbnf_server.llama.grammar_engines import GrammarEngineName, grammar_engine
from gbnf_server.llama.grammar_limits import guard_grammar
from gbnf_server.llama.kv_cache import CachedSequence, KVCache, free
from gbnf_server.llama.native import NativeModel, default_threads
from gbnf_server.llama.sampler import Sampler
from gbnf_server.llama.token_values import Truncation, ValueProbability
from gbnf_server.llama.value_scores import AnswerScorer
from gbnf_server.system.errors import (
    ChatTemplateError,
    ContextOverflowError,
    ConversationRefusedError,
    ModelLoadError,
)
from gbnf_server.system.event_loop import run_in_thread

_WAKE_S = 0.004
_CHATML = (  # llama.cpp's own choice for models without a template
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class InProcess(RequestBackend):
    """A GGUF model, run by llama-cpp-python. Runs `parallel` calls at a time; others wait."""

    enforces_grammar = True

    def __init__(
        self,
        model_path: Path | str,
        *,
        context_length: int | None = None,
        threads: int | None = None,
        name: str | None = None,
        prompt_style: PromptStyle | None = None,
        gpu_layers: int | None = None,
        lora: Path | str | None = None,
        engine: GrammarEngineName = "llama.cpp",
        jump_forward: bool = True,
        parallel: int = 1,
        deterministic: bool = False,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> None:
        """Load the model. Raises ModelLoadError, or SetupError if the engine is not installed.

        `context_length` (tokens): by default that of the model's training, up to 8192. `threads`: by default
        `usable_cores`, or one for a small model. `name`: by default the file's own for the model.
        `gpu_layers`: how many layers to compute on the GPU, by default all, if llama.cpp was built for one.
        `lora`: the GGUF file of an adapter that is added to the weights.
        `prompt_style`: by default "minimal" for the bundled model, otherwise "full". `engine`: what enforces
        grammars, "llama.cpp" or "llguidance". `jump_forward`: draft text that the grammar forces, and copied
        text; the answer is the same without. `parallel`: how many calls may run at once, each in a sequence
        of `context_length`. `deterministic`: compute each answer the same, whatever other calls there were
        or are: evaluate one sequence at a time, and reuse no cached prompt. `top_k`, `top_p`, `min_p`:
        truncation of the distribution at temperatures above 0; the defaults truncate nothing.
        """
        if parallel < 1:
            raise ValueError(f"parallel is {parallel}; it must be at least 1")
        self._truncation = Truncation(top_k, top_p, min_p)
        model = NativeModel(model_path, gpu_layers=gpu_layers, lora=lora)
        if not model.end_tokens:
            raise ModelLoadError(f"{model.path} has no end-of-generation token, so an answer could not end.")
        self.name: str = name or model.name
        self._context_length: int = context_length or model.default_context
        self._model = model
        self._template = ChatTemplate(model, prompt_style)
        self.dialect: Dialect = "gbnf"
        self._info = ModelInfo(self.name, self._template.traits)
        # it rolls back the KV cache, which a recurrent model cannot
        self._rolls_back = not model.has_recurrent_state
        self._jumps = jump_forward and self._rolls_back
        self._deterministic, self._history = deterministic, DraftHistory()
        self._calls: set[Cancellation] = set()
        self._engine = grammar_engine(engine, model)
        self._kv_cache = KVCache(
            model,
            length=self._context_length,
            parallel=parallel,
            threads=threads or default_threads(model.path),
            batches_alone=deterministic,
        )
        self._free = weakref.finalize(self, free, model, self._kv_cache.context, self._kv_cache.batch)

    def clear_prompt_cache(self) -> None:
        """Clear the KV cache of finished calls. Raises BackendError after `close`."""
        with self._kv_cache.slot():
            self._kv_cache.clear_unused()
            self._history = DraftHistory()

    async def count_tokens(self, request: Request) -> int:
        """Return the number of tokens of the request's prompt; see `Backend`."""

        def count() -> int:
            with self._kv_cache.slot():
                return len(self._tokens(self._template.prompt(request)))

        return await asyncio.to_thread(count)

    def close(self) -> None:
        """Free the model and its KV cache once the running calls have ended. Idempotent."""
        self._kv_cache.close()
        self._free()

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer; see `Backend`."""
        stop, pieces = Cancellation(), _PieceQueue()
        self._calls.add(stop)
        answered = run_in_thread(partial(self._answer_request, request, stop, pieces))
        answered.add_done_callback(lambda _: self._calls.discard(stop))
        answered.add_done_callback(pieces.wake)
        has_ended = False
        try:
            while not has_ended:
                await pieces.arrival()
                has_ended = answered.done()  # before the pieces are taken: then these are all
                while pieces.arrived:
                    yield pieces.arrived.popleft()
            yield answered.result()
        finally:
            if not answered.done():
                stop.set()  # ends the thread, also inside of an evaluation
                await pieces.end(answered)  # until then, it has its sequence

    @property
    def stuck(self) -> str:
        """What an answer does for longer than it should; see `Backend`."""
        now = time.monotonic()
        return next(filter(None, (stop.overdue(now) for stop in tuple(self._calls))), "")

    def _answer_request(self, request: Request, stop: Cancellation, pieces: _PieceQueue) -> Completion:
        """Answer a request, in a thread."""
        grammar = None if request.grammar is None else guard_grammar(request.grammar)
        with self._kv_cache.slot() as slot, stop.limited(request.timeout_s):
            prompt = self._template.prompt(request)
            tokens = self._tokens(prompt)
            if len(tokens) >= self._context_length:
                raise ContextOverflowError(len(tokens) + 1, self._context_length)
            constraint = None if grammar is None else self._engine.constraint(grammar, stop)
            splitter = ReasoningSplitter(
                pieces.put, open_reasoning_tags(prompt), constrained=request.is_whole_text
            )
            salt = token_hex() if self._deterministic else request.cache_salt
            sequence, cached = self._kv_cache.acquire(slot, tokens, stop, salt)
            started = time.perf_counter()
            decoder = self._decoder(request, grammar, sequence, constraint, stop, splitter.feed)
            answer = decoder.generate(tokens, min(request.max_tokens, self._context_length - len(tokens)))
            ended = time.perf_counter()
            probabilities: tuple[ValueProbability, ...] = ()
            if request.probabilities and grammar is not None and self._rolls_back:
                cache = self._model, self._kv_cache, sequence, stop
                scorer = AnswerScorer(*cache, tokens, answer.tokens, answer.text, request.evidence)
                probabilities = value_probabilities(grammar, answer.text, scorer)
        begun = answer.first_token_at or ended
        timings = Timings(begun - started, ended - begun, None if constraint is None else constraint.seconds)
        counts = answer.forced_tokens, answer.drafted_tokens, answer.accepted_tokens
        reasoning, text = splitter.close()
        return Completion(
            text=text,
            finish_reason=answer.finish_reason,
            usage=Usage(len(tokens), len(answer.tokens), cached, *counts),
            timings=timings,
            reasoning=reasoning,
            context_length=self._context_length,
            stop_string=answer.stop_string,
            shortened_at=answer.shortened_at,
            repeated=answer.repeated,
            logprobs=tuple(answer.logprobs),
            trace=tuple(answer.trace),
            probabilities=probabilities,
        )

    def _decoder(
        self,
        request: Request,
        grammar: Grammar | None,
        sequence: CachedSequence,
        constraint: Constraint | None,
        stop: Cancellation,
        on_text: Callable[[str], None],
    ) -> Decoder:
        truncation = self._truncation if request.truncation.keeps_all else request.truncation
        return Decoder(
            self._model,
            self._kv_cache,
            sequence,
            Sampler(request.temperature, request.seed, truncation),
            constraint,
            jumps=self._jumps,
            stop=stop,
            stop_strings=request.stop,
            logprobs=request.logprobs,
            on_text=on_text,
            control_texts=self._control_texts(request),
            foreign_tokens=self._foreign_tokens(request, grammar),
            trace=request.trace,
            bias=None if request.evidence is None else EvidenceBias(self._model, request.evidence),
            history=None if self._deterministic else self._history,
        )

    def _tokens(self, prompt: str) -> list[int]:
        tokens = self._model.tokenize(prompt, special=True)
        start = self._model.bos_token
        if start is not None and tokens[:1] != [start]:
            tokens.insert(0, start)
        return tokens

    def _control_texts(self, request: Request) -> frozenset[str]:
        """Return the texts of the tool-call format that are control tokens of this model."""
        form = self._template.traits.tool_format if request.is_native else None
        return frozenset(self._model.control_tokens).intersection(form.control_texts if form else ())

    def _foreign_tokens(self, request: Request, grammar: Grammar | None) -> frozenset[int]:
        """Return the control tokens that a grammar does not name: it allows them where it allows any text.

        One that begins a message, inside of a text, leads a small model out of the conversation.
        """
        if grammar is None:
            return frozenset()
        named, rules = self._control_texts(request), str(grammar)
        return frozenset(
            token
            for text, token in self._model.control_tokens.items()
            if text not in named and text not in rules and token not in self._model.end_tokens
        )


class ChatTemplate:
    """The chat template of a model file, rendered here. `traits`: what it and the file say of the model."""

    def __init__(self, model: NativeModel, prompt_style: PromptStyle | None = None) -> None:
        source = model.metadata.get("tokenizer.chat_template", _CHATML)
        self.traits = model_traits(
            model.name,
            source,
            model.begin_text,
            model.end_text,
            prompt_style=prompt_style,
            parameters=model.parameters,
            in_process=True,
        )
        try:
            self._renderer = TemplateRenderer(source, bos_token=model.begin_text, eos_token=model.end_text)
            roles = roles_of(partial(self._renderer.render, enable_thinking=False))
        except (ToolFormatError, ChatTemplateError) as error:
            raise ModelLoadError(f"the chat template of {model.path} fails: {error}") from None
        escape = make_escaper({*model.control_tokens, *strings_removed_by(source)})
        self._rules = TemplateRules(roles, escape, self.traits)

    def prompt(self, request: Request) -> str:
        """Return the prompt of a request, up to where the answer begins."""
        refuse_images(request.messages, "a model in this process")
        conversation = self._rules.conversation(request)
        if conversation.tool_format is not None:
            return conversation.render()
        variables = {**conversation.variables, "enable_thinking": conversation.reasons}
        try:
            return conversation.finish(self._renderer.render(conversation.messages, **variables))
        except ToolFormatError as error:
            raise ConversationRefusedError(error) from None


class _PieceQueue:
    """Hands pieces from the thread that decodes to the event loop that awaits them, in `arrived`.

    The loop is woken at most once in `_WAKE_S`, for all that have come meanwhile: it takes the interpreter
    from the thread that decodes. The next piece, or the end, hands over what was left.
    """

    def __init__(self) -> None:
        self.arrived: deque[TextDelta | ReasoningDelta] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_woken = asyncio.Event()
        self._woken_at = -math.inf  # s

    def put(self, piece: TextDelta | ReasoningDelta) -> None:
        """Hand over a piece; called in the thread that decodes."""
        self.arrived.append(piece)
        if time.monotonic() - self._woken_at >= _WAKE_S:
            self.wake()

    def wake(self, _answered: Future[Completion] | None = None) -> None:
        """Wake the event loop; called in the thread that decodes."""
        self._woken_at = time.monotonic()
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._is_woken.set)

    async def arrival(self) -> None:
        """Wait until the loop is woken."""
        await self._is_woken.wait()
        self._is_woken.clear()

    async def end(self, answered: Future[Completion]) -> None:
        """Wait until the thread has ended, whatever it hands over. `answered` wakes the loop."""
        while not answered.done():
            await self.arrival()
