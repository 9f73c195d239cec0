"""The keywords of JSON Schema that the compiler knows.

A keyword that isn't in `KEYWORDS` does not affect which values are valid: it is an annotation, standard or
custom (2020-12 core, 4.3.1).
"""

from __future__ import annotations

from functools import cache

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

#: Private keywords, in complements, for what JSON Schema has no keyword for, or not in every draft.
NOT_PATTERN = "gbnf:notPattern"
NOT_FORMAT = "gbnf:notFormat"
NOT_WORDS = "gbnf:notWords"
NOT_INTEGER = "gbnf:notInteger"
ABOVE = "gbnf:above"
BELOW = "gbnf:below"
HAS_ITEM = "gbnf:holds"
FIRST_ITEMS = "gbnf:firstItems"
PRIVATE = frozenset({NOT_PATTERN, NOT_FORMAT, NOT_WORDS, NOT_INTEGER, ABOVE, BELOW, HAS_ITEM, FIRST_ITEMS})
#: Wraps the condition of an `if` that is satisfied.
CONDITION = "gbnf:condition"
#: Lists schemas that may be satisfied too: what they evaluate then counts.
OPTIONAL = "gbnf:optional"

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


@cache
def unknown_keywords(draft: str) -> frozenset[str]:
    """Return the keywords of other drafts that a draft (`draft-04` to `2020-12`) does not have."""
    drafts = ["draft-04", *_LATER]
    later = drafts[drafts.index(draft) + 1 :]
    return frozenset(_EARLIER.get(draft, set()).union(*(_LATER[one] for one in later)))


TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

#: The keywords that lead to another schema.
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

#: The keywords that constrain what other keywords leave unevaluated, and so depend on the branches chosen.
UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})

#: The keywords that offer branches.
CHOICES = frozenset({"anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies"})
