"""The demonstration model as a GGUF file that llama.cpp runs.

Invariants: the output layer is tied (no `output.weight`); the rows of the query and key matrices are permuted
from rotary halves to the neighbouring pairs of llama.cpp's `llama` graph.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from gbnf_server.backends.base import DEMO_MODEL_NAME
from training import tokenizer as tokens
from training.chat import CHAT_TEMPLATE, END, PAD, SPECIAL, pieces
from training.model import Model

DESCRIPTION = (
    "A demonstration: a tiny planner trained from scratch on traces generated from the tool manifests of "
    "gbnf-toolkit. It knows those tools and nothing else."
)


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
        weight = parameter.float().cpu().numpy()
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
