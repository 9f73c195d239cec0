"""How models write calls whose templates show the declared tools, but not the calls of past answers.

Such calls are written into the content of the answer, from which the rest is derived as for any template.
The format of some templates is shown by their own instructions; those of `_KNOWN` say too little:

- LFM2 and LFM2.5 (Liquid AI): their prompts list the tools without instructions. The models are trained on
  Python's calls between control tokens, as their model cards show.
- Granite 3 (IBM): the instructions ask for `<|tool_call|>` and a JSON list "of tools used", without its keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Write: TypeAlias = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class UnwrittenCalls:
    """What a model writes around its calls, between them, and for each: its name and arguments."""

    begin: str
    separator: str
    end: str
    write: Write

    def text(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """Return the text of calls: pairs of name and arguments."""
        return self.begin + self.separator.join(self.write(*call) for call in calls) + self.end


@dataclass(frozen=True, slots=True)
class _JsonCall:
    """Writes a call as a JSON object with two members."""

    name: str = "name"
    arguments: str = "arguments"
    begin: str = ""
    end: str = ""

    def __call__(self, name: str, arguments: Mapping[str, Any]) -> str:
        call = {self.name: name, self.arguments: arguments}
        return self.begin + json.dumps(call, ensure_ascii=False) + self.end


def _python_call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_python(value)}' for key, value in arguments.items())})"


def _python(value: Any) -> str:
    """Return a literal: with double quotes, as these models write them, so that nested values are JSON."""
    return str(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


_KNOWN = (
    (
        re.compile(r"List of tools: (?:<\|tool_list_start\|>)?\["),
        UnwrittenCalls("<|tool_call_start|>[", ", ", "]<|tool_call_end|>", _python_call),
    ),
    (
        re.compile(r"respond only with <\|tool_call\|> followed by a JSON list"),
        UnwrittenCalls("<|tool_call|>[", ", ", "]", _JsonCall()),
    ),
)
#: `<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>`
_SHOWN = re.compile(
    r'(<(?P<tag>[\w:|-]{1,40})>\s{0,4})\{"(\w{1,20})": ?<[^<>{}]{1,40}>, ?"(\w{1,20})": ?<[^<>{}]{1,40}>\}'
    r"(\s{0,4}</(?P=tag)>)"
)


def unwritten_calls(prompt: str) -> UnwrittenCalls | None:
    """Return how a model writes calls after a prompt that declares tools, None if nothing says so."""
    if shown := _SHOWN.search(prompt):
        return UnwrittenCalls("", "\n", "", _JsonCall(shown[3], shown[4], shown[1], shown[5]))
    return next((calls for sign, calls in _KNOWN if sign.search(prompt)), None)
