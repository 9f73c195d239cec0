"""Are the calls in a model's own format valid: llama-server's `tools`, and our grammar on the same server?

    python bench/native.py                      # every chat template of llama.cpp
    python bench/native.py --templates DIR --only Qwen3-Coder --seeds 3 --json out.json
    python bench/native.py --orders             # no server: is every order of arguments accepted and read?

A real llama-server runs each template with one tiny model of random weights, so that only the constraint
decides what is written. Both sides get the same two tools (an enum, a bounded integer, a pattern with `\\d`
or without, a nested closed object), the same messages and seeds, temperature 2, and the same bias towards
the format's own control tokens and the ends of strings, without which random text reaches no call.
jsonschema judges every call. Prints a Markdown table by family, and with `--json` each answer.

The random weights decide how many answers become too long or end in an error; that a keyword is not enforced
does not depend on them.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema

import checkout  # noqa: F401  # for the models of the tests
from chat_templates import llama_cpp_source
from gbnf import load_tools
from gbnf.calls import ToolCall, ToolCalls
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import JsonArguments, ToolFormat, detect
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.grammar_checker import GrammarChecker
from gbnf_server.llama.server_build import start
from support.models import END_TOKEN, make_model
from tables import parser_of

CONTEXT, MAX_TOKENS, TEMPERATURE, TIMEOUT = 16_384, 1_500, 2, 120
MESSAGES = [{"role": "user", "content": "Book a small room for two nights with the code abc-1234."}]


def _tool(name: str, *, kinds: Sequence[str], most: int, pattern: str) -> dict[str, Any]:
    place = {"floor": {"type": "integer"}, "wing": {"type": "string", "maxLength": 6}}
    properties = {
        "kind": {"type": "string", "enum": list(kinds)},
        "count": {"type": "integer", "minimum": 1, "maximum": most},
        "code": {"type": "string", "pattern": pattern},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "place": {
            "type": "object",
            "properties": place,
            "required": [*place],
            "additionalProperties": False,
        },
        "budget": {"type": "number"},
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key != "budget"],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": f"{name}.", "parameters": parameters},
    }


TOOLS = [
    _tool("book_room", kinds=["small", "medium", "large"], most=14, pattern=r"^[a-z]{3}-\d{4}$"),
    _tool("set_alarm", kinds=["once", "daily"], most=23, pattern="^[a-z]{3}-[0-9]{4}$"),
]
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
NAMED = "set_alarm"


@dataclass
class Answer:
    """One answer. `outcome`: calls, no calls, truncated, or the status of an error."""

    choice: str
    seed: int
    outcome: str
    valid: int = 0
    only_digits: int = 0
    invalid: int = 0
    other_tool: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def is_error(self) -> bool:
        """Whether the server returned an error."""
        return self.outcome.startswith("HTTP")


def judge(choice: str, seed: int, calls: Sequence[tuple[str, Any]], outcome: str) -> Answer:
    """Count the calls that satisfy their schema, and what the others violate."""
    answer = Answer(choice, seed, outcome)
    for name, arguments in calls:
        if name not in SCHEMAS:
            answer.invalid += 1
            answer.faults.append("unknown tool")
            continue
        answer.other_tool += choice == NAMED and name != NAMED
        errors = list(jsonschema.Draft202012Validator(SCHEMAS[name]).iter_errors(arguments))
        faults = sorted({str(error.validator) for error in errors})
        answer.faults += faults
        digits = all(error.validator == "pattern" and "\\d" in error.validator_value for error in errors)
        answer.valid += not errors
        answer.only_digits += bool(errors) and digits
        answer.invalid += bool(errors) and not digits
    return answer


def theirs(client: httpx.Client, choice: str, seed: int, bias: list[list[float]]) -> Answer:
    """Ask llama-server for a call with its own `tools`."""
    named = {"type": "function", "function": {"name": choice}}
    body = {
        "messages": MESSAGES,
        "tools": TOOLS,
        "tool_choice": named if choice == NAMED else choice,
        "max_tokens": MAX_TOKENS,
        "logit_bias": bias,
        **_sampling(seed),
    }
    response = client.post("/v1/chat/completions", json=body)
    if response.status_code != 200:
        return Answer(choice, seed, f"HTTP {response.status_code}")
    [reply] = response.json()["choices"]
    calls = [
        (call["function"]["name"], _loaded(call["function"]["arguments"]))
        for call in reply["message"].get("tool_calls") or ()
    ]
    outcome = "truncated" if reply["finish_reason"] == "length" else "calls" if calls else "no calls"
    return judge(choice, seed, calls, outcome)


def ours(
    client: httpx.Client, tool_format: ToolFormat, choice: str, seed: int, bias: list[list[float]]
) -> Answer:
    """Ask the same server for a completion under our grammar, and parse it."""
    tools = load_tools(TOOLS)
    body = {
        "prompt": tool_format.prompt(MESSAGES, TOOLS),
        "grammar": str(tool_format.grammar(tools, tool_choice=choice, parallel=choice == "required")),
        "preserved_tokens": list(tool_format.control_texts),
        "n_predict": MAX_TOKENS,
        "logit_bias": bias,
        "samplers": ["temperature"],
        **_sampling(seed),
    }
    response = client.post("/completion", json=body)
    if response.status_code != 200:
        return Answer(choice, seed, f"HTTP {response.status_code}")
    reply = response.json()
    truncated = reply["stop_type"] == "limit"
    parsed = tool_format.parse(reply["content"], tools, truncated=truncated)
    if not isinstance(parsed, ToolCalls):
        return Answer(choice, seed, "truncated" if truncated else "no calls")
    calls = [(call.name, dict(call.arguments)) for call in parsed.calls if not call.truncated]
    answer = judge(choice, seed, calls, "truncated" if truncated else "calls")
    answer.invalid += len(parsed.invalid)
    return answer


def _sampling(seed: int) -> dict[str, Any]:
    return {
        "temperature": TEMPERATURE,
        "top_k": 0,
        "top_p": 1,
        "min_p": 0,
        "seed": seed,
        "cache_prompt": False,
    }


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None  # no object, so every schema refuses it


def bias_towards(tool_format: ToolFormat | None, control_texts: Sequence[str]) -> list[list[float]]:
    """Return the bias: printable characters, the ends of strings, and the format's own control tokens."""
    unprintable = [byte for byte in range(256) if not 32 < byte < 127 and byte != ord("\n")]
    bias = [[token, -40.0] for token in unprintable]
    bias += [[END_TOKEN, 8.0], [ord('"'), 6.0], [ord("\n"), 6.0], [ord("<"), 4.0]]
    own = tool_format.control_texts if tool_format is not None else ()
    first = END_TOKEN + 6
    return bias + [[first + control_texts.index(text), 8.0] for text in own if text in control_texts]


def measure(
    template: Path, tool_format: ToolFormat | None, model: Path, control_texts: Sequence[str], seeds: int
) -> dict[str, list[Answer]]:
    """Return the answers of both sides for one template."""
    bias = bias_towards(tool_format, control_texts)
    extra = ["--jinja", "--chat-template-file", str(template), "--no-warmup", "--cache-ram", "0"]
    answers: dict[str, list[Answer]] = {"llama-server": [], "gbnf": []}
    with start(model, context_length=CONTEXT, extra=extra) as server:
        headers = {"Authorization": f"Bearer {server.api_key}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=TIMEOUT, trust_env=False) as client:
            for choice, count in (("required", seeds), (NAMED, seeds // 2)):
                for seed in range(1, count + 1):
                    answers["llama-server"].append(theirs(client, choice, seed, bias))
                    if tool_format is not None:
                        try:
                            answer = ours(client, tool_format, choice, seed, bias)
                        except ToolFormatError as error:
                            print(f"{template.stem}: {error}", file=sys.stderr)
                            answer = Answer(choice, seed, "HTTP 400")
                        answers["gbnf"].append(answer)
    return answers


def family(tool_format: ToolFormat | None) -> str:
    """Return how calls are written, in a few words."""
    if tool_format is None:
        return "no tools"
    if not isinstance(tool_format.arguments, JsonArguments):
        return "one element per parameter"
    first = tool_format.marker[:1]
    return "JSON after a tag" if first in {"<", "["} else "bare JSON"


def rows(results: Mapping[str, tuple[str, dict[str, list[Answer]]]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| format (templates) | side | calls valid | invalid only by `\\d` | otherwise invalid "
        "| other tool than named | no call | truncated | errors |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    families = Counter(name for name, _ in results.values())
    for name, count in [*families.most_common(), ("all", len(results))]:
        of_family = [answers for title, answers in results.values() if name in {title, "all"}]
        for side in ("llama-server", "gbnf"):
            answers = [answer for title in of_family for answer in title[side]]
            if not answers:
                continue
            outcomes = Counter("error" if answer.is_error else answer.outcome for answer in answers)
            sums = [
                sum(getattr(answer, what) for answer in answers)
                for what in ("valid", "only_digits", "invalid", "other_tool")
            ]
            counts = [outcomes[what] for what in ("no calls", "truncated", "error")]
            yield f"| {name} ({count}) | {side} | {' | '.join(map(str, [*sums, *counts]))} |"


ARGUMENTS: dict[str, Any] = {
    "kind": "small",
    "count": 3,
    "code": "abc-1234",
    "flags": [True],
    "place": {"floor": 2, "wing": "B"},
    "budget": 10.5,
}
ORDERS = {
    "declared": ARGUMENTS,
    "reversed": dict(reversed(ARGUMENTS.items())) | {"place": {"wing": "B", "floor": 2}},
    "random": {key: ARGUMENTS[key] for key in random.Random(1).sample(list(ARGUMENTS), len(ARGUMENTS))},
}


def order_rows(formats: Mapping[str, ToolFormat]) -> Iterator[str]:
    """Yield the lines of a table: which orders of arguments llama.cpp's engine accepts and we read back.

    Calls are written by the templates, some of which sort the arguments.
    """
    engine, tools = GrammarChecker.load(model_path()), load_tools(TOOLS[:1])
    refused: Counter[str] = Counter()
    yield f"| format | {' | '.join(ORDERS)} |"
    yield "|---|---|---|---|"
    for name, tool_format in formats.items():
        grammar, cells = tool_format.grammar(tools, tool_choice="required"), []
        for order, arguments in ORDERS.items():
            text = tool_format.render([ToolCall("abcdefgh0", "book_room", arguments)])
            step = tool_format.parse(text, tools)
            is_read = isinstance(step, ToolCalls) and [dict(call.arguments) for call in step.calls] == [
                ARGUMENTS
            ]
            is_accepted = engine.match(grammar, text).complete
            refused[order] += not is_accepted
            cells.append("accepted" if is_accepted and is_read else "not read" if is_accepted else "refused")
        yield f"| {name} | {' | '.join(cells)} |"
    yield f"| refused of {len(formats)} | {' | '.join(str(refused[order]) for order in ORDERS)} |"


def main() -> None:
    """Measure the templates, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--templates", type=Path, help="a folder of chat templates (*.jinja)")
    parser.add_argument("--only", nargs="+", help="names of templates, without .jinja")
    parser.add_argument("--seeds", type=int, default=10, help="answers per template with a required call")
    parser.add_argument("--orders", action="store_true", help="compare orders of arguments, without a server")
    parser.add_argument("--json", type=Path, help="write every answer to this file")
    options = parser.parse_args()
    source = llama_cpp_source()
    folder = options.templates or (source and source / "models" / "templates")
    if folder is None:
        parser.error("there are no templates: run `gbnf server install`, or give --templates DIR")
    files = [file for file in sorted(folder.glob("*.jinja")) if not options.only or file.stem in options.only]
    formats: dict[str, ToolFormat | None] = {}
    for file in files:
        try:
            formats[file.stem] = detect(file.read_text(), eos_token="<|end|>")
        except ToolFormatError as error:
            formats[file.stem] = None
            print(f"{file.stem}: {error}", file=sys.stderr)
    if options.orders:
        print("\n".join(order_rows({name: form for name, form in formats.items() if form is not None})))
        return
    own = (tool_format.control_texts for tool_format in formats.values() if tool_format is not None)
    control_texts = sorted({text for texts in own for text in texts})
    results: dict[str, tuple[str, dict[str, list[Answer]]]] = {}
    with tempfile.TemporaryDirectory() as place:
        model = make_model(Path(place) / "random.gguf", context=CONTEXT, control_texts=control_texts)
        for file in files:
            tool_format = formats[file.stem]
            answers = measure(file, tool_format, model, control_texts, options.seeds)
            results[file.stem] = family(tool_format), answers
            print(
                file.stem,
                {side: sum(answer.valid for answer in group) for side, group in answers.items()},
                file=sys.stderr,
            )
            if options.json is not None:
                saved = {
                    name: {side: [asdict(answer) for answer in group] for side, group in both.items()}
                    for name, (_, both) in results.items()
                }
                options.json.write_text(json.dumps(saved, indent=1))
    print("\n".join(rows(results)))


if __name__ == "__main__":
    main()
