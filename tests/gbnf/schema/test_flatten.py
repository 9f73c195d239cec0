"""Flattening preserves the meaning: conjuncts that all apply, and choices of one branch each."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf.errors import SchemaError
from gbnf.schema.document import Document, Subschema, UndecidedError
from gbnf.schema.flatten import Branching, Flattener
from gbnf.schema.keywords import CHOICES, REFERENCES
from support.schemas import DOCUMENTS
from support.values import JSON_VALUES, VALUES_OF_EACH_TYPE, canonical, is_valid, values_near

_FLATTENED = CHOICES | {*REFERENCES, "allOf"}
_NEED_SIBLINGS = {"unevaluatedItems", "unevaluatedProperties"}


class _FlatJudge:
    """Judges by what flattening made of a schema: jsonschema sees only what is left in each conjunct."""

    def __init__(self, schema: Any) -> None:
        self.reports: list[str] = []
        self.document = Document(schema)
        self.flattener = Flattener(self.document, lambda pointer, *_: self.reports.append(pointer))

    def allows(self, subschema: Subschema, value: Any) -> bool:
        flat = self.flattener.flatten((subschema,))
        return all(self._conjunct_allows(conjunct, value) for conjunct in flat.conjuncts) and all(
            self._one_holds(choice, value) for choice in flat.branchings
        )

    def _conjunct_allows(self, conjunct: Subschema, value: Any) -> bool:
        raw = conjunct.raw
        if isinstance(raw, dict) and _NEED_SIBLINGS.isdisjoint(raw):
            raw = {keyword: member for keyword, member in raw.items() if keyword not in _FLATTENED}
        return self.document.allows(Subschema(raw, conjunct.pointer, conjunct.resolver), value)

    def _one_holds(self, choice: Branching, value: Any) -> bool:
        # Of exclusive branches jsonschema counts those that hold: flattening may have widened one of them.
        holding = sum(self.document.allows(branch, value) for branch in choice.branches)
        return any(self.allows(branch, value) for branch in choice.branches) and (
            holding == 1 or not choice.exclusive
        )


@given(st.data())
def test_conjuncts_and_choices_allow_exactly_the_valid_values(data: st.DataObject) -> None:
    schema = data.draw(DOCUMENTS)
    value = canonical(data.draw(values_near(schema) | JSON_VALUES))
    try:
        judge = _FlatJudge(schema)
        for one in (value, *VALUES_OF_EACH_TYPE):
            allowed = judge.allows(judge.document.root, one)
            assert allowed == is_valid(schema, one) or (allowed and judge.reports), one
    except (SchemaError, UndecidedError):
        assume(condition=False)
