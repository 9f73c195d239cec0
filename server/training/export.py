"""Export a checkpoint to GGUF and compare both: `python -m training.export --from embedded-training`.

Writes the model as Q8_0, then checks that llama.cpp splits texts into the tokens that training used,
and that its greedy answers are those of the torch model. Exits with status 1 where a text is split
differently. Needs the extra `train`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gbnf_server.llama.demo_model import model_path


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--from", dest="folder", type=Path, default=Path("embedded-training"), help="folder of the training"
    )
    parser.add_argument("--to", type=Path, default=model_path(), help="the file (default: the bundled model)")
    parser.add_argument("--texts", type=int, default=4000, help="number of texts to tokenize with both")
    parser.add_argument("--calls", type=int, default=100, help="number of greedy answers to compare")
    options = parser.parse_args()
    import torch  # noqa: PLC0415  # --help needs neither torch nor an engine
    from llama_cpp import Llama  # noqa: PLC0415

    from gbnf_server.llama.process_globals import patch_default_model_params  # noqa: PLC0415
    from training.gguf_file import greedy_matches, load, tokenizer_mismatches, write  # noqa: PLC0415

    torch.set_num_threads(1)
    model, tokenizer = load(options.folder)
    write(model, tokenizer, options.to)
    print(f"{options.to}: {options.to.stat().st_size:,} bytes")
    patch_default_model_params()
    llama = Llama(str(options.to), n_ctx=1024, verbose=False)
    wrong = tokenizer_mismatches(llama, tokenizer, options.texts)
    print(f"tokenizer: {len(wrong)} of {options.texts} texts split differently {wrong[:2]}")
    if options.calls:
        equal = greedy_matches(llama, model, tokenizer, options.calls)
        print(f"greedy: {equal} of {options.calls} calls equal")
    if wrong:
        raise SystemExit("llama.cpp and the training tokenizer split texts differently")


if __name__ == "__main__":
    main()
