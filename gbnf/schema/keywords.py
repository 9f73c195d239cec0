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

#: Keywords of our own, in complements, for what JSON Schema has no word for, or not in every draft.
NOT_PATTERN = "gbnf:notPattern"
NOT_FORMAT = "gbnf:notFormat"
NOT_WORDS = "gbnf:notWords"
NOT_INTEGER = "gbnf:notInteger"
ABOVE = "gbnf:above"
BELOW = "gbnf:below"
HAS_ITEM = "gbnf:holds"
PRIVATE = frozenset({NOT_PATTERN, NOT_FORMAT, NOT_WORDS, NOT_INTEGER, ABOVE, BELOW, HAS_ITEM})
#: Around the condition of an `if` that holds.
CONDITION = "gbnf:condition"

_LATER = {
    "draft-06": {"const", "contains", "propertyNames"},
    "draft-07": {"if", "then", "else"},
    "2019-09": {
        "dependentRequired", "dependentSchemas", "minContains", "maxContains", "$recursiveRef",
        "unevaluatedItems", "unevaluatedProperties",
    },
    "2020-12": {"prefixItems", "$dynamicRef"},
}  # fmt: skip
_EARLIER = {"2019-09": {"dependencies"}, "2020-12": {"dependencies", "$recursiveRef"}}


def unknown_keywords(draft: str) -> frozenset[str]:
    """The keywords that say nothing in a draft (`draft-04` to `2020-12`), since others have them."""
    drafts = ["draft-04", *_LATER]
    later = drafts[drafts.index(draft) + 1 :]
    return frozenset(_EARLIER.get(draft, set()).union(*(_LATER[one] for one in later)))


TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

#: The keywords that lead to another schema.
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

#: The keywords of which a value may satisfy one branch or another.
CHOICES = frozenset({"anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies"})
