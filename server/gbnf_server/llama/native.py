"""llama.cpp's models through ctypes, where a wrong call would crash the process.

`NativeModel` has weights or just a vocabulary, and may be used by several threads at once. The engine's
messages go to the logger `gbnf_server.llama.bindings`, never to the terminal.
"""

from __future__ import annotations

import ctypes
import os
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.cpu_support import model_params
from gbnf_server.llama.process_globals import capture_log_errors, initialize_engine
from gbnf_server.system.cpu_cores import usable_cores
from gbnf_server.system.errors import ModelLoadError
from gbnf_server.system.model_files import check_gguf

_LONGEST_DEFAULT_CONTEXT = 8192  # tokens: for 128k the KV cache would take gigabytes
_SMALL = 64 * 1024 * 1024  # bytes of a model file
_KEPT_SELECTIONS = 32  # of tokens by first byte: 1 MB each, for a vocabulary of 128k

_RUN = 2048
"""Characters. llama.cpp splits texts into words with std::regex, which recurses for each character of a word:
some 20,000 letters in a row overflow a stack of 8 MB, and end the process."""
_LONG_RUN = regex.compile(
    "|".join(f"{kind}{{{2 * _RUN},}}" for kind in (r"[\p{L}\p{M}]", r"\p{N}", r"\s", r"[^\s\p{L}\p{N}]"))
)


def default_threads(path: Path) -> int:
    """Return how many threads compute the model of a file: one for each core, or one for a small model.

    Several threads would wait for each other most of the time. Measured on a busy machine of two cores, 221
    tokens into 3.5 million parameters: 0.03 s with one thread, 0.9 s with two.
    """
    return 1 if path.stat().st_size < _SMALL else usable_cores().count


def _cause(messages: Iterable[str]) -> str:
    """Return the first error that llama.cpp logged, without the name of its function."""
    first = next(iter("".join(messages).strip().splitlines()), "llama.cpp gave no reason")
    return re.sub(r"^\w+: (?:error loading model: )?", "", first)


class NativeModel:
    """A GGUF file, loaded: its vocabulary and metadata, and its weights unless `vocab_only`."""

    def __init__(
        self,
        path: Path | str,
        *,
        vocab_only: bool = False,
        gpu_layers: int | None = None,
        lora: Path | str | None = None,
    ) -> None:
        """Load the file. Raises ModelLoadError if it is missing or llama.cpp cannot use it.

        `lora`: the file of an adapter for `adapt`. Raises SetupError if this build of llama.cpp does not work
        on this CPU.
        """
        self.path = Path(path)
        check_gguf(self.path)
        initialize_engine()
        params = llama_cpp.llama_model_default_params() if vocab_only else model_params()
        params.vocab_only = vocab_only
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        with capture_log_errors() as messages:
            self.handle = llama_cpp.llama_model_load_from_file(os.fsencode(self.path), params)
        if not self.handle:
            problem = f"{self.path} cannot be loaded: {_cause(messages)}. Is it a complete GGUF model?"
            raise ModelLoadError(problem)
        self.close = weakref.finalize(self, llama_cpp.llama_model_free, self.handle)
        self._adapter = None if lora is None else self._load_adapter(Path(lora))
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.handle)
        self.size: int = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        if not self.size:
            raise ModelLoadError(f"{self.path} has no vocabulary. Use a GGUF file of a language model.")
        self._pieces: dict[int, bytes] = {}

    def _load_adapter(self, path: Path) -> Any:
        """Return an adapter, which is freed with the model. Raises ModelLoadError."""
        check_gguf(path, "LoRA adapter")
        with capture_log_errors() as messages:
            adapter = llama_cpp.llama_adapter_lora_init(self.handle, os.fsencode(path))
        if not adapter:
            problem = f"{path} is not a LoRA adapter for {self.path.name}: {_cause(messages)}"
            raise ModelLoadError(problem)
        return adapter

    def adapt(self, context: Any) -> None:
        """Apply the adapter to a context, if there is one. Raises ModelLoadError."""
        if self._adapter is not None:
            adapters = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(self._adapter)
            if llama_cpp.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(1.0)):
                raise ModelLoadError(f"the LoRA adapter cannot be applied to {self.path.name}.")

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The GGUF's key-value pairs, values as text."""
        model = self.handle
        pairs = {}
        for index in range(llama_cpp.llama_model_meta_count(model)):
            key = _read_string(llama_cpp.llama_model_meta_key_by_index, model, index)
            pairs[key] = _read_string(llama_cpp.llama_model_meta_val_str_by_index, model, index)
        return pairs

    @property
    def name(self) -> str:
        """The model's own name, or the file's if it has none."""
        return self.metadata.get("general.name") or self.path.stem

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return int(llama_cpp.llama_model_n_params(self.handle))

    @property
    def default_context(self) -> int:
        """The default context length in tokens: that of the training, up to 8192."""
        architecture = self.metadata.get("general.architecture", "")
        trained = int(self.metadata.get(f"{architecture}.context_length", 0))
        return min(trained or _LONGEST_DEFAULT_CONTEXT, _LONGEST_DEFAULT_CONTEXT)

    def memory_estimate(self) -> int:
        """Return the bytes that weights and the KV cache of `default_context` need."""
        values = self.metadata
        prefix = values.get("general.architecture", "") + "."

        def number(key: str, default: int) -> int:
            text = values.get(prefix + key, "")
            return int(text) if text.isdecimal() else default

        heads = max(number("attention.head_count", 1), 1)
        head_width = number("attention.key_length", number("embedding_length", 0) // heads)
        kv_heads = number("attention.head_count_kv", heads)
        per_token = 2 * 2 * number("block_count", 0) * kv_heads * head_width  # keys and values of 16 bits
        return self.path.stat().st_size + self.default_context * per_token

    @property
    def is_small(self) -> bool:
        """Whether a token takes so little time that nothing is worth preparing."""
        return self.path.stat().st_size < _SMALL

    @cached_property
    def has_recurrent_state(self) -> bool:
        """Whether the model is recurrent, so that its cache can be cleared but not rolled back."""
        is_recurrent, is_hybrid = llama_cpp.llama_model_is_recurrent, llama_cpp.llama_model_is_hybrid
        return bool(is_recurrent(self.handle) or is_hybrid(self.handle))

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a generation."""
        is_end = llama_cpp.llama_vocab_is_eog
        return frozenset(token for token in range(self.size) if is_end(self.vocabulary, token))

    @cached_property
    def control_tokens(self) -> Mapping[str, int]:
        """The control tokens, by the text that `tokenize(special=True)` turns into them."""
        handle, text = self.vocabulary, llama_cpp.llama_vocab_get_text
        control = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
        attributes = llama_cpp.llama_vocab_get_attr
        tokens = (token for token in range(self.size) if attributes(handle, token) & control)
        return {text(handle, token).decode(errors="replace"): token for token in tokens}

    @property
    def bos_token(self) -> int | None:
        """The token that every prompt begins with, None if the vocabulary adds none."""
        wanted = llama_cpp.llama_vocab_get_add_bos(self.vocabulary)
        token = int(llama_cpp.llama_vocab_bos(self.vocabulary))
        return token if wanted and token >= 0 else None

    @property
    def begin_text(self) -> str:
        """The text of the token that begins a text, "" if there is none."""
        return self.token_text(llama_cpp.llama_vocab_bos(self.vocabulary))

    @property
    def end_text(self) -> str:
        """The text of the token that ends a text, "" if there is none."""
        return self.token_text(llama_cpp.llama_vocab_eos(self.vocabulary))

    def token_text(self, token: int) -> str:
        """Return the text of a special token such as the end-of-sequence token; "" for a negative one."""
        return self.piece(token).decode(errors="replace") if token >= 0 else ""

    def tokenize(self, text: str, *, special: bool, adds_ends: bool = False) -> list[int]:
        """Return the tokens of a text. `special`: names become special tokens.

        `adds_ends`: with the tokens that the model wants before and after a text. Long runs of letters,
        digits, spaces or signs are tokenized in parts.
        """
        splits_by_pattern = llama_cpp.llama_vocab_type(self.vocabulary) == llama_cpp.LLAMA_VOCAB_TYPE_BPE
        first, *others = _short_runs(text) if splits_by_pattern else [text]
        tokens = self._tokenize(first.encode(), special=special, adds_ends=adds_ends)
        for part in others:
            tokens += self._tokenize(part.encode(), special=special)
        return tokens

    def _tokenize(self, raw: bytes, *, special: bool, adds_ends: bool = False) -> list[int]:
        handle, size = self.vocabulary, len(raw)
        capacity = size + 16
        while True:
            tokens = (llama_cpp.llama_token * capacity)()
            count = llama_cpp.llama_tokenize(handle, raw, size, tokens, capacity, adds_ends, special)
            if count >= 0:
                return list(tokens[:count])
            capacity = -count

    def tokenize_with(self, text: str, control_texts: Collection[str]) -> list[int]:
        """Return the tokens of a text, in which the names in `control_texts` become special tokens."""
        parts = re.split(f"({'|'.join(map(re.escape, control_texts))})", text) if control_texts else [text]
        return [
            token for index, part in enumerate(parts) for token in self.tokenize(part, special=index % 2 == 1)
        ]

    def tokenize_exactly(self, text: str, control_texts: Collection[str] = ()) -> list[int] | None:
        """Return the tokens that spell the text; None if none do.

        Names of special tokens are text, except for those in `control_texts`, which become these tokens. A
        tokenizer may add a space of its own, or know a text that names a special token only as that one.
        """
        tokens = self.tokenize_with(text, control_texts)
        if not self.end_tokens.isdisjoint(tokens):
            return None
        return tokens if b"".join([self.piece(token) for token in tokens]) == text.encode() else None

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token, for a special one those of its name. They may be incomplete UTF-8."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._piece(token)
        return piece

    @cached_property
    def speller(self) -> Speller:
        """Spells texts in tokens that are neither control tokens nor end a generation."""
        attributes, handle = llama_cpp.llama_vocab_get_attr, self.vocabulary
        texts = (
            llama_cpp.LLAMA_TOKEN_ATTR_NORMAL
            | llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED
            | llama_cpp.LLAMA_TOKEN_ATTR_BYTE
        )
        return Speller(
            (token, piece)
            for token, piece in enumerate(self._read_pieces())
            if attributes(handle, token) & texts and token not in self.end_tokens
        )

    @cached_property
    def tokens_by_first_byte(self) -> Callable[[frozenset[int]], npt.NDArray[np.int64]]:
        """The tokens whose piece begins with one of some bytes, ascending. Treat as immutable."""
        firsts = (piece[0] if piece else 256 for piece in self._read_pieces())
        first_bytes = np.fromiter(firsts, dtype=np.uint16, count=self.size)

        @lru_cache(_KEPT_SELECTIONS)
        def select(first: frozenset[int]) -> npt.NDArray[np.int64]:
            wanted = np.zeros(257, dtype=np.bool_)
            wanted[list(first)] = True
            return np.flatnonzero(wanted[first_bytes])

        return select

    @cached_property
    def tokens_by_text(self) -> Mapping[str, int]:
        """The first token of each text that is one token."""
        tokens: dict[str, int] = {}
        for token, piece in enumerate(self._read_pieces()):
            with suppress(UnicodeDecodeError):
                tokens.setdefault(piece.decode(), token)
        return tokens

    def _read_pieces(self) -> list[bytes]:
        """Return the pieces of all tokens."""
        if len(self._pieces) < self.size:
            buffer = ctypes.create_string_buffer(256)
            for token in range(self.size):
                self._pieces[token] = self._piece(token, buffer)
        return [self._pieces[token] for token in range(self.size)]

    def _piece(self, token: int, buffer: Any = None) -> bytes:
        """Return the piece from the vocabulary; `buffer`: where it is written if it fits."""
        buffer = buffer or ctypes.create_string_buffer(64)
        to_piece = llama_cpp.llama_token_to_piece
        while (size := to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)) < 0:
            buffer = ctypes.create_string_buffer(-size)
        return bytes(buffer.raw[:size])


class Speller:
    """Spells bytes in the fewest pieces of a vocabulary, which a tokenizer does not always choose.

    `longest`: of a piece, in bytes.
    """

    def __init__(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """`pieces`: tokens with their bytes; of several with the same bytes, the first is used."""
        self._tokens: dict[bytes, int] = {}
        for token, piece in pieces:
            if piece:
                self._tokens.setdefault(piece, token)
        self.longest = max(map(len, self._tokens), default=0)
        self.spells_every_byte = all(bytes([byte]) in self._tokens for byte in range(256))

    def spell(self, raw: bytes) -> list[int] | None:
        """Return the fewest tokens that spell these bytes, the longest first; None if none do."""
        size = len(raw)
        fewest: list[int | None] = [None] * size + [0]  # tokens from each offset on
        ends = [0] * size
        for start in range(size - 1, -1, -1):
            for end in range(min(start + self.longest, size), start, -1):
                rest = fewest[end]
                if rest is None or raw[start:end] not in self._tokens:
                    continue
                shortest = fewest[start]
                if shortest is None or rest + 1 < shortest:
                    fewest[start], ends[start] = rest + 1, end
        if fewest[0] is None:
            return None
        tokens: list[int] = []
        offset = 0
        while offset < size:
            tokens.append(self._tokens[raw[offset : ends[offset]]])
            offset = ends[offset]
        return tokens


def _read_string(read: Any, model: Any, index: int) -> str:
    """Return the text of a llama.cpp function of the form (model, index, buffer, size) -> length."""
    capacity = 256
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        size = read(model, index, buffer, capacity)
        if size < capacity:
            return buffer.value.decode(errors="replace")
        capacity = size + 1


def _short_runs(text: str) -> list[str]:
    """Return the parts of a text: it is cut inside of long runs only, away from what precedes or follows."""
    if len(text) < 2 * _RUN:
        return [text]
    cuts = [0]
    for run in _LONG_RUN.finditer(text):
        cuts += range(run.start() + _RUN, run.end() - _RUN + 1, _RUN)
    return [text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]
