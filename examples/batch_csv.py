"""How do I fill columns of a CSV file with what its texts say?

pip install 'gbnf-toolkit[run]' && python examples/batch_csv.py reviews.csv > rated.csv

Without a file, it takes the rows below. Results are kept in `rated.log`: after an interruption, the same
command goes on where it was.
"""

import csv
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from gbnf_server import ExtractionError, extract_many

ROWS = """id,text
1,The room was clean and the breakfast excellent.
2,Nobody answered the phone for three days. I want my money back.
"""


class Rating(BaseModel):
    """What a customer thinks."""

    mood: Literal["happy", "angry"]


text = Path(sys.argv[1]).read_text("utf-8") if len(sys.argv) > 1 else ROWS
rows = list(csv.DictReader(text.splitlines()))
writer = csv.DictWriter(sys.stdout, [*rows[0], "mood", "probability"], lineterminator="\n")
writer.writeheader()
results = extract_many(Rating, (row["text"] for row in rows), model="smollm2", log="rated.log", concurrency=1)
for row, result in zip(rows, results, strict=True):
    if isinstance(result, ExtractionError):
        print(f"{row['id']}: {result}", file=sys.stderr)
        continue
    share = result.probabilities.get("/mood", 0)
    writer.writerow({**row, "mood": result.value.mood, "probability": f"{share:.2f}"})
