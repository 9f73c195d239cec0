"""Can a small model write poems, and judge them, without any tool call?

pip install 'gbnf-toolkit[run]' && python examples/haiku_tournament.py MODEL.gguf [TOPIC]

A planner says how many poets and judges there are, each poet writes three lines, and each judge picks one
poem and says why. All of them answer in lines, which models write more reliably than calls, and the model is
asked once for each poem and each vote. An out-of-range number is moved to its bound; a poet or judge without
a valid answer abstains. The URL of a llama-server takes the place of a file, too.
"""

import sys
from collections import Counter
from typing import Annotated

from pydantic import BaseModel, Field, create_model

from gbnf_server import ExtractionError, extract, extract_many

MODEL = sys.argv[1] if len(sys.argv) > 1 else sys.exit("name a model file, or the URL of a llama-server")
TOPIC = sys.argv[2] if len(sys.argv) > 2 else "a frog and an old pond"
Line = Annotated[str, Field(min_length=3, max_length=80)]
Haiku = Annotated[list[Line], Field(min_length=3, max_length=3)]


class Tournament(BaseModel):
    """How many take part in a tournament."""

    poets: int = Field(ge=2, le=3)
    judges: int = Field(ge=1, le=2)


LINES = {"model": MODEL, "call_format": "lines", "clamp": True, "max_tokens": 120}

tournament = extract(Tournament, "A small tournament with 17 poets and 3 judges, please.", **LINES).value
print(f"{tournament.poets} poets, {tournament.judges} judges")

MOODS = "in spring", "at night", "in the rain"
briefs = [f"Write about {TOPIC}, {mood}." for mood in MOODS[: tournament.poets]]
written = extract_many(Haiku, briefs, instructions="Write a haiku of three short lines.", **LINES)
poems = [haiku.value for haiku in written if not isinstance(haiku, ExtractionError)]
print(f"{len(briefs) - len(poems)} poets abstained")
shown = "\n".join(f"Haiku {number}: {' / '.join(poem)}" for number, poem in enumerate(poems, 1))
print(shown)
if len(poems) < 2:
    sys.exit("there is nothing to judge")

Vote = create_model(
    "Vote",
    __doc__="Pick the best haiku.",
    best=(int, Field(ge=1, le=len(poems), description="number of the best haiku")),
    reason=(str, Field(max_length=120, description="one short sentence")),
)
ballots = [f"Judge {number}.\n{shown}" for number in range(1, tournament.judges + 1)]
votes = Counter[int]()
for judge, ballot in enumerate(extract_many(Vote, ballots, **LINES), 1):
    if isinstance(ballot, ExtractionError):
        print(f"judge {judge} abstained: {ballot.attempts[-1].problem if ballot.attempts else ballot}")
        continue
    votes[ballot.value.best] += 1
    print(f"judge {judge}: {ballot.value.best}, {ballot.value.reason}")
for number, count in votes.most_common(1):
    print(f"winner: {number} with {count} of {tournament.judges} votes")
