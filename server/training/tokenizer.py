"""The model's vocabulary: byte-level BPE whose merges split a value alike wherever it occurs.

A value is copied from the request (` reports`) into JSON (`"reports"`), so it must split alike in both.
Hence merges stay inside letter runs, pairs of digits and runs of punctuation; only a few very common words
merge with their space. Pairs, because single digits repeat too often to be identified by the preceding token.
The splitting before BPE is llama.cpp's `deepseek-llm` (src/llama-vocab.cpp): gpt2, llama3 and qwen2 split
`'report'` by their contraction rule, and `deepseek-coder` every digit. The fixed pieces of `training.chat`
are user-defined tokens, which both tokenizers match before they split. Invariants: `encoder` and llama.cpp
return the same tokens.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.chat import SPECIAL, conversation, pieces
from training.traces import trace

if TYPE_CHECKING:
    from collections.abc import Sequence

PRE = "deepseek-llm"
_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-"
    "ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-"
    "ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_LLAMA_CPP_SPLITS = (
    r"[\r\n]",
    rf"\s?[{_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}+",
)
_LEARNING_SPLITS = (r"\p{L}+", r" ?[\{\}\[\]\":,]+", r"[^\p{L}\{\}\[\]\":, ]")
_DIGITS = "0123456789"
_PAIRS = ("20", "19", *(a + b for a in _DIGITS for b in _DIGITS if a + b not in {"20", "19"}))
_SPACE = "Ġ"  # the byte-level alphabet's space


def _splitting(patterns: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def learn(texts: Sequence[str], *, size: int = 3072, spaced_words: int = 220) -> Tokenizer:
    """Return a tokenizer of `size` tokens for such texts, `spaced_words` of them a word with its space."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = _splitting(_LEARNING_SPLITS)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL) - len(pieces()) - len(_PAIRS) - spaced_words,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    learned = json.loads(learner.to_str())["model"]
    merges = [tuple(pair) for pair in learned["merges"]]
    ordered = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    counts = Counter(found for text in texts for found in re.findall(r" ([A-Za-zàèéìòù]+)", text))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = (byte_level.pre_tokenize_str(word)[0][0] for word, _ in counts.most_common())
    words = [word for word in spelled if word in learned["vocab"]][:spaced_words]
    merges += [(pair[0], pair[1]) for pair in _PAIRS]
    merges += [(_SPACE, word) for word in words]
    tokens = dict.fromkeys([*SPECIAL, *pieces(), *ordered, *_PAIRS, *(_SPACE + word for word in words)])
    return encoder(tuple(tokens), merges)


def encoder(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    """Return a tokenizer of these tokens, by id, and merges, best first, which splits as llama.cpp does."""
    made = Tokenizer(
        models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=list(merges))
    )
    made.pre_tokenizer = _splitting(_LLAMA_CPP_SPLITS)
    made.decoder = decoders.ByteLevel()
    known = set(tokens)
    made.add_tokens([AddedToken(piece, normalized=False) for piece in pieces() if piece in known])
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return made


def texts_to_compare(count: int, seed: int = 7) -> list[str]:
    """Return texts to compare tokenizers on: conversations, and unusual characters of every kind."""
    source = random.Random(seed)
    alphabet = "abc XYZ 019 .,:;!?'\"{}[]()<>|/\\-_+*=%$#@~^`\n\t èéàçñüß €…—“” 日本語 한글 مرحبا Привет 😀"
    made: list[str] = []
    while len(made) < count:
        one = trace(source)
        made.append(conversation([("system", one.system()), *one.turns()]))
        made.append("".join(source.choice(alphabet) for _ in range(source.randint(1, 60))))
    return made[:count]
