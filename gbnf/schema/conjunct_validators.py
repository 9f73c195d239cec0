"""Whether a conjunct allows a value of `enum` or `const`: sets decide where they can, jsonschema the rest."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import KEYWORDS, PRIVATE, UNEVALUATED, types_of
from gbnf.schema.value_sets import value_key
from gbnf.strict_json import nests_deeper
from gbnf.work_limits import spend

#: How deep a value of `enum` or `const` may nest.
_MAX_VALUE_DEPTH = 60
#: The work of a verdict that is known already, in the units of `gbnf.work_limits`.
_KNOWN_WORK = 3
_JUDGED = KEYWORDS | PRIVATE
_FLATTENED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_SCALARS = frozenset({str, int, float, bool, type(None)})


class ConjunctValidator:
    """Validates values by one conjunct: looks up listed and denied values; jsonschema validates the rest.

    Unless `whole`, references and combinators don't count; `not`, `if` and the dependent keywords do. Each
    combination of branches asks for the same values again, so verdicts on scalars are kept.
    """

    def __init__(self, conjunct: Subschema, document: Document, *, whole: bool) -> None:
        raw = conjunct.raw
        self._document = document
        self._listed: frozenset[Hashable] | None = None
        for values in (raw.get("enum"), [raw["const"]] if "const" in raw else None):
            if isinstance(values, list):
                keys = frozenset(value_key(value) for value in values if not is_deep(value))
                self._listed = keys if self._listed is None else self._listed & keys
        self._denied = _denied(raw.get("not"))
        keywords = _JUDGED - {"enum", "const"} - ({"not"} if self._denied else set())
        if not whole and UNEVALUATED.isdisjoint(raw):
            keywords -= _FLATTENED
        self._subschema = _only(conjunct, keywords)
        without_type = keywords - {"type"} if "string" in types_of(raw) else keywords
        self._string_subschema = _only(conjunct, without_type)
        self._verdicts: dict[tuple[type, Hashable], bool] = {}
        #: Whether the conjunct allows every value.
        self.allows_all = self._listed is None and not self._denied and self._subschema is None

    def allows(self, value: Any) -> bool:
        """Return whether the conjunct allows the value. Raises UndecidedError and SchemaError."""
        if self._listed is not None and value_key(value) not in self._listed:
            return False
        if self._denied and value_key(value) in self._denied:
            return False
        subschema = self._string_subschema if isinstance(value, str) else self._subschema
        if subschema is None:
            return True
        if type(value) not in _SCALARS:
            return self._document.allows(subschema, value)
        key = (type(value), value)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self._document.allows(subschema, value)
        else:
            spend(_KNOWN_WORK)
        return verdict


def is_deep(value: Any) -> bool:
    """Return whether a value nests deeper than `_MAX_VALUE_DEPTH`."""
    return type(value) not in _SCALARS and nests_deeper(value, _MAX_VALUE_DEPTH)


def _denied(raw: Any) -> frozenset[Hashable]:
    """Return the values that a `not` forbids, where it consists of `const` or `enum` alone."""
    if not isinstance(raw, Mapping):
        return frozenset()
    match {keyword: value for keyword, value in raw.items() if keyword in KEYWORDS}:
        case {"const": value, **rest} if not rest:
            values = [value]
        case {"enum": list(values), **rest} if not rest:
            pass
        case _:
            return frozenset()
    return frozenset(value_key(value) for value in values if not is_deep(value))


def _only(conjunct: Subschema, keywords: frozenset[str]) -> Subschema | None:
    """Return the subschema with only these keywords; None if it has none of them."""
    raw = {keyword: value for keyword, value in conjunct.raw.items() if keyword in keywords}
    return Subschema(raw, conjunct.pointer, conjunct.resolver) if raw else None
