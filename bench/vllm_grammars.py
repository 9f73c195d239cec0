"""What a real vLLM, whose engine is xgrammar, does with our grammars: which it refuses, and which it loosens.

    python bench/vllm_grammars.py --vllm VENV/bin/vllm --folder FOLDER [--every 100] [--data bfcl_eval/data]

FOLDER is written by `vllm_folder.py`. Two tables. First the constructs of GBNF in which xgrammar differs, or
might: each is sent as llama.cpp reads it, and as `gbnf.dialects.xgrammar` rewrites it. Then whole grammars:
one of every N schemas of MaskBench, and the functions of BFCL's requests, translated as the `vllm` backend
does. The bundled model knows none of them and samples at temperature 2, so the grammar alone decides. Each
answer is matched against the original grammar; a truncated answer must be the beginning of a text of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from corpus import load_cases
from distributed import vllm_backend, vllm_server
from gateway import requests_of
from gbnf import Grammar, compile_schema
from gbnf.dialects import xgrammar_text
from gbnf.errors import GbnfError
from gbnf.prompts.messages import Message
from gbnf_server import OpenAICompatible
from gbnf_server.backends.base import Request
from gbnf_server.system.errors import BackendError, GrammarRefusedError
from tables import parser_of, print_heads

TIMEOUT = 120.0
MESSAGES: list[Message] = [{"role": "user", "content": "Write some text."}]

CONSTRUCTS = {
    "`.`": 'root ::= "a" . "b"',
    "a class that begins with a caret": r"root ::= [\x5Ea] [\x5Ea] [\x5Ea]",
    "a negated class of a caret": r'root ::= [^\x5E] "b"',
    r"`\xHH` before a hexadecimal digit": r'root ::= "\x01ab"',
    r"the same in a class": r'root ::= [\x01a-c] "d"',
    r"`\xHH` before another letter": r'root ::= "\x01x"',
    "a rule name that begins with a digit": 'root ::= 0a\n0a ::= "x" | "y"',
    "a rule name that begins with a hyphen": 'root ::= -a\n-a ::= "x" | "y"',
    r"`\U` and `\u` escapes": r'root ::= "\u00e8" [\U0001F600-\U0001F610]',
    "a counted repetition": 'root ::= "a"{3} "b"{0,2} "c"{2,}',
    "an empty literal, an optional rule": 'root ::= "" a? "z"\na ::= "x"',
    "a class that holds `]` and `-`": r'root ::= [\]a\-]{2} "z"',
}
"""Constructs of GBNF, as llama.cpp reads them."""


@dataclass(frozen=True)
class Verdict:
    """What the server did with a grammar. `seconds`: for the whole request."""

    kind: str  # same language, loosened, refused, error
    detail: str
    seconds: float


def verdict_of(backend: OpenAICompatible, grammar: Grammar, *, seed: int, max_tokens: int) -> Verdict:
    """Ask for one answer in the grammar, as the backend does."""
    started = time.perf_counter()

    def result(kind: str, detail: str = "") -> Verdict:
        return Verdict(kind, detail, time.perf_counter() - started)

    try:
        answer = backend.complete(
            Request(MESSAGES, grammar=grammar, temperature=2.0, seed=seed, max_tokens=max_tokens)
        )
    except GrammarRefusedError as error:
        return result("refused", str(error))
    except BackendError as error:
        return result("error", f"{type(error).__name__}: {error}")
    if answer.grammar_violation:
        return result("loosened", f"{answer.grammar_violation}: {answer.text[:80]!r}")
    return result("complete" if answer.finish_reason == "stop" else "truncated")


def raw_verdict(url: str, model: str, text: str, grammar: Grammar, seeds: int) -> str:
    """Send GBNF as it is; return what the server does with it."""
    answers = []
    for seed in range(seeds):
        body: dict[str, Any] = {
            "model": model,
            "messages": MESSAGES,
            "structured_outputs": {"grammar": text},
            "temperature": 2.0,
            "seed": seed,
            "max_tokens": 40,
        }
        response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=TIMEOUT, trust_env=False)
        if response.status_code != 200:
            return f"refused ({response.status_code})"
        choice = response.json()["choices"][0]
        answers.append(choice["message"]["content"] or "")
    wrong = [answer for answer in answers if not grammar.match(answer).accepted]
    return f"other language, as {wrong[0][:12]!r}" if wrong else "same language"


def constructs_table(url: str, model: str, seeds: int) -> None:
    """Print what the server does with each construct."""
    print_heads("construct | sent as llama.cpp reads it | rewritten")
    for name, text in CONSTRUCTS.items():
        grammar = Grammar.parse(text)
        rewritten = xgrammar_text(grammar)
        kinds = [raw_verdict(url, model, sent, grammar, seeds) for sent in (text, rewritten)]
        print(f"| {name} | {' | '.join(kinds)} |", flush=True)


def functions(folder: Path, count: int) -> Iterator[tuple[str, Any]]:
    """Yield the schemas of BFCL's functions."""
    for number, request in enumerate(requests_of(folder, count)):
        for tool in request["tools"]:
            yield f"request {number}, {tool['function']['name']}", tool["function"]["parameters"]


def grammars_row(backend: OpenAICompatible, name: str, cases: Sequence[tuple[str, Any]]) -> None:
    """Print the row of a collection, and what was refused or loosened."""
    verdicts: list[tuple[str, Verdict]] = []
    for seed, (case, schema) in enumerate(cases):
        try:
            grammar = compile_schema(schema)
        except GbnfError:
            continue  # no value satisfies it
        verdicts.append((case, verdict_of(backend, grammar, seed=seed, max_tokens=150)))
    kinds = Counter(verdict.kind for _, verdict in verdicts)
    counts = " | ".join(
        str(kinds[kind]) for kind in ("complete", "truncated", "loosened", "refused", "error")
    )
    slowest = max(verdict.seconds for _, verdict in verdicts)
    print(f"| {name} | {len(verdicts)} | {counts} | {slowest:.1f} |", flush=True)
    for case, verdict in verdicts:
        if verdict.kind not in {"complete", "truncated"}:
            print(f"<!-- {case}: {verdict.kind}, {verdict.detail[:200]} -->")


def main() -> None:
    """Start vLLM, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--vllm", type=Path, required=True, help="the program `vllm`")
    parser.add_argument("--folder", type=Path, required=True, help="the model, written by vllm_folder.py")
    parser.add_argument("--every", type=int, default=100, help="take one of so many schemas of MaskBench")
    parser.add_argument("--data", type=Path, help="the folder bfcl_eval/data")
    parser.add_argument("--seeds", type=int, default=8, help="answers for each construct")
    options = parser.parse_args()
    with (
        vllm_server(options.vllm, options.folder, sequences=4) as url,
        closing(vllm_backend(url)) as backend,
    ):
        constructs_table(url, backend.model_name(), options.seeds)
        print()
        print_heads("grammars of | number | complete | truncated | loosened | refused | error | slowest, s")
        cases = [(case.id, case.schema) for case in load_cases(every=options.every)]
        grammars_row(backend, "MaskBench", cases)
        if options.data is not None:
            grammars_row(backend, "BFCL's functions", [*functions(options.data, 40)])


if __name__ == "__main__":
    main()
