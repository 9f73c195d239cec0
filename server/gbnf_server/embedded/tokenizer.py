"""The model's vocabulary: byte-level BPE whose merges keep a value's pieces the same wherever it stands.

A value is copied from the request (` reports`) into JSON (`"reports"`), so it must split alike in both.
Hence merges stay inside letter runs and inside runs of JSON punctuation; only a few very common words merge
with their space. The splitting before BPE is llama.cpp's `deepseek-coder` (src/llama-vocab.cpp): gpt2,
llama3 and qwen2 split `'report'` by their contraction rule. What must stay true: `encoder` and llama.cpp
agree token for token.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from gbnf_server.embedded.chat import SPECIAL, conversation
from gbnf_server.embedded.traces import trace

if TYPE_CHECKING:
    from collections.abc import Sequence

PRE = "deepseek-coder"
_LLAMA_CPP_SPLITS = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_LEARNING_SPLITS = (r"\p{L}+", r" ?[\{\}\[\]\":,]+", r"[^\p{L}\{\}\[\]\":, ]")
_SPACE = "Ġ"  # the byte-level alphabet's space


def _splitting(patterns: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def learn(texts: Sequence[str], *, size: int = 2048, spaced_words: int = 160) -> Tokenizer:
    """A tokenizer of `size` tokens for texts like these, `spaced_words` of them a word with its space."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = _splitting(_LEARNING_SPLITS)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL) - spaced_words, initial_alphabet=alphabet, show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    learned = json.loads(learner.to_str())["model"]
    merges = [tuple(pair) for pair in learned["merges"]]
    ordered = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    counts = Counter(found for text in texts for found in re.findall(r" ([A-Za-z]+)", text))
    words = [word for word, _ in counts.most_common() if word in learned["vocab"]][:spaced_words]
    merges += [(_SPACE, word) for word in words]
    tokens = [*SPECIAL, *ordered, *(_SPACE + word for word in words)]
    return encoder(tokens, merges)


def encoder(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    """A tokenizer of these tokens, by id, and merges, best first, which splits as llama.cpp does."""
    made = Tokenizer(
        models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=list(merges))
    )
    made.pre_tokenizer = _splitting(_LLAMA_CPP_SPLITS)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return made


def texts_to_compare(count: int, seed: int = 7) -> list[str]:
    """Texts to compare tokenizers on: conversations, and odd characters of every kind."""
    source = random.Random(seed)
    alphabet = "abc XYZ 019 .,:;!?'\"{}[]()<>|/\\-_+*=%$#@~^`\n\t èéàçñüß €…—“” 日本語 한글 مرحبا Привет 😀"
    made: list[str] = []
    while len(made) < count:
        one = trace(source)
        made.append(conversation([("system", one.system()), *one.turns()]))
        made.append("".join(source.choice(alphabet) for _ in range(source.randint(1, 60))))
    return made[:count]
