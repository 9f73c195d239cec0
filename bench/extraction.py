"""How many fields of typed values does a small model get right from short texts, with and without spans?

    python bench/extraction.py --model F.gguf|smollm2 [--limit N] [--verbose]

Thirty texts in six languages and seven types with 204 fields (`extraction_texts.json`): dates, times,
durations, amounts, numbers, names, addresses and choices, some of them optional and absent. `own`: written
with the rules for spans; `independent`: by an author who did not know them, with distractors and values that
no text has as such; a few rules were added after they were read. A field is right if it has the expected
value; strings are compared without case, accents and spaces around them. `invalid`: texts without a valid
value. The second table says how probable the values were with spans, and how many were right
(`bench/calibration.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter, defaultdict
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from calibration import report_all
from gbnf.requests.phrases import plain_text
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.planner.extraction import ExtractionError, Extractor
from tables import new_table, parser_of, show


class Currency(StrEnum):
    """Of an amount."""

    EUR = "EUR"
    GBP = "GBP"
    USD = "USD"


class Invoice(BaseModel):
    """An invoice or a receipt."""

    number: str | None = Field(None, description="Invoice number")
    seller: str
    issued: dt.date
    due: dt.date | None = None
    total: Decimal = Field(description="Amount to pay")
    currency: Currency
    items: int | None = Field(None, description="How many items")


class Appointment(BaseModel):
    """An appointment."""

    who: str = Field(description="Person or company to meet")
    day: dt.date
    start: dt.time
    minutes: int | None = Field(None, description="Length in minutes")
    place: str | None = None
    phone: str | None = None


class Booking(BaseModel):
    """A booking of a room or a table."""

    guest: str
    email: str | None = None
    people: int
    arrival: dt.date
    nights: int | None = None
    price: float | None = Field(None, description="Total price")


class DeliveryStatus(StrEnum):
    SCHEDULED = "scheduled"
    DELAYED = "delayed"
    DELIVERED = "delivered"
    RETURNED = "returned"


class DeliveryNote(BaseModel):
    order_code: str = Field(description="Order, shipment or delivery note code")
    delivery_date: dt.date = Field(
        description="Day of the delivery: the new day if it was moved, that of the return if it was sent back"
    )
    arrival_time: dt.time | None = None
    parcels: int = Field(description="Number of parcels, boxes or other packages")
    weight_kg: float | None = Field(default=None, description="Total weight in kilograms")
    status: DeliveryStatus
    amount_due: Decimal | None = Field(
        default=None, description="Amount the recipient has to pay on delivery"
    )


class Species(StrEnum):
    DOG = "dog"
    CAT = "cat"
    RABBIT = "rabbit"
    BIRD = "bird"


class VetVisit(BaseModel):
    animal_name: str
    species: Species
    visit_date: dt.date
    visit_time: dt.time | None = None
    weight: float | None = Field(default=None, description="Latest weight of the animal, in kg")
    fee: Decimal | None = Field(default=None, description="Total price of the visit")
    next_visit: dt.date | None = Field(default=None, description="Date of the follow-up after this visit")


class FlatForRent(BaseModel):
    address: str | None = Field(default=None, description="Street and house number")
    monthly_rent: Decimal = Field(description="Rent per month, without bills or service charges")
    deposit: Decimal | None = None
    bedrooms: int
    area: float | None = Field(default=None, description="Floor area in square metres")
    available_from: dt.date | None = None
    furnishing: Literal["furnished", "part-furnished", "unfurnished"] | None = None


class TravelTicket(BaseModel):
    origin: str
    destination: str
    travel_date: dt.date
    departure_time: dt.time
    duration_minutes: int | None = Field(default=None, description="Length of the journey")
    passengers: int
    total_price: Decimal | None = Field(default=None, description="Price for all passengers together")


TYPES: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for kind in (Invoice, Appointment, Booking, DeliveryNote, VetVisit, FlatForRent, TravelTicket)
}
TEXTS = Path(__file__).parent / "extraction_texts.json"
KINDS = ("date", "time, duration", "number, amount", "choice", "string")


def kind_of(type_: type[BaseModel], name: str) -> str:
    """Return the kind of a field."""
    annotation = str(type_.model_fields[name].annotation)
    if "datetime.date" in annotation:
        return "date"
    if "datetime.time" in annotation or "minutes" in name:
        return "time, duration"
    if any(number in annotation for number in ("int", "float", "Decimal")):
        return "number, amount"
    return "string" if "'str'" in annotation or annotation.startswith("str") else "choice"


def is_right(value: Any, expected: Any) -> bool:
    """Return whether a value is the expected one: a number as a number, times to the minute."""
    if value is None or expected is None:
        return value is expected
    if isinstance(expected, int | float):
        return abs(float(value) - expected) < 1e-9
    text, wanted = plain_text(str(value)).strip(" ."), plain_text(str(expected)).strip(" .")
    return text in {wanted, f"{wanted}:00", f"{wanted}:00z"}


def run(
    extractors: dict[str, Extractor[Any]],
    cases: list[dict[str, Any]],
    shares: dict[str, list[tuple[float, bool]]],
    *,
    verbose: bool,
) -> tuple[str, ...]:
    """Extract from each text; return the cells of a row. Adds probabilities and verdicts to `shares`."""
    right, total, missed, invalid = Counter[str](), Counter[str](), Counter[str](), 0
    begun = time.perf_counter()
    for case in cases:
        try:
            extraction = extractors[case["type"]].extract(case["text"])
            values, probabilities = extraction.value.model_dump(), extraction.probabilities
        except ExtractionError:
            values, probabilities, invalid = {}, {}, invalid + 1
        for name, expected in case["fields"].items():
            kind, value = kind_of(TYPES[case["type"]], name), values.get(name)
            is_good = name in values and is_right(value, expected)
            right[kind] += is_good
            if (share := probabilities.get(f"/{name}")) is not None:
                shares[kind].append((share, is_good))
            total[kind] += 1
            missed["filled"] += expected is None and value is not None
            missed["left out"] += expected is not None and value is None
            if verbose and not is_good:
                print(f"{case['type']}.{name}: {value!r}, not {expected!r}")
    counts = (right.total(), total.total()), *((right[kind], total[kind]) for kind in KINDS)
    seconds = (time.perf_counter() - begun) / len(cases)
    rest = missed["filled"], missed["left out"], invalid, f"{seconds:.1f}"
    return (*(f"{some} of {all_}" for some, all_ in counts), *map(str, rest))


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    shares: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    cases = json.loads(TEXTS.read_text("utf-8"))
    columns = (
        "texts",
        "spans",
        "fields right",
        *KINDS,
        "absent, but filled",
        "left out",
        "invalid",
        "s a text",
    )
    table = new_table("|".join(columns))
    with ModelSource(model=arguments.model, threads=1).open() as backend:
        for name in dict.fromkeys(case["set"] for case in cases):
            some = [case for case in cases if case["set"] == name][: arguments.limit]
            for spans in (False, True):
                extractors = {name: Extractor(type_, backend, spans=spans) for name, type_ in TYPES.items()}
                cells = run(
                    extractors, some, shares if spans else defaultdict(list), verbose=arguments.verbose
                )
                table.add_row(f"{name} ({len(some)})", "yes" if spans else "no", *cells)
    show(table)
    print()
    report_all(shares)


if __name__ == "__main__":
    main()
