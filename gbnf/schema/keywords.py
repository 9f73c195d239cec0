"""What this compiler knows of JSON Schema's keywords.

A keyword that isn't in `KEYWORDS` says nothing about which values are valid: it is an annotation, of the
standard or of somebody's own (2020-12 core, 4.3.1).
"""

from __future__ import annotations

#: The keywords that make values valid or invalid.
KEYWORDS = frozenset(
    {
        "$ref", "$dynamicRef", "$recursiveRef",
        "type", "enum", "const",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minLength", "maxLength", "pattern", "format",
        "items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems",
        "uniqueItems", "contains", "minContains", "maxContains",
        "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "unevaluatedProperties", "minProperties", "maxProperties",
        "dependentRequired", "dependentSchemas", "dependencies",
        "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    }
)  # fmt: skip

#: Keywords of our own, in complements, for what JSON Schema has no word for.
NOT_PATTERN = "gbnf:notPattern"
NOT_FORMAT = "gbnf:notFormat"
NOT_WORDS = "gbnf:notWords"
NOT_INTEGER = "gbnf:notInteger"
PRIVATE = frozenset({NOT_PATTERN, NOT_FORMAT, NOT_WORDS, NOT_INTEGER})

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

#: The keywords of which a value may satisfy one branch or another.
CHOICES = frozenset({"anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies"})
