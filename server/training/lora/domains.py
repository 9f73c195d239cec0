"""Tools that do not exist, and requests for them: from the files of `domains/`.

A file has the tools of one domain, each with names, descriptions, arguments (`values.py`) and templates of
requests: `[a|b]` chooses, `{argument}` is a value as a person writes it, and `<…>` is left out where its
argument is. The same tool has another name, another description and other argument names each time.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, Final

from gbnf import Tool
from training.lora.values import LISTS, Value, draw, filled, schema
from training.source import Source
from training.wording import listed, word

_CLAUSE: Final = re.compile(r"<([^<>]*)>")
_SLOT: Final = re.compile(r"\{([\w.]+)\}")
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_RATE: Final = re.compile("rate|interest|discount|inflation|growth|share")
_MENTIONED: Final = (0.0, 0.5, 0.8, 1.0)  # shares of the optional arguments that a request gives


@dataclass(frozen=True, slots=True)
class Kind:
    """A tool of a domain's file, in all its forms."""

    domain: str
    names: Sequence[str]
    about: Sequence[str]
    requests: Sequence[str]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One form of a tool. `renamed`: the names of its arguments, by those of its file."""

    kind: Kind
    tool: Tool
    renamed: Mapping[str, str]


@cache
def domains() -> Mapping[str, tuple[Kind, ...]]:
    """Return the tools of each domain."""
    found = {}
    for file in sorted(files(__package__).joinpath("domains").iterdir(), key=lambda file: file.name):
        name = file.name.removesuffix(".toml")
        tools = tomllib.loads(file.read_text("utf-8"))["tool"]
        found[name] = tuple(Kind(domain=name, **each) for each in tools)
    return found


def offer(random: Source, kind: Kind) -> OfferedTool:
    """Return one form of a tool."""
    words = random.choice(kind.names).lower().split()
    snake, pascal = "_".join(words), "".join(word.capitalize() for word in words)
    dotted = f"{random.choice((kind.domain.split('_')[0], words[-1]))}.{snake}"
    styles = (snake, pascal[:1].lower() + pascal[1:], dotted, "-".join(words), pascal)
    name = random.choices(styles, (50, 20, 15, 7.5, 7.5))[0]
    kind = replace(
        kind, arguments={name: _variant(random, name, each) for name, each in kind.arguments.items()}
    )
    renamed = {argument: argument for argument in kind.arguments}
    if random.random() < 0.3:
        camel = random.random() < 0.5
        renamed = {argument: _restyled(argument, camel=camel) for argument in renamed}
    names = list(kind.arguments)
    if random.random() < 0.2:
        random.shuffle(names)
    args = {
        "type": "object",
        "properties": {renamed[name]: schema(random, kind.arguments[name]) for name in names},
        "required": [renamed[name] for name in names if not kind.arguments[name].get("optional")],
    }
    tool = Tool.from_mapping({"name": name, "description": random.choice(kind.about), "args": args})
    return OfferedTool(kind, tool, renamed)


def _variant(random: Source, name: str, argument: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an argument as it is in a file, or sometimes a city with its state, a percentage as a share."""
    if argument["kind"] == "percent" and "as" not in argument and random.random() < 0.35:
        is_rate = _RATE.search(name) is not None and random.random() < 0.5
        about = f"The {name.replace('_', ' ')}." if is_rate else random.choice(LISTS["share_descriptions"])
        default = {"default": argument["default"] / 100} if "default" in argument else {}
        return {**argument, "as": "share", "about": about, **default}
    if argument.get("source") != "city" or "values" in argument or random.random() < 0.6:
        return argument
    about = random.choice(LISTS["place_descriptions"])
    return {"kind": "place", "about": about, "optional": argument.get("optional", False)}


def _restyled(name: str, *, camel: bool) -> str:
    words = [word.lower() for word in _WORD.findall(name)] or [name]
    return words[0] + "".join(word.capitalize() for word in words[1:]) if camel else "_".join(words)


def request(random: Source, offered: OfferedTool, number: int = 1) -> tuple[str, list[dict[str, Any]]]:
    """Return a request for a tool, and the arguments of its calls in the schema's order.

    Several calls differ in one or two arguments, whose values the request lists; if none can, there is one.
    """
    kind = offered.kind
    values = {name: draw(random, each) for name, each in kind.arguments.items()}
    variable = [
        name
        for name, each in kind.arguments.items()
        if not each.get("optional") and each["kind"] not in {"flag", "list", "object", "enum"}
    ]
    varied = random.sample(variable, min(len(variable), random.choice((1, 1, 2)))) if number > 1 else []
    drawn = [{name: draw(random, kind.arguments[name]) for name in varied} for _ in range(number)]
    several = list({str([value.value for value in each.values()]): each for each in drawn}.values())
    for name in varied:
        values[name] = Value(listed([each[name].said for each in several], random), None)
    share = random.choice(_MENTIONED)
    given = {
        name for name, each in kind.arguments.items() if each.get("optional") and random.random() < share
    }
    template = random.choice(kind.requests)
    template = _CLAUSE.sub(lambda found: found[1] if _slots(found[1]) <= given else "", template)
    text = _worded(random, template, values)
    if len(varied) > 1 and random.random() < 0.4:
        text = f"{text.rstrip('.?! ')}{random.choice((' respectively', ', respectively', ' in that order'))}"
    used = {name: values[name].value for name in kind.arguments if name in _slots(template)}
    order = offered.tool.model_args()["properties"]
    calls = [{**used, **{name: value.value for name, value in each.items()}} for each in several]
    in_file = {name: original for original, name in offered.renamed.items()}
    return text, [{name: call[in_file[name]] for name in order if in_file[name] in call} for call in calls]


def _slots(template: str) -> set[str]:
    """Return the arguments that a template has."""
    return {slot.split(".")[0] for slot in _SLOT.findall(template)}


def _worded(random: Source, template: str, values: Mapping[str, Value]) -> str:
    members = {name: SimpleNamespace(**each.value) for name, each in values.items() if not each.said}
    if random.random() < 0.1:
        template = template[:1].lower() + template[1:]
    text = word([template], random, {name: each.said for name, each in values.items()} | members)
    return filled(random, "{openings}{text}{closings}", text=text)


def others(random: Source, kind: Kind, number: int) -> Iterator[Kind]:
    """Yield other tools: of the same domain, or of any, none twice."""
    near = [each for each in domains()[kind.domain] if each is not kind]
    random.shuffle(near)
    share = random.choice((1.0, 0.6, 0.0))
    seen = [kind.names]
    while number:
        is_near = near and random.random() < share
        found = near.pop() if is_near else random.choice(random.choice(list(domains().values())))
        if found.names not in seen:
            seen.append(found.names)
            number -= 1
            yield found
