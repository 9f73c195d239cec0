"""What clients get from a small model behind `gbnf serve`: calls as calls, and an answer at the end.

    python bench/clients.py --model F.gguf [--limit N]

Ten requests, eight of which need a tool, each with OpenAI's client (whole and streamed), the tool runner of
Anthropic's client and LangChain's agent. Each client executes the calls itself and sends the results back,
for at most four calls of the model. Columns: requests with the right calls and no other, requests of which a
text is a call, final answers that contain what the tools returned, and seconds for each request.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import openai
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from gateway import running
from gbnf.calls import ToolCalls, parse_tool_calls
from gbnf.protocols.readers import looks_like_call
from gbnf.tools import Tool
from tables import new_table, parser_of, show

MOST_ANSWERS, MOST_TOKENS = 4, 160
FILES = {"todo.txt": "water the plants", "rome.md": "the Pantheon opens at nine"}


def list_files() -> str:
    """List my files."""
    return json.dumps(sorted(FILES))


def read_file(path: str) -> str:
    """Read a file."""
    return FILES.get(path, "no such file")


def write_file(path: str, content: str) -> str:
    """Write a text to a file."""
    return f"wrote {len(content)} characters to {path}"


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"{city}: 21 degrees, sunny"


TOOLS: tuple[Callable[..., str], ...] = (list_files, read_file, write_file, get_weather)
REQUESTS: tuple[tuple[str, tuple[str, dict[str, str]] | None, str], ...] = (
    ("list my files", ("list_files", {}), "rome.md"),
    ("which files do I have?", ("list_files", {}), "todo.txt"),
    ("what does todo.txt say?", ("read_file", {"path": "todo.txt"}), "water"),
    ("read rome.md to me", ("read_file", {"path": "rome.md"}), "Pantheon"),
    ("write 'call mom' to the file a.txt", ("write_file", {"path": "a.txt", "content": "call mom"}), ""),
    ("put the text 'buy oats' into b.txt", ("write_file", {"path": "b.txt", "content": "buy oats"}), ""),
    ("what is the weather in Paris?", ("get_weather", {"city": "Paris"}), "21"),
    ("is it warm in Oslo today?", ("get_weather", {"city": "Oslo"}), "21"),
    ("thank you very much", None, ""),
    ("who wrote Hamlet?", None, "Shakespeare"),
)
"""Requests, each with its call, and what the answer contains."""


@dataclass
class Outcome:
    """The calls that a client received for a request, and the texts, in order."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def execute(self, name: str, arguments: dict[str, Any]) -> str:
        """Execute a call as a client does, and keep it."""
        self.calls.append((name, arguments))
        function = next(tool for tool in TOOLS if tool.__name__ == name)
        return function(**arguments)


def schema(function: Callable[..., str]) -> dict[str, Any]:
    """Return the argument schema of a tool, all of whose arguments are texts."""
    names = [name for name in function.__annotations__ if name != "return"]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


FUNCTIONS = [
    {"name": tool.__name__, "description": tool.__doc__, "parameters": schema(tool)} for tool in TOOLS
]
POOL = tuple(
    Tool.from_mapping({"name": item["name"], "description": item["description"], "args": item["parameters"]})
    for item in FUNCTIONS
)


def with_openai(url: str, request: str, outcome: Outcome, *, streams: bool) -> None:
    """Ask with OpenAI's client."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": request}]
    tools: list[Any] = [{"type": "function", "function": function} for function in FUNCTIONS]
    asked: dict[str, Any] = {"model": "m", "max_tokens": MOST_TOKENS, "temperature": 0, "tools": tools}
    for _ in range(MOST_ANSWERS):
        if streams:
            with client.chat.completions.stream(messages=messages, **asked) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(messages=messages, **asked).choices[0].message
        outcome.texts.append(message.content or "")
        if not message.tool_calls:
            return
        messages.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        for call in message.tool_calls:
            result = outcome.execute(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def with_anthropic(url: str, request: str, outcome: Outcome) -> None:
    """Ask with the tool runner of Anthropic's client."""
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    runner = client.beta.messages.tool_runner(
        model="m",
        max_tokens=MOST_TOKENS,
        messages=[{"role": "user", "content": request}],
        tools=[anthropic.beta_tool(tool) for tool in TOOLS],
        max_iterations=MOST_ANSWERS,
    )
    for message in runner:
        outcome.texts.append("".join(block.text for block in message.content if block.type == "text"))
        used = [block for block in message.content if block.type == "tool_use"]
        outcome.calls += [(block.name, dict(block.input)) for block in used]


def with_langchain(url: str, request: str, outcome: Outcome) -> None:
    """Ask with LangChain's agent."""
    model = ChatOpenAI(
        model="m", base_url=f"{url}/v1", api_key="none", temperature=0, max_completion_tokens=MOST_TOKENS
    )
    agent = create_agent(model, list(TOOLS))
    asked: Any = {"messages": [{"role": "user", "content": request}]}
    for state in agent.stream(asked, {"recursion_limit": 50}, stream_mode="values"):
        answers = [message for message in state["messages"] if isinstance(message, AIMessage)]
        outcome.texts = [str(message.content) for message in answers]
        outcome.calls = [(call["name"], call["args"]) for message in answers for call in message.tool_calls]
        if len(answers) == MOST_ANSWERS:
            return


CLIENTS: dict[str, Callable[[str, str, Outcome], None]] = {
    "OpenAI": lambda *asked: with_openai(*asked, streams=False),
    "OpenAI, streamed": lambda *asked: with_openai(*asked, streams=True),
    "Anthropic, tool runner": with_anthropic,
    "LangChain, agent": with_langchain,
}


def is_call(text: str) -> bool:
    """Return whether a text is a call, or has one of the tools."""
    return looks_like_call(text) or isinstance(parse_tool_calls(text, POOL), ToolCalls)


def main() -> None:
    """Ask, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--limit", type=int, default=len(REQUESTS))
    parser.add_argument("--log", type=Path, help="write the calls and texts of each request to this file")
    options = parser.parse_args()
    result_table = new_table("client | right calls only | calls as text | answer with the result | s")
    lines: list[str] = []
    command = [sys.executable, "-m", "gbnf_server", "serve", "--port", "0", "--model", options.model]
    with running([*command, "--threads", options.threads, "--ctx-size", "4096"]) as (url, _):
        for name, ask in CLIENTS.items():
            right = as_text = answered = 0
            begun = time.perf_counter()
            for request, call, expected in REQUESTS[: options.limit]:
                outcome = Outcome()
                ask(url, request, outcome)
                right += outcome.calls == ([] if call is None else [call])
                as_text += any(map(is_call, outcome.texts))
                last = outcome.texts[-1]
                answered += bool(last.strip()) and expected in last and not is_call(last)
                lines.append(json.dumps({"client": name, "request": request, **vars(outcome)}))
            seconds = (time.perf_counter() - begun) / options.limit
            counts = (f"{count} of {options.limit}" for count in (right, as_text, answered))
            result_table.add_row(name, *counts, f"{seconds:.1f}")
    show(result_table)
    if options.log:
        options.log.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
