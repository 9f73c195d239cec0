"""The executor: one tool that a model may call, as a value.

What must stay true: executors with the same content and the same file are equal and hash alike, in every
process; nothing that `runtime_resolved` marks is left in `model_args()`. The mappings inside are plain
dicts, shared and never copied: reading them is free, changing them breaks every cache, so nobody does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from gbnf.schema.applicators import SchemaPath, map_subschemas
from gbnf.tools.languages import primary_language
from gbnf.tools.manifest_checks import manifest_fields
from gbnf.tools.policies import OfferPolicy, RunPolicy


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tool:
    """One tool: its manifest as a value. `executor.py` lies beside `path`, where there is one.

    `descriptions`: language -> text. `args`: the JSON Schema (2020-12) of the arguments, of type
    object, as in the manifest. `extra`: the manifest's unknown keys, nested ones below their table.
    Made by `load_manifests` or `from_mapping`, which check; the constructor itself trusts what it is given.
    """

    name: str
    version: str = ""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    affinity: tuple[str, ...] = ()
    offer: OfferPolicy = field(default_factory=OfferPolicy)
    run: RunPolicy = field(default_factory=RunPolicy)
    path: Path | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    runtime_resolved: frozenset[str] = field(init=False)
    step_references: Mapping[str, str | None] = field(init=False)
    fingerprint: str = field(init=False)
    _model_args: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Compute once what everybody asks for."""
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
        object.__setattr__(self, "fingerprint", self._content_hash())

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], path: Path | None = None) -> Tool:
        """The executor that a manifest's parsed content describes. Raises ManifestError."""
        return cls(**manifest_fields(mapping, path))

    def description(self, language: str = "en") -> str:
        """The description in `language`; failing that in English, then in any; "" where there is none."""
        return localized(self.descriptions, language)

    def model_args(self) -> dict[str, Any]:
        """The arguments that prompt, grammar and model see: `args` without what the runtime fills in.

        The same dict at each call; don't change it.
        """
        return self._model_args

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return int(self.fingerprint[:15], 16)

    def __repr__(self) -> str:
        return f"<Executor {self.name}>"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """The same for IPython and Hypothesis, which print every field of data classes otherwise."""
        printer.text(repr(self))

    def _content_hash(self) -> str:
        content = (
            self.name, self.version, self.descriptions, self.args, self.affinity, self.extra,
            astuple(self.offer),
            astuple(self.run),
            None if self.path is None else str(self.path),
        )  # fmt: skip
        return hashlib.sha256(json.dumps(content, default=repr).encode()).hexdigest()


def localized(text: object, language: str = "en") -> str:
    """A description (text, or table of languages) in `language`, else English, else the first, else ""."""
    if isinstance(text, str):
        return text
    if not isinstance(text, Mapping):
        return ""
    for wanted in (language, primary_language(language), "en", *text):
        found = text.get(wanted)
        if isinstance(found, str):
            return found
    return ""


def is_runtime_resolved(schema: object) -> bool:
    """Whether the runtime fills in the property with this schema, so that the model never sees it."""
    return isinstance(schema, Mapping) and schema.get("runtime_resolved") is True


def is_step_reference(name: str, schema: object) -> bool:
    """Whether a top-level property takes an earlier step's number: it `fills` another, or is `from_step`."""
    if not isinstance(schema, Mapping) or schema.get("type") != "integer":
        return False
    return isinstance(schema.get("fills"), str) or ("fills" not in schema and name == "from_step")


def without_runtime_resolved(schema: Any) -> Any:
    """`schema` without the properties that the runtime fills in, at any depth, nor mention of them."""
    if not isinstance(schema, Mapping):
        return schema
    properties = schema.get("properties", {})
    gone = {name for name, member in properties.items() if is_runtime_resolved(member)}
    kept = dict(schema)
    if gone:
        kept["properties"] = {name: member for name, member in properties.items() if name not in gone}
        if isinstance(schema.get("required"), list):
            kept["required"] = [name for name in schema["required"] if name not in gone]
        if isinstance(schema.get("requires_one_of"), list):
            groups = [[name for name in group if name not in gone] for group in schema["requires_one_of"]]
            kept["requires_one_of"] = [group for group in groups if group]

    def below(_place: SchemaPath, member: Any) -> Any:
        return without_runtime_resolved(member)

    return map_subschemas(kept, below)


FINAL_ANSWER = Tool(
    name="final_answer",
    version="1.0.0",
    descriptions={
        "en": "Answer the person and finish.",
        "it": "Risponde alla persona e conclude.",
    },
    args={
        "type": "object",
        "required": ["message"],
        "properties": {
            "message": {
                "type": "string",
                "description": {"en": "The answer", "it": "La risposta"},
            }
        },
    },
    run=RunPolicy(effect="read", timeout_s=0),
)
"""Ends a run with a message for the person; the planner itself acts on it."""

ASK_USER = Tool(
    name="ask_user",
    version="1.0.0",
    descriptions={
        "en": "Ask the person a question.",
        "it": "Fa una domanda alla persona.",
    },
    args={
        "type": "object",
        "required": ["question"],
        "properties": {
            "question": {
                "type": "string",
                "description": {"en": "The question", "it": "La domanda"},
            },
            "options": {
                "type": "array",
                "items": {"type": "string"},
                "description": {"en": "Answers to choose from", "it": "Le risposte tra cui scegliere"},
            },
        },
    },
    run=RunPolicy(effect="read", timeout_s=0),
)
"""Puts a question to the person; the planner itself acts on it."""

BUILT_IN_TOOLS: tuple[Tool, ...] = (FINAL_ANSWER, ASK_USER)
