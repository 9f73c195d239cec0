"""The demonstration model as a GGUF file that llama.cpp runs, and how close that is to the torch model.

Invariants: the output layer is tied (no `output.weight`); the rows of the query and key matrices are permuted
from rotary halves to the neighbouring pairs of llama.cpp's `llama` graph.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from llama_cpp import Llama
from tokenizers import Tokenizer

from gbnf_server.backends.base import DEMO_MODEL_NAME
from training import tokenizer as tokens
from training.chat import CHAT_TEMPLATE, END, PAD, SPECIAL, conversation, pieces
from training.model import Model, Shape
from training.traces import trace

DESCRIPTION = (
    "A demonstration: a tiny planner trained from scratch on traces generated from the tool manifests of "
    "gbnf-toolkit. It knows those tools and nothing else."
)


def load(folder: Path) -> tuple[Model, Tokenizer]:
    """Return the model and tokenizer of a training folder."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = Model(Shape(vocabulary=tokenizer.get_vocab_size()))
    model.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=True)["model"])
    return model.eval(), tokenizer


def read(path: Path) -> tuple[dict[str, torch.Tensor], Tokenizer]:
    """Return the weights, for `Model.load_state_dict`, and the tokenizer of a GGUF file that `write` made."""
    reader = gguf.GGUFReader(path)

    def texts(key: str) -> list[str]:
        field = reader.fields[key]
        return [bytes(field.parts[part]).decode() for part in field.data]

    merges = [(left, right) for left, right in (each.split(" ") for each in texts("tokenizer.ggml.merges"))]
    count = reader.fields["llama.attention.head_count"]
    heads = int(count.parts[count.data[0]][0])
    weights: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        name = tensor.name.removesuffix(".weight").replace("blk.", "blocks.")
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if name.endswith(("attn_q", "attn_k")):
            rows, columns = weight.shape
            weight = (
                weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
            )
        weights[name] = torch.from_numpy(np.array(weight, dtype=np.float32))
    return weights, tokens.encoder(texts("tokenizer.ggml.tokens"), merges)


def _permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    # rows (head, half, pair) -> (head, pair, half): convert_hf_to_gguf.py, LlamaModel.permute
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(model: Model, tokenizer: Tokenizer, path: Path) -> None:
    """Write the GGUF file, with matrices of type Q8_0."""
    shape = model.shape
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(DEMO_MODEL_NAME)
    writer.add_description(DESCRIPTION)
    writer.add_license("MIT")
    writer.add_size_label(f"{sum(each.numel() for each in model.parameters()) / 1e6:.1f}M")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _write_vocabulary(writer, tokenizer)
    for name, parameter in model.state_dict().items():
        weight = parameter.float().numpy()
        target = name.replace("blocks.", "blk.") + ".weight"
        if name.endswith(("attn_q", "attn_k")):
            weight = _permuted(weight, shape.heads)
        if weight.ndim == 1:
            writer.add_tensor(target, weight)
        else:
            made = gguf.quants.quantize(np.ascontiguousarray(weight), gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(target, made, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    learned = json.loads(tokenizer.to_str())["model"]
    vocabulary: dict[str, int] = learned["vocab"]
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(tokens.PRE)
    writer.add_token_list(ordered)
    kinds = dict.fromkeys(pieces(), gguf.TokenType.USER_DEFINED) | dict.fromkeys(
        SPECIAL, gguf.TokenType.CONTROL
    )
    writer.add_token_types([kinds.get(token, gguf.TokenType.NORMAL) for token in ordered])
    writer.add_token_merges([" ".join(pair) for pair in learned["merges"]])
    writer.add_eos_token_id(vocabulary[END])
    writer.add_eot_token_id(vocabulary[END])
    writer.add_bos_token_id(vocabulary[END])  # never added: some readers want one to exist
    writer.add_pad_token_id(vocabulary[PAD])
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def tokenizer_mismatches(llama: Llama, tokenizer: Tokenizer, count: int) -> list[str]:
    """Return the texts that the two tokenizers split differently."""
    return [
        text
        for text in tokens.texts_to_compare(count)
        if llama.tokenize(text.encode(), add_bos=False, special=True)
        != tokenizer.encode(text, add_special_tokens=False).ids
    ]


def _greedy(model: Model, ids: list[int], end: int, most: int) -> list[int]:
    made: list[int] = []
    with torch.no_grad():
        while len(made) < most:
            following = int(model.logits(model(torch.tensor([ids + made]))[0, -1]).argmax())
            if following == end:
                break
            made.append(following)
    return made


def greedy_matches(llama: Llama, model: Model, tokenizer: Tokenizer, count: int) -> int:
    """Of `count` first calls, how many llama.cpp writes token for token as torch does."""
    source = random.Random(11)
    end = tokenizer.token_to_id(END) or 0
    matches = 0
    for _ in range(count):
        one = trace(source, parts=1)
        prompt = conversation([("system", one.system()), ("user", one.request)]) + "<|assistant|>"
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        ours = _greedy(model, ids, end, 100)
        answer: Any = llama.create_completion(ids, max_tokens=100, temperature=0.0)
        theirs = answer["choices"][0]["text"]
        matches += tokenizer.decode(ours, skip_special_tokens=False) == theirs
    return matches
