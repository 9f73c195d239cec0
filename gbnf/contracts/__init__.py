r"""Plain-text contracts: an answer of a few lines, for tasks that a small model does better without JSON.

    contract = Contract(best=pick(3), reason=text())
    contract.prompt()          # the section that says how to answer
    contract.gbnf()            # the grammar, for a backend that takes one
    contract.parse("2 - the second\nIt rhymes.")    # Value({"best": 2, "reason": "It rhymes."})
    contract.parse("I can't decide.")               # Abstention, with the raw text and the reason

What must stay true:

- every text of the grammar parses to a value, and every value that `render` writes is in the grammar;
- the prompt shows placeholders, never content that a small model could copy; a placeholder that comes back
  is no answer;
- no text raises, and nothing is guessed: what was left out or moved is listed.
"""

from gbnf.contracts.contract import Contract, InvalidAnswer, ParsedAnswer, ParseOutcome
from gbnf.contracts.fields import Choice, Field, Lines, Number, Pick, Text, choice, lines, number, pick, text

__all__ = [
    "Choice",
    "Contract",
    "Field",
    "InvalidAnswer",
    "Lines",
    "Number",
    "ParseOutcome",
    "ParsedAnswer",
    "Pick",
    "Text",
    "choice",
    "lines",
    "number",
    "pick",
    "text",
]
