"""Compare an adapter in torch and in llama.cpp, and what it costs ordinary text.

    python bench/adapter.py adapter.gguf [--conversations N] [--server URL] [--text FILE …]

Prints at how many places of generated conversations both say the same token, among those that the model
learns: llama.cpp rounds the vectors that it multiplies with quantised weights, so near ties differ. With
`--server`, the same of a llama-server (`llama-server -m MODEL --lora adapter.gguf`), asked once for each
conversation. With `--text`, the perplexity of text files with and without the adapter, by llama.cpp, in
windows of 512 tokens whose second half counts; this does not need the extra `train`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import httpx
import numpy as np
from llama_cpp import Llama

from gbnf_server.llama.api_keys import find as find_key
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.process_globals import patch_default_model_params
from gbnf_server.system.model_files import smollm2_path
from tables import parser_of

WINDOW = 512


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--conversations", type=int, default=100, help="number of conversations")
    parser.add_argument("--server", help="URL of a llama-server with the adapter")
    parser.add_argument("--text", type=Path, nargs="+", help="text files: the perplexity alone")
    options = parser.parse_args()
    patch_default_model_params()
    if options.text:
        texts = [file.read_text() for file in options.text]
        plain, adapted = (perplexity(open_llama(adapter), texts) for adapter in (None, options.adapter))
        print(f"perplexity {plain:.2f}, with the adapter {adapted:.2f} ({adapted / plain - 1:+.1%})")
    else:
        compare(options.adapter, options.conversations, options.server)


def open_llama(adapter: Path | None) -> Llama:
    return Llama(
        str(smollm2_path()),
        lora_path=None if adapter is None else str(adapter),
        n_ctx=2048,
        n_threads=1,
        logits_all=True,
        verbose=False,
    )


def perplexity(llama: Llama, texts: Iterable[str]) -> float:
    total, count = 0.0, 0
    for text in texts:
        tokens = np.array(llama.tokenize(text.encode(), add_bos=False))
        for begin in range(0, len(tokens) - WINDOW + 1, WINDOW):
            window = tokens[begin : begin + WINDOW]
            llama.reset()
            llama.eval(window.tolist())
            scores = llama.scores[WINDOW // 2 - 1 : WINDOW - 1]
            most = scores.max(-1, keepdims=True)
            sums = most[:, 0] + np.log(np.exp(scores - most).sum(-1))
            logits = scores[np.arange(len(scores)), window[WINDOW // 2 :]]
            total += float((sums - logits).sum())
            count += len(scores)
    return float(np.exp(total / count))


def next_token(server: str, tokens: Sequence[int]) -> int:
    body = {"prompt": tokens, "n_predict": 1, "temperature": 0, "n_probs": 1, "cache_prompt": True}
    key = find_key(server)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = httpx.post(f"{server}/completion", json=body, headers=headers, timeout=60)
    answer.raise_for_status()
    return int(answer.json()["completion_probabilities"][0]["id"])


def compare(adapter: Path, conversations: int, server: str | None) -> None:
    import torch  # noqa: PLC0415  # perplexity needs none of these

    from training.llama import read_base  # noqa: PLC0415  # few runs need it
    from training.lora.model import Adapted, read_adapter  # noqa: PLC0415  # few runs need it
    from training.lora.samples import group  # noqa: PLC0415  # few runs need it
    from training.lora.train import ALPHA, FIXED, RANK  # noqa: PLC0415  # few runs need it
    from training.source import Source  # noqa: PLC0415  # few runs need it

    torch.set_num_threads(1)
    vocabulary = NativeModel(smollm2_path(), vocab_only=True)
    model = Adapted(read_base(smollm2_path(), torch.float32), rank=RANK, alpha=ALPHA, fixed=FIXED)
    read_adapter(model, adapter)
    llama = open_llama(adapter)
    places = same = right = served = 0
    for seed in range(conversations):
        rows = group(Source(f"compare {seed}"), lambda text: vocabulary.tokenize(text, special=True))
        whole = rows.parts <= 1
        tokens, trained = rows.tokens[whole], np.flatnonzero(rows.weights[whole])
        with torch.no_grad():
            vectors = model(torch.from_numpy(tokens), torch.arange(len(tokens)), (len(tokens),))
            ours = model.logits(vectors[trained - 1]).argmax(-1).numpy()
        llama.reset()
        llama.eval(tokens.tolist())
        theirs = llama.scores[trained - 1].argmax(-1)
        places, same = places + len(trained), same + int((ours == theirs).sum())
        right += int((theirs == tokens[trained]).sum())
        if server is not None:
            served += next_token(server, tokens[: trained[0]].tolist()) == theirs[0]
    print(f"{places} places: the same token at {same} ({same / places:.1%}); llama.cpp's is right at {right}")
    if server is not None:
        print(f"llama-server: the same first token in {served} of {conversations} conversations")


if __name__ == "__main__":
    main()
