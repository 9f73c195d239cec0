"""A model in this process: llama-cpp-python's low-level layer, with a decoding loop of our own.

What must stay true: `_past` holds a prefix of what the model's memory holds, so that whatever interrupts a
call (an error, Ctrl-C), the next one cuts the memory back to the prefix that it shares, and goes on from it.
"""

from __future__ import annotations

import asyncio
import codecs
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import llama_cpp
import numpy as np
import numpy.typing as npt

from gbnf.prompt import Message, PromptStyle
from gbnf_server.backends.base import DEMONSTRATION_MODEL, Completion
from gbnf_server.backends.sampling import Held, Picker
from gbnf_server.backends.template import ChatTemplate
from gbnf_server.backends.thinking import Markers, split_reasoning
from gbnf_server.engine import guard
from gbnf_server.errors import BackendError, ContextOverflow, ModelLoadError
from gbnf_server.native import LONGEST_DEFAULT_CONTEXT, NativeGrammar, NativeModel

_BATCH = 512  # tokens evaluated at once; between two batches Ctrl-C is heard


class InProcess:
    """A GGUF model run by llama-cpp-python. One call at a time; others wait their turn."""

    def __init__(
        self,
        model_path: Path | str,
        *,
        context_length: int | None = None,
        threads: int | None = None,
        prompt_style: PromptStyle | None = None,
        gpu_layers: int | None = None,
        guard_grammars: bool = True,
    ) -> None:
        """Load the model. Raises ModelLoadError.

        `context_length` (tokens): by default what the model was trained for, up to 8192. `threads`: by
        default one per usable CPU, or one for a small model. `prompt_style`: by default "minimal" for the
        embedded model, else "full". `guard_grammars=False` saves a reading of each new grammar, and is only
        for grammars that all come from our compiler.
        """
        model = NativeModel(model_path, gpu_layers=gpu_layers)
        if not model.end_tokens:
            raise ModelLoadError(f"{model.path} has no end-of-generation token, so no answer would ever end.")
        self.name: str = model.name
        self.prompt_style: PromptStyle = prompt_style or (
            "minimal" if self.name == DEMONSTRATION_MODEL else "full"
        )
        self.context_length: int = context_length or min(
            model.trained_context or LONGEST_DEFAULT_CONTEXT, LONGEST_DEFAULT_CONTEXT
        )
        self._template = ChatTemplate(model)
        self._guarded = guard_grammars
        self._lock = threading.Lock()
        self._past: list[int] = []
        self._context: Any = _new_context(model, self.context_length, threads)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._free = weakref.finalize(self, _free, model, self._context)
        self._model = model

    @property
    def markers(self) -> Markers | None:
        """Where the model's thoughts begin and end, None for one that does not think aloud."""
        return self._template.markers

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
        """Answer the conversation; see `Backend`. Raises GrammarRefused, ContextOverflow or BackendError."""
        completion = self._complete(messages, grammar, max_tokens, temperature, seed, threading.Event())
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
        """As `complete`, in a thread; cancelling it ends the decoding at the next token."""
        stop = threading.Event()
        try:
            completion = await asyncio.to_thread(
                self._complete, messages, grammar, max_tokens, temperature, seed, stop
            )
            if on_text is not None:
                on_text(completion.text)
            return completion
        finally:
            stop.set()

    def close(self) -> None:
        """Free the model's memory, after a call that is under way."""
        with self._lock:
            self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _complete(
        self,
        messages: Sequence[Message],
        grammar: str | None,
        max_tokens: int,
        temperature: float,
        seed: int,
        stop: threading.Event,
    ) -> Completion:
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; an answer has at least one token")
        if grammar is not None and self._guarded:
            guard(grammar)
        with self._lock:
            if not self._free.alive:
                raise BackendError(f"the model {self.name} has been closed. Load it again.")
            prompt = self._tokens(messages, constrained=grammar is not None)
            if grammar is None:
                return self._answer(prompt, None, max_tokens, Picker(temperature, seed), stop)
            begun = time.perf_counter()
            with NativeGrammar.parse(self._model, grammar) as parsed:
                held = Held(self._model, parsed)
                held.seconds = time.perf_counter() - begun
                return self._answer(prompt, held, max_tokens, Picker(temperature, seed), stop)

    def _tokens(self, messages: Sequence[Message], *, constrained: bool) -> list[int]:
        prompt = self._template.prompt(messages, constrained=constrained)
        tokens = self._model.tokenize(prompt, special=True)
        start = self._model.start_token
        if start is not None and tokens[:1] != [start]:
            tokens.insert(0, start)
        if len(tokens) >= self.context_length:
            raise ContextOverflow(len(tokens) + 1, self.context_length)
        return tokens

    def _answer(
        self,
        prompt: list[int],
        held: Held | None,
        max_tokens: int,
        picker: Picker,
        stop: threading.Event,
    ) -> Completion:
        started = time.perf_counter()
        cached = self._keep(prompt)
        self._evaluate(prompt[cached:], stop)
        answering = time.perf_counter()
        room = min(max_tokens, self.context_length - len(prompt))
        answer: list[int] = []
        finish: Literal["stop", "length"] = "length"
        for token in self._decode(held, picker, stop):
            if token in self._model.end_tokens:
                finish = "stop"
                break
            answer.append(token)
            if len(answer) == room:
                break
        text = self._text(answer, whole=finish == "stop")
        reasoning, text = ("", text) if held is not None else split_reasoning(text)
        return Completion(
            text=text,
            finish=finish,
            prompt_tokens=len(prompt),
            completion_tokens=len(answer),
            cached_tokens=cached,
            prompt_s=answering - started,
            completion_s=time.perf_counter() - answering,
            reasoning=reasoning,
            grammar_s=None if held is None else held.seconds,
        )

    def _decode(self, held: Held | None, picker: Picker, stop: threading.Event) -> Iterator[int]:
        """The answer's tokens, without end; each is evaluated only when the next one is asked for."""
        while True:
            token = picker.pick(self._logits(), held)
            if token is None:
                raise BackendError(
                    "the grammar leaves no token of this model's vocabulary possible: it has a dead end here."
                )
            if held is not None and token not in self._model.end_tokens:
                held.accept(token)
            yield token
            self._evaluate([token], stop)

    def _keep(self, prompt: list[int]) -> int:
        """Cut the memory back to the prefix that it shares with the prompt, and return that one's length.

        One token is always left to evaluate: its logits are what the answer begins with.
        """
        common = 0
        for old, new in zip(self._past, prompt[:-1], strict=False):
            if old != new:
                break
            common += 1
        del self._past[common:]
        if not llama_cpp.llama_memory_seq_rm(self._memory, 0, common, -1):
            common = 0  # recurrent memories cannot be cut: forget all
            self._past.clear()
            llama_cpp.llama_memory_clear(self._memory, True)
        return common

    def _evaluate(self, tokens: Sequence[int], stop: threading.Event) -> None:
        for first in range(0, len(tokens), _BATCH):
            if stop.is_set():
                raise BackendError("the call was cancelled")
            batch = tokens[first : first + _BATCH]
            array = (llama_cpp.llama_token * len(batch))(*batch)
            status = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(array, len(batch)))
            if status:
                raise BackendError(f"llama.cpp could not evaluate {len(batch)} tokens (status {status})")
            self._past.extend(batch)

    def _logits(self) -> npt.NDArray[np.float32]:
        """The last token's logits: a view that lasts until the next evaluation."""
        pointer = llama_cpp.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, shape=(self._model.size,))

    def _text(self, tokens: Sequence[int], *, whole: bool) -> str:
        """The answer's text; a character that a cut went through is left out."""
        raw = b"".join(self._model.piece(token) for token in tokens)
        return codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=whole)


def _new_context(model: NativeModel, length: int, threads: int | None) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = length, _BATCH, _BATCH, 1
    params.n_threads = params.n_threads_batch = threads or (1 if model.is_small else _usable_cpus())
    params.no_perf = True
    context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        raise ModelLoadError(
            f"{model.path}: no context of {length} tokens could be made. Is there memory? Try a shorter one."
        )
    return context


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free(model: NativeModel, context: ctypes.c_void_p) -> None:
    """Free a context and then its model, in the order that llama.cpp asks for."""
    llama_cpp.llama_free(context)
    model.close()
