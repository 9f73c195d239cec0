"""Compare an adapter in torch and in llama.cpp: `python bench/adapter.py adapter.gguf`.

Prints at how many places of generated conversations both say the same token, among those that the model
learns. llama.cpp rounds the vectors that it multiplies with quantised weights, so near ties differ. Needs the
extra `train`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from llama_cpp import Llama

from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.process_globals import patch_default_model_params
from gbnf_server.system.model_files import smollm2_path
from training.llama import read_base
from training.lora.model import Adapted, read_adapter
from training.lora.samples import group
from training.lora.train import ALPHA, FIRST, RANK
from training.source import Source


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--conversations", type=int, default=100, help="number of conversations")
    options = parser.parse_args()
    torch.set_num_threads(1)
    patch_default_model_params()
    base_path = smollm2_path()
    vocabulary = NativeModel(base_path, vocab_only=True)
    model = Adapted(read_base(base_path, torch.float32), rank=RANK, alpha=ALPHA, first=FIRST)
    read_adapter(model, options.adapter)
    llama = Llama(
        str(base_path),
        lora_path=str(options.adapter),
        n_ctx=2048,
        n_threads=1,
        logits_all=True,
        verbose=False,
    )
    places = same = right = 0
    for seed in range(options.conversations):
        rows = group(Source(f"compare {seed}"), lambda text: vocabulary.tokenize(text, special=True))
        kept = rows.parts <= 1
        tokens, trained = rows.tokens[kept], np.flatnonzero(rows.trained[kept])
        with torch.no_grad():
            vectors = model(torch.from_numpy(tokens), torch.arange(len(tokens)), (len(tokens),))
            ours = model.logits(vectors[trained - 1]).argmax(-1).numpy()
        llama.reset()
        llama.eval(tokens.tolist())
        theirs = llama.scores[trained - 1].argmax(-1)
        places, same = places + len(trained), same + int((ours == theirs).sum())
        right += int((theirs == tokens[trained]).sum())
    print(f"{places} places: the same token at {same} ({same / places:.1%}); llama.cpp's is right at {right}")


if __name__ == "__main__":
    main()
