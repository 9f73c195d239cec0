"""Time whole calls: what a grammar costs while a model decodes, and what it saves.

    python bench/decode.py [--vocab GGUF] [--calls N] [--repeat N] [--json OUT] [--plot OUT.svg]

One model, made for this: random weights over a real vocabulary, in a shape of half a billion parameters, that
says a given call at given positions whoever runs it (`scripted`). So all contenders write the same tokens. In
each round every contender writes the call once, so that the machine's moods strike all alike; the prompt is
in every contender's memory by then. Ratios are of medians within one run.

    free            our loop without a grammar: the same text, unconstrained
    full mask       llama-cpp-python's own: `Llama` with a `LlamaGrammar`, which masks the whole vocabulary
    bare            `Llama` without a grammar
    one by one      our loop, every token sampled
    jumping         our loop, what is forced is appended
    llguidance      the same with llguidance as engine
    server          llama-server with our grammar (`/completion`)
    server's tools  llama-server with its own: `/v1/chat/completions` with `tools` and `tool_choice: required`
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from llama_cpp import Llama, LlamaGrammar
from rich.console import Console
from rich.table import Table

from calls import CALLS
from corpus import DEFAULT_VOCABULARY, DataMissingError, shared_path
from gbnf import compile_pool, load_manifests
from gbnf.compiler.layout import Whitespace
from gbnf.prompt import Message, call_text, system_prompt
from gbnf_server import llama_server_build
from gbnf_server.backends.in_process import InProcess
from gbnf_server.errors import SetupError
from gbnf_server.native import NativeModel
from gbnf_server.shipped import manifests_path
from scripted import Shape, write_model

_NAMES = ("get_now", "create_dirs", "find_files", "find_events_empty", "send_messages")
_THREADS = 1  # two that share their cores with other programs wait for each other more than they work
_MOST_TOKENS = 200
_TOOLS = "server's tools"


@dataclass(frozen=True, slots=True)
class Job:
    """A call to be written; `padding`: words of the request that move the place where it stands."""

    name: str
    text: str
    padding: int

    @property
    def messages(self) -> list[Message]:
        tools = [tool for tool in load_manifests(manifests_path()) if tool.name in _NAMES]
        asked = f"go{' on' * self.padding}"
        return [{"role": "system", "content": system_prompt(tools)}, {"role": "user", "content": asked}]


@dataclass(frozen=True, slots=True)
class Written:
    """One call: seconds in all and in the grammar, tokens, how many of them cost no step."""

    seconds: float
    text: str
    tokens: int
    forced: int = 0
    grammar_s: float | None = None


Contender = Callable[[Job], Written]


def jobs(count: int) -> list[Job]:
    """The first calls of the list, asked for in prompts of different lengths."""
    padding, made = 0, []
    for name in _NAMES[:count]:
        text = call_text({"name": name, "arguments": CALLS[name]})
        made.append(Job(name, text, padding))
        padding += len(text)  # no text has more tokens than characters
    return made


def script(model: NativeModel, prompt: Sequence[int], text: str) -> dict[int, int]:
    """What has to be said at which position to write `text` behind the prompt."""
    tokens = [*model.tokenize(text, special=True), min(model.end_tokens)]
    return {len(prompt) - 1 + index: token for index, token in enumerate(tokens)}


def prompt_tokens(model: NativeModel, text: str) -> list[int]:
    tokens = model.tokenize(text, special=True)
    start = model.start_token
    return tokens if start is None or tokens[:1] == [start] else [start, *tokens]


def plain_prompt(messages: Sequence[Message]) -> str:
    """As the template of `scripted` has it."""
    said = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    return "".join(said) + "<|im_start|>assistant\n"


def ours(path: Path, grammar: str | None, context: int, **options: Any) -> tuple[InProcess, Contender]:
    """Our backend as a contender. Grammars are our own, so they go in unguarded, as in `gbnf run`."""
    backend = InProcess(path, threads=_THREADS, context_length=context, guard_grammars=False, **options)

    def write(job: Job) -> Written:
        begun = time.perf_counter()
        found = backend.complete(job.messages, grammar=grammar, max_tokens=_MOST_TOKENS)
        seconds = time.perf_counter() - begun
        return Written(seconds, found.text, found.completion_tokens, found.forced_tokens, found.grammar_s)

    return backend, write


def llama_cpp_python(path: Path, grammar: str | None, context: int, model: NativeModel) -> Contender:
    """The high-level `Llama`, greedy."""
    llama = Llama(str(path), n_ctx=context, n_threads=_THREADS, n_threads_batch=_THREADS, verbose=False)

    def write(job: Job) -> Written:
        prompt = prompt_tokens(model, plain_prompt(job.messages))
        begun = time.perf_counter()
        held = None if grammar is None else LlamaGrammar.from_string(grammar, verbose=False)
        answer: Any = llama.create_completion(prompt, max_tokens=_MOST_TOKENS, temperature=0.0, grammar=held)
        seconds = time.perf_counter() - begun
        return Written(seconds, answer["choices"][0]["text"], answer["usage"]["completion_tokens"])

    return write


def server(url: str, grammar: str, model: NativeModel) -> Contender:
    """llama-server with our grammar."""
    client = httpx.Client(base_url=url, timeout=600, trust_env=False)

    def write(job: Job) -> Written:
        body = {
            "prompt": prompt_tokens(model, plain_prompt(job.messages)),
            "grammar": grammar,
            "n_predict": _MOST_TOKENS,
            "temperature": 0,
            "cache_prompt": True,
        }
        begun = time.perf_counter()
        answer = client.post("/completion", json=body).raise_for_status().json()
        return Written(time.perf_counter() - begun, answer["content"], answer["tokens_predicted"])

    return write


def tools_body(job: Job) -> dict[str, Any]:
    """What `/v1/chat/completions` is asked: the same tools, as OpenAI's clients give them."""
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
    return {**shared, "max_tokens": _MOST_TOKENS, "cache_prompt": True, "parallel_tool_calls": False}


def server_tools(url: str) -> Contender:
    """llama-server with its own grammar for tools."""
    client = httpx.Client(base_url=url, timeout=600, trust_env=False)

    def write(job: Job) -> Written:
        body = tools_body(job)
        begun = time.perf_counter()
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
        seconds = time.perf_counter() - begun
        calls = answer["choices"][0]["message"].get("tool_calls") or [
            {"function": {"name": "", "arguments": "{}"}}
        ]
        function = calls[0]["function"]
        call = {"name": function["name"], "arguments": json.loads(function["arguments"])}
        return Written(seconds, call_text(call), answer["usage"]["completion_tokens"])

    return write


def tools_script(vocabulary: Path, folder: Path, model: NativeModel, wanted: Sequence[Job]) -> dict[int, int]:
    """Where llama-server's own prompt for tools has the answer: a server with a small model says it."""
    small = folder / "small.gguf"
    write_model(small, vocabulary, {}, Shape(width=256, layers=1), name="small")
    said: dict[int, int] = {}
    with llama_server_build.start(small, threads=1, context_length=512) as running:
        for job in wanted:
            answer = httpx.post(
                f"{running.url}/apply-template", json=tools_body(job), timeout=60, trust_env=False
            )
            prompt = prompt_tokens(model, answer.raise_for_status().json()["prompt"])
            said |= script(model, prompt, f"<tool_call>\n{job.text}\n</tool_call>")
    return said


@dataclass(frozen=True, slots=True)
class Result:
    """All that one contender wrote of one call."""

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
        return statistics.median(self.seconds)


def measure(contenders: Mapping[str, Contender], job: Job, layout: str, rounds: int) -> Iterator[Result]:
    """One call by all contenders in turn, round by round; what comes first fills their memories."""
    written: dict[str, list[Written]] = {name: [] for name in contenders}
    for each in range(rounds + 1):
        for name, write in contenders.items():
            one = write(job)
            if each:
                written[name].append(one)
    for name, all_of_it in written.items():
        grammar = tuple(one.grammar_s for one in all_of_it if one.grammar_s is not None)
        last = all_of_it[-1]
        seconds = tuple(one.seconds for one in all_of_it)
        same = all(one.text == job.text for one in all_of_it)
        yield Result(name, layout, job.name, seconds, grammar, last.tokens, last.forced, same)


def summary(results: Sequence[Result], layout: str) -> Table:
    """By contender, over all calls that it wrote as it should."""
    drawn = Table(title=f"{layout} layout: sums of medians over the calls")
    for column in (
        "contender",
        "calls",
        "s",
        "tokens/s",
        "× free",
        "× one by one",
        "grammar, ms/token",
        "forced",
    ):
        drawn.add_column(column, justify="left" if column == "contender" else "right")
    mine = [result for result in results if result.layout == layout]
    table = {(each.contender, each.job): each for each in mine}
    for name in dict.fromkeys(each.contender for each in mine):
        rows = [each for each in mine if each.contender == name and each.is_same]
        if not rows:
            drawn.add_row(name, "0")
            continue
        seconds, tokens = sum(row.median for row in rows), sum(row.tokens for row in rows)
        against = {
            other: sum(table[other, row.job].median for row in rows)
            for other in ("free", "one by one", "bare")
        }
        if rows[0].grammar_s:
            cost = sum(statistics.median(row.grammar_s) for row in rows)
        else:
            cost = seconds - against["bare" if name == "full mask" else "free"]
        drawn.add_row(
            name,
            str(len(rows)),
            f"{seconds:.2f}",
            f"{tokens / seconds:.1f}",
            f"{seconds / against['free']:.2f}",
            f"{seconds / against['one by one']:.2f}",
            "" if name in {"free", "bare"} else f"{1e3 * cost / tokens:.3f}",
            f"{sum(row.forced for row in rows)} of {tokens}",
        )
    return drawn


def verdict(results: Sequence[Result]) -> Iterator[str]:
    """The constraint's cost beside a step of the model, and beside llama-cpp-python's."""
    rows = {(each.contender, each.layout, each.job): each for each in results if each.is_same}
    steps, constraint, masks = [], [], []
    for (name, layout, job), row in rows.items():
        if name == "one by one" and ("free", layout, job) in rows:
            steps.append(rows["free", layout, job].median / row.tokens)
            constraint.append(statistics.median(row.grammar_s) / row.tokens)
            if {("full mask", layout, job), ("bare", layout, job)} <= rows.keys():
                mask = rows["full mask", layout, job].median - rows["bare", layout, job].median
                masks.append(mask / row.tokens)
    step, ours_s = statistics.median(steps), statistics.median(constraint)
    yield f"a step of the model: {1e3 * step:.1f} ms"
    yield f"our constraint: {1e6 * ours_s:.0f} µs a token, {ours_s / step:.2%} of that"
    if masks:
        mask_s = statistics.median(masks)
        yield f"llama-cpp-python's mask: {1e3 * mask_s:.1f} ms a token, {mask_s / ours_s:.0f} times as much"


def plot(results: Sequence[Result], path: Path) -> None:
    """Horizontal bars of seconds by contender, the sums of medians, as SVG."""
    sums: dict[tuple[str, str], float] = {}
    for each in results:
        if each.is_same:
            sums[each.layout, each.contender] = sums.get((each.layout, each.contender), 0) + each.median
    longest, row = max(sums.values()), 22
    marks = []
    for index, ((layout, name), seconds) in enumerate(sums.items()):
        y, width = 10 + index * row, 420 * seconds / longest
        color = "#3b6ea5" if name in {"jumping", "llguidance"} else "#b8c4d0"
        marks.append(f'<text x="190" y="{y + 14}" text-anchor="end">{name} ({layout})</text>')
        marks.append(f'<rect x="200" y="{y + 2}" width="{width:.1f}" height="{row - 6}" fill="{color}"/>')
        marks.append(f'<text x="{206 + width:.1f}" y="{y + 14}">{seconds:.2f} s</text>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {20 + row * len(sums)}" '
        f'font-family="sans-serif" font-size="12">{"".join(marks)}</svg>\n'
    )


def run(vocabulary: Path, shape: Shape, count: int, rounds: int, folder: Path) -> list[Result]:
    """Everything with one vocabulary."""
    console = Console(stderr=True)
    model = NativeModel(vocabulary, vocab_only=True)
    wanted = jobs(count)
    said: dict[int, int] = {}
    for job in wanted:
        said |= script(model, prompt_tokens(model, plain_prompt(job.messages)), job.text)
    has_server = llama_server_build.find() is not None
    if has_server:
        tools = tools_script(vocabulary, folder, model, wanted)
        if said.keys() & tools.keys():
            console.print("the prompts of llama-server's tools overlap with ours: it is left out")
        said = tools | said
    path = folder / "scripted.gguf"
    write_model(path, vocabulary, said, shape, name="scripted")
    console.print(
        f"{vocabulary.stem}: {model.size} tokens, {shape.parameters(model.size) / 1e6:.0f}M parameters"
    )
    context = max(said) + _MOST_TOKENS
    pool = [tool for tool in load_manifests(manifests_path()) if tool.name in _NAMES]
    results: list[Result] = []
    layouts: tuple[Whitespace, ...] = ("default", "spaced")
    with ExitStack() as opened:
        free, write_free = ours(path, None, context)
        opened.enter_context(free)
        shared: dict[str, Contender] = {
            "free": write_free,
            "bare": llama_cpp_python(path, None, context, model),
        }
        url = ""
        if has_server:
            url = opened.enter_context(
                llama_server_build.start(path, threads=_THREADS, context_length=context)
            ).url
        for layout in layouts:
            grammar = str(compile_pool(pool, whitespace=layout))
            with ExitStack() as engines:
                contenders = dict(shared)
                contenders["full mask"] = llama_cpp_python(path, grammar, context, model)
                for name, options in (
                    ("one by one", {"jump_forward": False}),
                    ("jumping", {}),
                    ("llguidance", {"engine": "llguidance"}),
                ):
                    try:
                        backend, contenders[name] = ours(path, grammar, context, **options)
                    except SetupError as error:
                        console.print(str(error))
                        continue
                    engines.enter_context(backend)
                if has_server:
                    contenders["server"] = server(url, grammar, model)
                    if layout == layouts[0]:
                        contenders[_TOOLS] = server_tools(url)
                for job in wanted:
                    results += measure(contenders, job, layout, rounds)
                    console.print(f"{layout} {job.name} done")
    return results


def main(
    vocab: Annotated[Path | None, typer.Option(help="A vocabulary, a GGUF file.")] = None,
    calls: Annotated[int, typer.Option(help="How many calls, at most five.")] = 5,
    repeat: Annotated[int, typer.Option(help="How often each is written by each contender.")] = 3,
    width: Annotated[int, typer.Option(help="The model's width, a multiple of 256.")] = 1024,
    layers: Annotated[int, typer.Option(help="How many layers it has.")] = 28,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all times here.")] = None,
    plot_out: Annotated[Path | None, typer.Option("--plot", help="Draw them here, as SVG.")] = None,
) -> None:
    """Time whole calls by all contenders."""
    try:
        vocabulary = vocab or shared_path("vocabs", DEFAULT_VOCABULARY)
    except DataMissingError as error:
        raise SystemExit(str(error)) from None
    shape = Shape(width=width, layers=layers, heads=width // 64)
    with tempfile.TemporaryDirectory() as folder:
        results = run(vocabulary, shape, calls, repeat, Path(folder))
    console = Console(width=None if sys.stdout.isatty() else 120)
    for layout in dict.fromkeys(each.layout for each in results):
        console.print(summary(results, layout))
    for line in verdict(results):
        console.print(line, soft_wrap=True)
    for each in results:
        if not each.is_same:
            console.print(
                f"{each.contender} wrote something else for {each.job} ({each.layout}): not counted"
            )
    if json_out:
        json_out.write_text(json.dumps([asdict(each) for each in results], indent=1))
    if plot_out:
        plot(results, plot_out)


if __name__ == "__main__":
    typer.run(main)
