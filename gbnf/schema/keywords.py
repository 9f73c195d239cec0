"""What this compiler knows of JSON Schema's keywords.

Each keyword is enforced by the grammar (`gbnf.schema.expand`), or listed here as one that only the
validator checks, or an annotation. A keyword that is in none of these is no part of JSON Schema, and so
an annotation too (2020-12 core, 4.3.1).
"""

from __future__ import annotations

#: Keyword -> the JSON types on which it says something. The grammar doesn't hold these; the validator does.
VALIDATOR_ONLY: dict[str, frozenset[str]] = {
    "pattern": frozenset({"string"}),
    "format": frozenset({"string"}),
    "multipleOf": frozenset({"number"}),
    "uniqueItems": frozenset({"array"}),
    "contains": frozenset({"array"}),
    "minContains": frozenset({"array"}),
    "maxContains": frozenset({"array"}),
    "unevaluatedItems": frozenset({"array"}),
    "patternProperties": frozenset({"object"}),
    "propertyNames": frozenset({"object"}),
    "minProperties": frozenset({"object"}),
    "maxProperties": frozenset({"object"}),
    "dependentRequired": frozenset({"object"}),
    "dependentSchemas": frozenset({"object"}),
    "dependencies": frozenset({"object"}),
    "unevaluatedProperties": frozenset({"object"}),
    "not": frozenset({"null", "boolean", "number", "string", "array", "object"}),
    "if": frozenset({"null", "boolean", "number", "string", "array", "object"}),
    "$dynamicRef": frozenset({"null", "boolean", "number", "string", "array", "object"}),
    "$recursiveRef": frozenset({"null", "boolean", "number", "string", "array", "object"}),
}

#: Formats that jsonschema's format checker judges; the others are annotations by the standard.
CHECKED_FORMATS = frozenset(
    {
        "color", "date", "date-time", "duration", "email", "hostname", "idn-email", "ip-address", "ipv4",
        "ipv6", "iri", "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri",
        "uri-reference", "uri-template", "uuid",
    }
)  # fmt: skip

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
