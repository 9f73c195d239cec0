"""Print the right calls of each invented service of `bench/unseen_tools`, from results of `gbnf bench`.

    gbnf bench --bfcl bench/unseen_tools --model smollm2 --configuration unaided --configuration grammar
    python bench/services.py RESULTS.json…

A service has five requests with one tool and five that choose among its tools.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tables import parser_of

SERVICES = (
    "rides", "weather", "code host", "smart home", "groceries", "calendar", "database", "file search",
    "payments", "translation", "tickets", "music", "hotels", "file system", "cluster", "logs", "stocks",
    "recipes", "mail", "conversion",
)  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    columns: list[str] = []
    right: Counter[tuple[int, str]] = Counter()
    asked: Counter[tuple[int, str]] = Counter()
    for file in parser.parse_args().results:
        content = json.loads(file.read_text("utf-8"))
        for answer in content["answers"]:
            column = f"{content['label']} {answer['configuration']}"
            columns += [] if column in columns else [column]
            service = int(answer["id"].removeprefix(f"{answer['category']}_").split("-")[0]) // 5
            asked[service, column] += 1
            right[service, column] += answer["right"]
    print(f"| service | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for number, name in enumerate(SERVICES):
        cells = (f"{right[number, head]} of {asked[number, head]}" for head in columns)
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
