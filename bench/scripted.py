"""Models with known answers, for timing: random weights, a real vocabulary, a script.

The cost of a model does not depend on its weights, but the text that it generates does, and contenders can be
compared only where they generate the same. So the weights are random and small, with two exceptions: each
position has a strong embedding (GPT-2's architecture has a table of positions), and the output row of the
token that a script has at a position points along it. At that position the model generates that token, in
every program and under any grammar that allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

#: ChatML; with tools as Hermes and Qwen have them, so that llama-server knows how calls are written.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ messages[0].content }}\n\n# Tools\n\n<tools>\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n\nFor each call, return a JSON object "
    'within tags:\n<tool_call>\n{"name": <name>, "arguments": <arguments>}\n</tool_call><|im_end|>\n'
    "{% endif %}{% for message in messages %}{% if not (tools and loop.first) %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_BLOCK = 32  # values of Q8_0 that share a scale
_QUIET = 0.004  # of weights that add to what the positions say
_LOUD = 0.05  # how far the wanted token's logit stands out, for each dimension


@dataclass(frozen=True)
class Shape:
    """What decides on the cost of a step, besides the vocabulary."""

    width: int = 1024
    layers: int = 28
    heads: int = 16
    context: int = 4096

    def parameters(self, vocabulary: int) -> int:
        """How many parameters a step goes through: the layers' and the output's."""
        return 12 * self.width * self.width * self.layers + vocabulary * self.width


def write_model(path: Path, vocabulary: Path, script: Mapping[int, int], shape: Shape, *, name: str) -> None:
    """Write a GGUF over the tokens of another one.

    `script`: for a position in prompt and answer, the token that is said behind the token that stands there.
    """
    random = np.random.default_rng(1)
    reader = gguf.GGUFReader(vocabulary)
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_name(name)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(4 * shape.width)
    writer.add_block_count(shape.layers)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer.") and field.name != "tokenizer.chat_template":
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_chat_template(TEMPLATE)
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    width = shape.width

    positions = random.standard_normal((shape.context, width)).astype(np.float32)
    writer.add_tensor("position_embd.weight", positions)
    _add(writer, "token_embd.weight", _noise(random, tokens, width))
    output = _noise(random, tokens, width)
    rows: dict[int, np.ndarray] = {}
    for position, token in script.items():
        rows[token] = rows.get(token, np.zeros(width, np.float32)) + _LOUD * positions[position]
    for token, row in rows.items():
        output[token] = gguf.quants.quantize(row[None], gguf.GGMLQuantizationType.Q8_0)[0]
    _add(writer, "output.weight", output)
    for layer in range(shape.layers):
        for part, (many, size) in {
            "attn_qkv": (3 * width, width),
            "attn_output": (width, width),
            "ffn_up": (4 * width, width),
            "ffn_down": (width, 4 * width),
        }.items():
            raw = _fine_noise(random, many, size)
            writer.add_tensor(f"blk.{layer}.{part}.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
            writer.add_tensor(f"blk.{layer}.{part}.bias", np.zeros(many, np.float32))
        for part in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{part}.weight", np.ones(width, np.float32))
            writer.add_tensor(f"blk.{layer}.{part}.bias", np.zeros(width, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    writer.add_tensor("output_norm.bias", np.zeros(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _noise(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Return a matrix of small random weights as the bytes of Q8_0: per block a scale and 32 signed bytes."""
    blocks = np.empty((rows, columns // _BLOCK, 2 + _BLOCK), dtype=np.uint8)
    spread = 127 / np.sqrt(3)  # of bytes that are all as likely
    blocks[..., :2] = np.frombuffer(np.float16(_QUIET / spread).tobytes(), dtype=np.uint8)
    size = rows * columns
    blocks[..., 2:] = np.frombuffer(random.bytes(size), dtype=np.uint8).reshape(rows, -1, _BLOCK)
    return blocks.reshape(rows, -1)


def _fine_noise(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Return the same as the bytes of Q4_K, the type that most files of this size have for their layers."""
    blocks = np.frombuffer(random.bytes(rows * columns // 256 * 144), dtype=np.uint8)
    blocks = blocks.reshape(rows, -1, 144).copy()
    unit = _QUIET / 150  # of a scale (6 bits) times a value (4 bits), minus 7.5 times another scale
    for place, scale in ((0, unit), (2, 7.5 * unit)):
        blocks[..., place : place + 2] = np.frombuffer(np.float16(scale).tobytes(), dtype=np.uint8)
    return blocks.reshape(rows, -1)


def _add(writer: gguf.GGUFWriter, name: str, raw: np.ndarray) -> None:
    writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
