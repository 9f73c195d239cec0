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

from gbnf.contracts.contract import Contract as Contract
from gbnf.contracts.contract import InvalidAnswer as InvalidAnswer
from gbnf.contracts.contract import ParsedAnswer as ParsedAnswer
from gbnf.contracts.contract import ParseOutcome as ParseOutcome
from gbnf.contracts.fields import ChoiceField as ChoiceField
from gbnf.contracts.fields import Field as Field
from gbnf.contracts.fields import LinesField as LinesField
from gbnf.contracts.fields import NumberField as NumberField
from gbnf.contracts.fields import PickField as PickField
from gbnf.contracts.fields import TextField as TextField
from gbnf.contracts.fields import choice as choice
from gbnf.contracts.fields import lines as lines
from gbnf.contracts.fields import number as number
from gbnf.contracts.fields import pick as pick
from gbnf.contracts.fields import text as text
from gbnf.exports import exported as _exported

__all__ = _exported(globals())  # noqa: PLE0605  # the imports are the list
