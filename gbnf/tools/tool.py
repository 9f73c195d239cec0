"""A tool that a model may call, as a value, and the built-in tools.

Invariants: tools with the same content, file and function are equal and have the same hash in every process;
`model_args()` has no `runtime_resolved` property. The mappings inside are plain dicts that are shared, not
copied: treat them as immutable.

A step reference is a tool's top-level integer property with `fills = "other"`: the number of an earlier step,
whose entries the runtime inserts. It is offered only if an earlier step has entries.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gbnf.findings import Finding
from gbnf.schema.keywords import map_subschemas
from gbnf.tools.manifest_checks import OfferPolicy, RunPolicy, manifest_fields


def primary_language(tag: str) -> str:
    """Return the language of a tag, without its region."""
    return tag.replace("_", "-").split("-", maxsplit=1)[0]


def supported_language(tag: str, languages: Container[str]) -> str:
    """Return the tag's language if it is one of `languages`, otherwise "en"."""
    return short if (short := primary_language(tag)) in languages else "en"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tool:
    """A tool as its manifest describes it, and what executes its calls.

    `function(arguments, context)` executes a call in this process, and returns a JSON object; any other JSON
    value becomes `{"result": value}`. It may be async. If None, `executor.py` in the folder of `path` does. A
    tool with neither can be compiled, offered and validated, but not executed.
    `descriptions`: language -> text. `args`: the JSON Schema (2020-12) of the arguments, of type object.
    `extra`: the manifest's unknown keys, nested ones below their table. `findings`: what was removed from the
    schema, and what is probably misspelt.
    `load_manifests` and `from_mapping` check the manifest; the constructor does not.
    """

    name: str
    version: str = ""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    affinity: tuple[str, ...] = ()
    offer: OfferPolicy = field(default_factory=OfferPolicy)
    run: RunPolicy = field(default_factory=RunPolicy)
    path: Path | None = None
    function: Callable[..., Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    runtime_resolved: frozenset[str] = field(init=False)
    step_references: Mapping[str, str | None] = field(init=False)
    _model_args: dict[str, Any] = field(init=False)
    _fingerprint: str = field(init=False, default="")

    def __post_init__(self) -> None:
        properties = self.args.get("properties", {})
        resolved = frozenset(name for name, schema in properties.items() if is_runtime_resolved(schema))
        object.__setattr__(self, "runtime_resolved", resolved)
        references = {
            name: schema.get("fills")
            for name, schema in properties.items()
            if name not in resolved and is_step_reference(name, schema)
        }
        object.__setattr__(self, "step_references", references)
        object.__setattr__(self, "_model_args", without_runtime_resolved(self.args))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], path: Path | None = None) -> Tool:
        """Return the tool that a manifest's parsed content describes. Raises ManifestError."""
        return cls(**manifest_fields(mapping, path))

    def description(self, language: str = "en") -> str:
        """Return the description in `language`, otherwise in English or any language; "" without one."""
        return localized(self.descriptions, language)

    def model_args(self) -> dict[str, Any]:
        """Return the schema that prompt and grammar use: `args` without what the runtime fills in.

        It is the same dict at each call: treat it as immutable.
        """
        return self._model_args

    @property
    def fingerprint(self) -> str:
        """The hash of the content, the file and the function, computed on first use."""
        if not self._fingerprint:
            content = (
                self.name, self.version, self.descriptions, self.args, self.affinity, self.extra,
                [getattr(self.offer, policy.name) for policy in fields(self.offer)],
                [getattr(self.run, policy.name) for policy in fields(self.run)],
                None if self.path is None else str(self.path),
                *(() if self.function is None else (function_name(self.function),)),
                *map(str, self.findings),
            )  # fmt: skip
            hashed = hashlib.sha256(json.dumps(content, default=repr).encode()).hexdigest()
            object.__setattr__(self, "_fingerprint", hashed)
        return self._fingerprint

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return int(self.fingerprint[:15], 16)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the `repr` in IPython and Hypothesis, which otherwise print every field of a dataclass."""
        printer.text(repr(self))


def function_name(function: Callable[..., Any]) -> str:
    """Return the module and qualified name of a function, or of the class of a callable object."""
    named = inspect.unwrap(function)
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}.{named.__qualname__}"


def localized(text: object, language: str = "en") -> str:
    """Return a description (string or table of languages) in `language`, else English, the first or ""."""
    if isinstance(text, str):
        return text
    if not isinstance(text, Mapping):
        return ""
    for wanted in (language, primary_language(language), "en", *text):
        translation = text.get(wanted)
        if isinstance(translation, str):
            return translation
    return ""


def is_runtime_resolved(schema: object) -> bool:
    """Return whether the runtime fills in the property with this schema, so that no model sees it."""
    return isinstance(schema, Mapping) and schema.get("runtime_resolved") is True


def is_step_reference(name: str, schema: object) -> bool:
    """Return whether a top-level property is an earlier step's number: `fills` another, or is `from_step`."""
    if not isinstance(schema, Mapping) or schema.get("type") != "integer":
        return False
    return isinstance(schema.get("fills"), str) or ("fills" not in schema and name == "from_step")


def without_runtime_resolved(schema: Any) -> Any:
    """Return `schema` without properties that the runtime fills in, at any depth, and without their names."""
    if not isinstance(schema, Mapping):
        return schema
    properties = schema.get("properties", {})
    removed = {name for name, member in properties.items() if is_runtime_resolved(member)}
    visible = without_properties(schema, removed) if removed else schema
    return map_subschemas(visible, lambda _path, member: without_runtime_resolved(member))


def without_properties(schema: Mapping[str, Any], removed: Collection[str]) -> dict[str, Any]:
    """Return an object's schema without these properties, of which it then requires none.

    A group of `requires_one_of` that has no other is left out.
    """
    properties = schema.get("properties", {})
    others = {name: member for name, member in properties.items() if name not in removed}
    changed: dict[str, Any] = {**schema, "properties": others}
    if isinstance(schema.get("required"), list):
        changed["required"] = [name for name in schema["required"] if name not in removed]
    if isinstance(schema.get("requires_one_of"), list):
        groups = [[name for name in group if name not in removed] for group in schema["requires_one_of"]]
        changed["requires_one_of"] = [group for group in groups if group]
    return changed


def _built_in(name: str, required: str, *, en: str, it: str, properties: dict[str, Any]) -> Tool:
    """Return a tool that the planner itself carries out."""
    return Tool(
        name=name,
        version="1.0.0",
        descriptions={"en": en, "it": it},
        args={"type": "object", "required": [required], "properties": properties},
        run=RunPolicy(effect="read", timeout_s=0),
    )


FINAL_ANSWER = _built_in(
    "final_answer",
    "message",
    en="Answer the person and finish.",
    it="Risponde alla persona e conclude.",
    properties={"message": {"type": "string", "description": {"en": "The answer", "it": "La risposta"}}},
)
"""Ends a run with a message for the user; the planner itself carries it out."""

ASK_USER = _built_in(
    "ask_user",
    "question",
    en="Ask the person a question.",
    it="Fa una domanda alla persona.",
    properties={
        "question": {"type": "string", "description": {"en": "The question", "it": "La domanda"}},
        "options": {
            "type": "array",
            "items": {"type": "string"},
            "description": {"en": "Answers to choose from", "it": "Le risposte tra cui scegliere"},
        },
    },
)
"""Asks the user a question; the planner itself carries it out."""

FIND_TOOLS = _built_in(
    "find_tools",
    "query",
    en="Search for more tools, if none of these can do what is needed.",
    it="Cerca altri strumenti, se nessuno di questi può fare ciò che serve.",
    properties={
        "query": {
            "type": "string",
            "minLength": 1,
            "description": {"en": "What the tool should do", "it": "Che cosa deve fare lo strumento"},
        }
    },
)
"""Offers more of the tools that were dropped for their rank; the planner itself carries it out."""

BUILT_IN_TOOLS: tuple[Tool, ...] = (FINAL_ANSWER, ASK_USER, FIND_TOOLS)


def excluding(tool: Tool, arguments: Sequence[Mapping[str, Any]]) -> Tool:
    """Return the tool without the calls that have exactly one of these arguments, in whatever order.

    `validate_call` refuses them. So does a grammar, unless it reports that it does not enforce `not`: for
    arguments with many members, and where only a step reference differs.
    """
    if not arguments:
        return tool
    excluded: dict[str, Any] = {"enum": [*arguments]}
    if "not" in tool.args:
        excluded = {"anyOf": [tool.args["not"], excluded]}
    return replace(tool, args={**tool.args, "not": excluded})


def with_arguments(tool: Tool, names: Collection[str]) -> Tool:
    """Return the tool with these of its arguments only."""
    others = tool.args["properties"].keys() - set(names)
    return replace(tool, args=without_properties(tool.args, others))


def offered_args(tool: Tool, steps: Sequence[int]) -> dict[str, Any] | None:
    """Return the argument schema offered to a model when `steps` have entries.

    Without steps, step references are removed from the properties and from each group of `requires_one_of`.
    None: the tool cannot be called, since it needs a step reference.
    """
    args = tool.model_args()
    removed = frozenset() if steps else frozenset(tool.step_references)
    if not removed:
        return args
    offered = without_properties(args, removed)
    lists = ("required", "requires_one_of")
    return offered if all(len(offered.get(key, ())) == len(args.get(key, ())) for key in lists) else None
