"""Time whole calls: the cost of a grammar during decoding, and what forced continuations save.

    python bench/decode.py [--embedded | --vocab GGUF] [--calls N] [--repeat N] [--only NAME …] [--servers]
                           [--layout NAME …] [--folder DIR] [--json OUT] [--plot OUT.svg]

The model has random weights over a real vocabulary, half a billion parameters, and generates a given call at
given positions in every program (`scripted`), so that all contenders generate the same tokens. `--embedded`
uses the bundled model instead, which samples freely. In each round every contender generates the call once,
so that the machine's load affects all alike; the prompt is in every KV cache by then. Ratios are of medians
within one run. `--folder` keeps the model for the next run.

    unconstrained     our loop without a grammar: the same text, unconstrained
    llama-cpp-python  `Llama` without a grammar
    full mask         `Llama` with a `LlamaGrammar`, which masks the whole vocabulary
    token by token    our loop, every token sampled
    jump-forward      our loop, forced tokens are evaluated in batches
    llguidance        the same with llguidance as engine
    server            llama-server with our grammar (`/completion`)
    server's tools    llama-server with its own (`/v1/chat/completions`, `tool_choice: required`)
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import httpx
import typer
from llama_cpp import Llama, LlamaGrammar
from rich.console import Console
from rich.table import Table

from calls import CALLS
from corpus import DEFAULT_VOCABULARY, DataMissingError, shared_path
from gbnf import Grammar, compile_pool, load_manifests
from gbnf.compiler.layout import Whitespace
from gbnf.prompts.messages import Message, call_text, system_prompt
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import ChatTemplate, InProcess
from gbnf_server.llama import api_keys
from gbnf_server.llama import server_build as build
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.process_globals import patch_default_model_params
from gbnf_server.system.errors import SetupError
from gbnf_server.system.folders import manifests_path
from scripted import Shape, write_model
from tables import new_table, show

_NAMES = ("get_now", "create_dirs", "find_files", "find_events_empty", "send_messages")
_REQUESTS = {
    "get_now": "what time is it in Europe/Rome?",
    "create_dirs": "create the folder trips/rome",
    "find_files": "find the csv files in reports",
}
_THREADS = 1  # two threads that share their cores with other programs mostly wait for each other
_MOST_TOKENS = 200
_TOOLS = "server's tools"
_IN_PROCESS = (
    "unconstrained",
    "llama-cpp-python",
    "full mask",
    "token by token",
    "jump-forward",
    "llguidance",
)
_CONTENDERS = (*_IN_PROCESS, "server", _TOOLS)


@dataclass(frozen=True, slots=True)
class Job:
    """An expected call, the messages of its conversation, and their rendered prompt."""

    name: str
    text: str
    messages: list[Message]
    prompt: str


@dataclass(frozen=True, slots=True)
class GeneratedCall:
    """One generated call: seconds in total and in the grammar, tokens, and how many were forced."""

    seconds: float
    text: str
    tokens: int
    forced: int = 0
    grammar_s: float | None = None


Contender = Callable[[Job], GeneratedCall]


def scripted_jobs() -> list[Job]:
    """Return calls in prompts of different lengths, so that no two calls share a position."""
    tools = [tool for tool in load_manifests(manifests_path()) if tool.name in _NAMES]
    padding, jobs = 0, []
    for name in _NAMES:
        text = call_text({"name": name, "arguments": CALLS[name]})
        messages: list[Message] = [
            {"role": "system", "content": system_prompt(tools)},
            {"role": "user", "content": f"go{' on' * padding}"},
        ]
        jobs.append(Job(name, text, messages, plain_prompt(messages)))
        padding += len(text)  # no text has more tokens than characters
    return jobs


def embedded_jobs(model: NativeModel) -> list[Job]:
    """Return requests that the bundled model was trained on. Their expected calls are empty."""
    tools = [tool for tool in load_manifests(manifests_path()) if tool.name in _NAMES]
    template, jobs = ChatTemplate(model), []
    for name, request in _REQUESTS.items():
        messages: list[Message] = [
            {"role": "system", "content": system_prompt(tools, style="minimal")},
            {"role": "user", "content": request},
        ]
        constrained = Request(messages, Grammar.parse('root ::= "{}"'))
        jobs.append(Job(name, "", messages, template.prompt(constrained)))
    return jobs


def script(model: NativeModel, prompt: Sequence[int], text: str) -> dict[int, int]:
    """Return the token for each position, with which the model generates `text` after the prompt."""
    tokens = [*model.tokenize(text, special=True), min(model.end_tokens)]
    return {len(prompt) - 1 + index: token for index, token in enumerate(tokens)}


def prompt_tokens(model: NativeModel, text: str) -> list[int]:
    """Return the tokens of a prompt, starting with the BOS token if the model has one."""
    tokens = model.tokenize(text, special=True)
    start = model.bos_token
    return tokens if start is None or tokens[:1] == [start] else [start, *tokens]


def plain_prompt(messages: Sequence[Message]) -> str:
    """Return the prompt of a conversation, as the chat template of `scripted` renders it."""
    turns = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


def ours(path: Path, grammar: Grammar | None, context: int, **options: Any) -> tuple[InProcess, Contender]:
    """Return this package's backend, and it as a contender."""
    backend = InProcess(path, threads=_THREADS, context_length=context, **options)

    def write(job: Job) -> GeneratedCall:
        begun = time.perf_counter()
        completion = backend.complete(Request(job.messages, grammar=grammar, max_tokens=_MOST_TOKENS))
        seconds = time.perf_counter() - begun
        return GeneratedCall(
            seconds,
            completion.text,
            completion.usage.completion_tokens,
            completion.usage.forced_tokens,
            completion.timings.grammar_s,
        )

    return backend, write


def llama_cpp_python(path: Path, grammar: Grammar | None, context: int, model: NativeModel) -> Contender:
    """Return llama-cpp-python's `Llama` as a contender, with greedy sampling."""
    patch_default_model_params()
    llama = Llama(str(path), n_ctx=context, n_threads=_THREADS, n_threads_batch=_THREADS, verbose=False)

    def write(job: Job) -> GeneratedCall:
        prompt = prompt_tokens(model, job.prompt)
        begun = time.perf_counter()
        compiled = None if grammar is None else LlamaGrammar.from_string(str(grammar), verbose=False)
        answer: Any = llama.create_completion(
            prompt, max_tokens=_MOST_TOKENS, temperature=0.0, grammar=compiled
        )
        seconds = time.perf_counter() - begun
        return GeneratedCall(seconds, answer["choices"][0]["text"], answer["usage"]["completion_tokens"])

    return write


def _key(url: str) -> dict[str, str]:
    """Return the header with the API key of a server that this package started."""
    return {"Authorization": f"Bearer {api_keys.find(url)}"}


def server(url: str, grammar: Grammar, model: NativeModel) -> Contender:
    """Return llama-server with our grammar as a contender."""
    client = httpx.Client(base_url=url, headers=_key(url), timeout=600, trust_env=False)

    def write(job: Job) -> GeneratedCall:
        body = {
            "prompt": prompt_tokens(model, job.prompt),
            "grammar": str(grammar),
            "n_predict": _MOST_TOKENS,
            "temperature": 0,
            "cache_prompt": True,
            "id_slot": 0,
        }
        begun = time.perf_counter()
        answer = client.post("/completion", json=body).raise_for_status().json()
        return GeneratedCall(time.perf_counter() - begun, answer["content"], answer["tokens_predicted"])

    return write


def tools_body(job: Job) -> dict[str, Any]:
    """Return the body of a request to `/v1/chat/completions` with the same tools."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.descriptions["en"],
                "parameters": {key: value for key, value in tool.args.items() if key != "requires_one_of"},
            },
        }
        for tool in load_manifests(manifests_path())
        if tool.name in _NAMES
    ]
    shared = {"messages": job.messages, "tools": tools, "tool_choice": "required", "temperature": 0}
    return {
        **shared,
        "max_tokens": _MOST_TOKENS,
        "cache_prompt": True,
        "parallel_tool_calls": False,
        "id_slot": 1,
    }


def server_tools(url: str) -> Contender:
    """Return llama-server with its own grammar for tools as a contender."""
    client = httpx.Client(base_url=url, headers=_key(url), timeout=600, trust_env=False)

    def write(job: Job) -> GeneratedCall:
        body = tools_body(job)
        begun = time.perf_counter()
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
        seconds = time.perf_counter() - begun
        calls = answer["choices"][0]["message"].get("tool_calls") or [
            {"function": {"name": "", "arguments": "{}"}}
        ]
        function = calls[0]["function"]
        call = {"name": function["name"], "arguments": json.loads(function["arguments"])}
        return GeneratedCall(seconds, call_text(call), answer["usage"]["completion_tokens"])

    return write


def tools_script(vocabulary: Path, folder: Path, model: NativeModel, wanted: Sequence[Job]) -> dict[int, int]:
    """Return the script for llama-server's own prompt for tools, rendered by one with a small model."""
    small = folder / "small.gguf"
    write_model(small, vocabulary, {}, Shape(width=256, layers=1), name="small")
    tokens: dict[int, int] = {}
    with build.start(small, threads=1, context_length=512) as running:
        for job in wanted:
            answer = httpx.post(
                f"{running.url}/apply-template",
                headers=_key(running.url),
                json=tools_body(job),
                timeout=60,
                trust_env=False,
            )
            prompt = prompt_tokens(model, answer.raise_for_status().json()["prompt"])
            tokens |= script(model, prompt, f"<tool_call>\n{job.text}\n</tool_call>")
    return tokens


@dataclass(frozen=True, slots=True)
class Result:
    """The completions of one call by one contender."""

    contender: str
    layout: str
    job: str
    seconds: tuple[float, ...]
    grammar_s: tuple[float, ...]
    tokens: int
    forced: int
    is_same: bool

    @property
    def median(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.seconds)


def measure(contenders: Mapping[str, Contender], job: Job, layout: str, rounds: int) -> Iterator[Result]:
    """Time one call with all contenders in turn, round by round. The first round fills their KV caches."""
    written: dict[str, list[GeneratedCall]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, write in contenders.items():
            answer = write(job)
            if turn:
                written[name].append(answer)
    expected = job.text or next(iter(written.values()))[-1].text
    for name, all_of_it in written.items():
        grammar = tuple(answer.grammar_s for answer in all_of_it if answer.grammar_s is not None)
        last = all_of_it[-1]
        seconds = tuple(answer.seconds for answer in all_of_it)
        same = all(answer.text == expected for answer in all_of_it)
        yield Result(name, layout, job.name, seconds, grammar, last.tokens, last.forced, same)


def summary(results: Sequence[Result], layout: str) -> Table:
    """Return a row for each contender, over all calls that it generated as expected."""
    drawn = new_table(
        "contender | calls | s | tokens/s | × unconstrained | × token by token | grammar, ms/token | forced",
        f"{layout} layout: sums of medians over the calls",
    )
    mine = [result for result in results if result.layout == layout]
    table = {(row.contender, row.job): row for row in mine}
    for name in dict.fromkeys(row.contender for row in mine):
        rows = [row for row in mine if row.contender == name and row.is_same]
        if not rows:
            drawn.add_row(name, "0")
            continue
        seconds, tokens = sum(row.median for row in rows), sum(row.tokens for row in rows)
        against = {
            other: sum(table[other, row.job].median for row in rows)
            for other in ("unconstrained", "token by token", "llama-cpp-python")
            if all((other, row.job) in table for row in rows)
        }
        cost = None
        if rows[0].grammar_s:
            cost = sum(statistics.median(row.grammar_s) for row in rows)
        elif name == "full mask" and "llama-cpp-python" in against:
            cost = seconds - against["llama-cpp-python"]
        drawn.add_row(
            name,
            str(len(rows)),
            f"{seconds:.2f}",
            f"{tokens / seconds:.1f}",
            *(
                f"{seconds / against[other]:.2f}" if other in against else ""
                for other in ("unconstrained", "token by token")
            ),
            "" if cost is None else f"{1e3 * cost / tokens:.3f}",
            f"{sum(row.forced for row in rows)} of {tokens}",
        )
    return drawn


def verdict(results: Sequence[Result]) -> Iterator[str]:
    """Yield the cost of the constraint, of a step of the model and of llama-cpp-python's mask."""
    rows = {(result.contender, result.layout, result.job): result for result in results if result.is_same}
    steps, constraint, masks = [], [], []
    for (name, layout, job), row in rows.items():
        if name == "token by token" and ("unconstrained", layout, job) in rows:
            steps.append(rows["unconstrained", layout, job].median / row.tokens)
            constraint.append(statistics.median(row.grammar_s) / row.tokens)
            if {("full mask", layout, job), ("llama-cpp-python", layout, job)} <= rows.keys():
                mask = rows["full mask", layout, job].median - rows["llama-cpp-python", layout, job].median
                masks.append(mask / row.tokens)
    if not steps:
        return
    step, ours_s = statistics.median(steps), statistics.median(constraint)
    yield f"a step of the model: {1e3 * step:.1f} ms"
    yield f"our constraint: {1e6 * ours_s:.0f} µs a token, {ours_s / step:.2%} of that"
    if masks:
        mask_s = statistics.median(masks)
        yield f"llama-cpp-python's mask: {1e3 * mask_s:.1f} ms a token, {mask_s / ours_s:.0f} times as much"


def plot(results: Sequence[Result], path: Path) -> None:
    """Write the sums of medians, in seconds, as horizontal bars to an SVG file."""
    sums: dict[tuple[str, str], float] = {}
    for run in results:
        if run.is_same:
            sums[run.layout, run.contender] = sums.get((run.layout, run.contender), 0) + run.median
    longest, row = max(sums.values()), 22
    marks = []
    for index, ((layout, name), seconds) in enumerate(sums.items()):
        y, width = 10 + index * row, 420 * seconds / longest
        color = "#3b6ea5" if name in {"jump-forward", "llguidance"} else "#b8c4d0"
        marks.append(f'<text x="190" y="{y + 14}" text-anchor="end">{name} ({layout})</text>')
        marks.append(f'<rect x="200" y="{y + 2}" width="{width:.1f}" height="{row - 6}" fill="{color}"/>')
        marks.append(f'<text x="{206 + width:.1f}" y="{y + 14}">{seconds:.2f} s</text>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {20 + row * len(sums)}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(marks)}</svg>\n"
    )


def scripted_model(
    folder: Path, vocabulary: Path, shape: Shape, model: NativeModel, all_jobs: Sequence[Job]
) -> Path:
    """Return the path of the scripted model, which is created if it does not exist."""
    path = folder / f"{vocabulary.stem}-{shape.width}-{shape.layers}.gguf"
    if path.exists():
        return path
    tokens: dict[int, int] = {}
    for job in all_jobs:
        tokens |= script(model, prompt_tokens(model, job.prompt), job.text)
    if build.find_llama_server() is not None:
        tools = tools_script(vocabulary, folder, model, all_jobs)
        if tokens.keys() & tools.keys():
            Console(stderr=True).print("llama-server's prompts for tools overlap with ours")
        tokens = tools | tokens
    write_model(path, vocabulary, tokens, shape, name="scripted")
    return path


def contenders_of(
    path: Path, grammar: Grammar, context: int, model: NativeModel, names: Sequence[str], opened: ExitStack
) -> dict[str, Contender]:
    """Start the contenders in `names` that this machine can run, and return them in the order of `names`."""
    contenders: dict[str, Contender] = {}

    def add(name: str, constraint: Grammar | None, **options: Any) -> None:
        if name in names:
            backend, contenders[name] = ours(path, constraint, context, **options)
            opened.enter_context(backend)

    add("unconstrained", None)
    for name, constraint in (("llama-cpp-python", None), ("full mask", grammar)):
        if name in names:
            contenders[name] = llama_cpp_python(path, constraint, context, model)
    add("token by token", grammar, jump_forward=False)
    add("jump-forward", grammar)
    try:
        add("llguidance", grammar, engine="llguidance")
    except SetupError as error:
        Console(stderr=True).print(str(error))
    if {"server", _TOOLS} & set(names) and build.find_llama_server() is not None:
        # a slot for each of its two prompts
        started = build.start(path, threads=_THREADS, context_length=context, slots=2)
        url = opened.enter_context(started).url
        contenders |= {"server": server(url, grammar, model), _TOOLS: server_tools(url)}
    return {name: write for name, write in contenders.items() if name in names}


def main(
    vocab: Annotated[Path | None, typer.Option(help="Vocabulary, a GGUF file.")] = None,
    embedded: Annotated[bool, typer.Option(help="Use the bundled model.")] = False,
    calls: Annotated[int, typer.Option(help="Number of calls.")] = 5,
    repeat: Annotated[int, typer.Option(help="Rounds per call.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help="Contender, repeatable.")] = None,
    servers: Annotated[bool, typer.Option(help="Include llama-server: much slower.")] = False,
    layout: Annotated[
        list[str] | None, typer.Option(help="JSON layout, as in compile_pool; repeatable.")
    ] = None,
    width: Annotated[int, typer.Option(help="Width of the model, a multiple of 256.")] = 1024,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 28,
    folder: Annotated[Path | None, typer.Option(help="Folder to keep the model in, about 500 MB.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all times to this file.")] = None,
    plot_out: Annotated[
        Path | None, typer.Option("--plot", help="Write a plot to this file, as SVG.")
    ] = None,
) -> None:
    """Time whole calls by all contenders."""
    results: list[Result] = []
    pool = [tool for tool in load_manifests(manifests_path()) if tool.name in _NAMES]
    shape = Shape(width=width, layers=layers, heads=width // 64)
    with tempfile.TemporaryDirectory() as temporary:
        if embedded:
            path = model_path()
            model = NativeModel(path, vocab_only=True)
            wanted = embedded_jobs(model)
        else:
            try:
                vocabulary = vocab or shared_path("vocabs", DEFAULT_VOCABULARY)
            except DataMissingError as error:
                raise SystemExit(str(error)) from None
            model = NativeModel(vocabulary, vocab_only=True)
            wanted = scripted_jobs()
            model_folder = folder or Path(temporary)
            model_folder.mkdir(parents=True, exist_ok=True)
            path = scripted_model(model_folder, vocabulary, shape, model, wanted)
        for spacing in layout or ["default", "spaced"]:
            grammar = compile_pool(pool, whitespace=cast("Whitespace", spacing))
            asked = only or (_CONTENDERS if servers else _IN_PROCESS)
            names = [name for name in _CONTENDERS if name in asked]
            with ExitStack() as opened:
                contenders = contenders_of(path, grammar, shape.context // 2, model, names, opened)
                for job in wanted[:calls]:
                    results += measure(contenders, job, spacing, repeat)
    print(f"{path.stem}, {model.size} tokens")
    for spacing in dict.fromkeys(result.layout for result in results):
        show(summary(results, spacing))
    for line in verdict(results):
        print(line)
    for result in results:
        if not result.is_same:
            text = f"another text for {result.job} ({result.layout})"
            print(f"{result.contender} generated {text}: not counted")
    if json_out:
        json_out.write_text(json.dumps([asdict(result) for result in results], indent=1))
    if plot_out:
        plot(results, plot_out)


if __name__ == "__main__":
    typer.run(main)
