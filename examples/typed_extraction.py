"""How do I get a value of my own type from a text, where does it stand there, and how sure is the model?

pip install 'gbnf-toolkit[run]' && python examples/typed_extraction.py
"""

from typing import Literal

from pydantic import BaseModel, Field

from gbnf_server import choose, extract


class Invoice(BaseModel):
    """What an invoice says."""

    customer: str
    total: float = Field(ge=0)
    currency: Literal["EUR", "USD", "GBP"]


TEXT = "Invoice for Ada Lovelace. Total: 120.50 EUR, to be paid by the end of the month."

extraction = extract(Invoice, TEXT, model="smollm2")
print(repr(extraction.value))
for pointer, span in extraction.spans.items():
    print(f"{pointer}: {span}")
for pointer, probability in extraction.probabilities.items():  # of values that had an alternative
    print(f"{pointer}: {probability:.2f}")

choice = choose(["invoice", "order", "complaint"], TEXT, model="smollm2")
print(choice.value, {value: round(share, 2) for value, share in choice.probabilities.items()})
