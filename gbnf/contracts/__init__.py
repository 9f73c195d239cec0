r"""Output contracts: answers of a few lines of text, for tasks that a small model does better without JSON.

    contract = Contract(best=pick(3), reason=text())
    contract.prompt()          # the section of a prompt that says how to answer
    contract.grammar           # the grammar of the answers, for a backend
    contract.parse("2 - the second\nIt rhymes.")    # ParsedAnswer({"best": 2, "reason": "It rhymes."})
    contract.parse("I can't decide.")               # InvalidAnswer, with the raw text and the reason

Invariants:

- Every text of the grammar parses to a `ParsedAnswer`, and every answer of `render` is in the grammar.
- The prompt shows placeholders, never content that a small model could copy; a copied placeholder is an
  error.
- No text raises, and nothing is guessed: all that was left out or moved is listed in the notes.
"""

from gbnf.contracts.contract import Contract, InvalidAnswer, ParsedAnswer, ParseOutcome
from gbnf.contracts.fields import (
    ChoiceField,
    Field,
    LinesField,
    NumberField,
    PickField,
    TextField,
    choice,
    lines,
    number,
    pick,
    text,
)

__all__ = [
    "ChoiceField",
    "Contract",
    "Field",
    "InvalidAnswer",
    "LinesField",
    "NumberField",
    "ParseOutcome",
    "ParsedAnswer",
    "PickField",
    "TextField",
    "choice",
    "lines",
    "number",
    "pick",
    "text",
]
