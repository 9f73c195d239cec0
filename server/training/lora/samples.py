"""Groups of conversations over one pool of tools, as tokens.

A group has the system message once, and after it several conversations, none of which sees the others: so one
pass over a pool teaches several requests for it, and how their calls differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gbnf.prompts.messages import PromptStyle, call_text, describe_added_tools, system_prompt
from gbnf.protocols.protocol import tools_prompt
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS
from training.lora.domains import OfferedTool, domains, offer, others, request
from training.lora.values import LISTS, filled
from training.pools import bundled_tools
from training.rows import Conversation, Rows, rows_of
from training.source import Source
from training.traces import trace
from training.vocabulary import pseudo_word

_SIZES: Final = (1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 8)  # tools in a pool
_REQUESTS: Final = 7  # conversations in a group
_LONGEST: Final = 1200  # tokens of a group
_BUNDLED_SHARE, _DRAWN_TRACES = 0.15, 40  # of the groups; how many traces are drawn to find some for one pool

Turn: TypeAlias = tuple[str, str]
"""A role and a text. The model learns those of the assistant."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The tools of a group. `is_chat`: an answer is a text, as in the gateway, not a call."""

    tools: tuple[OfferedTool, ...]
    asks: bool
    searches: bool
    is_chat: bool
    style: PromptStyle

    @property
    def system(self) -> str:
        """The system message."""
        tools = [each.tool for each in self.tools]
        if self.is_chat:
            return tools_prompt(tools, "full")
        own = [*((FIND_TOOLS,) if self.searches else ()), *((ASK_USER,) if self.asks else ()), FINAL_ANSWER]
        return system_prompt([*tools, *own], style=self.style)


def pool(random: Source) -> Pool:
    """Return the tools of a group."""
    kind = random.choice(random.choice(list(domains().values())))
    kinds = [kind, *others(random, kind, random.choice(_SIZES) - 1)]
    tools: dict[str, OfferedTool] = {}
    for each in kinds:
        offered = offer(random, each)
        tools.setdefault(offered.tool.name, offered)
    shuffled = list(tools.values())
    random.shuffle(shuffled)
    styles: list[PromptStyle] = ["full", "verbose", "skeleton"]
    style = random.choices(styles, (16, 2, 1))[0]
    return Pool(tuple(shuffled), random.random() < 0.2, random.random() < 0.3, random.random() < 0.1, style)


def conversation(random: Source, given: Pool) -> list[Turn]:
    """Return a conversation over a pool."""
    chosen = random.random()
    if chosen < (0.36 if len(given.tools) <= 2 else 0.2):  # the fewer tools, the more requests fit none
        return _unfitting(random, given)
    if chosen < 0.68:
        return _carried_out(random, given, 1)
    if chosen < 0.93:
        return _carried_out(random, given, random.choice((2, 2, 3, 4)))
    return _asking(random, given)


def _carried_out(random: Source, given: Pool, number: int) -> list[Turn]:
    """Return a request for calls; with their results, and the answer, more often than not."""
    first = random.choice(given.tools)
    is_same = random.random() < 0.6
    tools = [first] + [first if is_same else random.choice(given.tools) for _ in range(number - 1)]
    if is_same and random.random() < 0.6:  # one sentence with several values
        text, several = request(random, first, number)
        asked = dict.fromkeys(_call(first, arguments) for arguments in several)
    else:
        texts: dict[str, str] = {}
        for each in tools:
            text, (arguments,) = request(random, each)
            texts[_call(each, arguments)] = text
        text, asked = _joined(random, list(texts.values())), dict.fromkeys(texts)
    turns: list[Turn] = [("user", text)]
    answer = random.choice(LISTS["done"])
    for step, call in enumerate(asked, 1):
        turns.append(("assistant", call))
        result, told = _result(random)
        if told:
            answer = told
        if random.random() < 0.05:
            error = random.choice(LISTS["errors"])
            turns.append(("tool", call_text({"step": step, "error": error})))
            return [*turns, ("assistant", _answer(f"It did not work: {error}.", given))]
        turns.append(("tool", call_text({"step": step, "result": result})))
    if len(asked) == 1 and random.random() < 0.4:
        return turns[:-1]
    return [*turns, ("assistant", _answer(answer, given))]


def _call(offered: OfferedTool, arguments: Mapping[str, Any]) -> str:
    return call_text({"name": offered.tool.name, "arguments": arguments})


def _joined(random: Source, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    *first, last = (text.rstrip(" .") for text in texts)
    joint = random.choice((". ", "\n", ", then ", ". Also, ", ", "))
    if joint == "\n":
        return "\n".join(f"{number}. {text}" for number, text in enumerate([*first, last], 1))
    if joint == ", ":
        return f"{', '.join(first)} and {last}"
    return joint.join([*first, last]) + ("." if joint == ". " else "")


def _result(random: Source) -> tuple[Any, str]:
    """Return what a tool returns, and the answer about it, "" if there is nothing to tell."""
    number, value, word = random.randint(1, 5000), round(random.uniform(0, 500), 1), pseudo_word(random)
    entries = [pseudo_word(random) for _ in range(random.randint(1, 4))]
    results: tuple[tuple[Any, str], ...] = (
        ("done", ""),
        ({"ok": True}, ""),
        (number, f"The result is {number}."),
        ({"id": f"{word}-{number}"}, f"Done. The id is {word}-{number}."),
        ({"entries": entries}, f"I found {', '.join(entries)}."),
        (f"{word.capitalize()}: {number}", f"{word.capitalize()}: {number}"),
        ({word: value, "status": "ok"}, f"The {word} is {value}."),
    )
    return random.choice(results)


def _unfitting(random: Source, given: Pool) -> list[Turn]:
    """Return a request that no tool of the pool can carry out, or small talk."""
    if random.random() < 0.45:
        return [
            ("user", filled(random, "{question}")),
            ("assistant", _answer(filled(random, "{abstentions}"), given)),
        ]
    here = [each.kind.names for each in given.tools]
    near = domains()[random.choice(given.tools).kind.domain] if random.random() < 0.5 else ()
    kinds = near or [kind for several in domains().values() for kind in several]
    kinds = [kind for kind in kinds if kind.names not in here]
    if not kinds:
        return _carried_out(random, given, 1)
    other = offer(random, random.choice(kinds))
    text, (arguments,) = request(random, other)
    turns: list[Turn] = [("user", text)]
    if not given.searches or given.is_chat:
        return [*turns, ("assistant", _answer(filled(random, "{abstentions}"), given))]
    search = {"name": FIND_TOOLS.name, "arguments": {"query": random.choice(other.kind.names)}}
    turns.append(("assistant", call_text(search)))
    if random.random() < 0.5:
        turns.append(("tool", call_text({"step": 1, "result": {"entries": []}})))
        return [*turns, ("assistant", _answer(filled(random, "{abstentions}"), given))]
    found = call_text({"step": 1, "result": {"entries": [other.tool.name]}})
    turns.append(("tool", f"{found}\n\n{describe_added_tools([other.tool])}"))
    return [*turns, ("assistant", _call(other, arguments))]


def _asking(random: Source, given: Pool) -> list[Turn]:
    """Return a request without its values, and the question for them; another one if no tool needs values."""
    needing = [each for each in given.tools if each.tool.model_args()["required"]]
    if not needing:
        return _carried_out(random, given, 1)
    offered = random.choice(needing)
    name = offered.tool.model_args()["required"][0]
    question = f"What is the {name.replace('_', ' ')}?"
    asked = _answer(question, given)
    if given.asks and not given.is_chat:
        asked = call_text({"name": ASK_USER.name, "arguments": {"question": question}})
    said = filled(random, "{bare_request}", name=random.choice(offered.kind.names))
    return [("user", said), ("assistant", asked)]


def _answer(text: str, given: Pool) -> str:
    return text if given.is_chat else call_text({"name": FINAL_ANSWER.name, "arguments": {"message": text}})


def _of_bundled_tools(random: Source) -> tuple[str, list[list[Turn]]]:
    """Return a system message with bundled tools, and plans over them, in English and Italian."""
    traces = [made for _ in range(_DRAWN_TRACES) if not (made := trace(random)).given]
    first = traces[0]
    needed = {step.name for step in first.steps}
    spare = [name for name in first.pool if name not in needed]
    names = needed | set(random.sample(spare, min(len(spare), random.choice(_SIZES[:9]))))
    tools = [tool for name, tool in bundled_tools().items() if name in names]
    kept = [each for each in traces if {step.name for step in each.steps} <= names]
    turns = [each.turns() for each in kept if each is first or each.steps]
    return system_prompt([*tools, FINAL_ANSWER], style="full"), turns[:_REQUESTS]


def group(random: Source, encode: Callable[[str], list[int]]) -> Rows:
    """Return the next group. `encode`: splits a text with the marks of the chat template into tokens."""
    if random.random() < _BUNDLED_SHARE:
        system, conversations = _of_bundled_tools(random)
    else:
        given = pool(random)
        system, conversations = given.system, [conversation(random, given) for _ in range(_REQUESTS)]
    prefix = encode(f"<|im_start|>system\n{system}<|im_end|>\n")
    return rows_of((_encoded(turns, encode) for turns in conversations), _LONGEST, prefix)


def _encoded(turns: Sequence[Turn], encode: Callable[[str], list[int]]) -> Conversation:
    found: Conversation = []
    for role, text in turns:
        found += [(token, 0.0) for token in encode(f"<|im_start|>{role}\n")]
        found += [(token, float(role == "assistant")) for token in encode(f"{text}<|im_end|>")]
        found += [(token, 0.0) for token in encode("\n")]
    return found
