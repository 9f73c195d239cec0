"""Are the probabilities of values calibrated? Of those near p, is a share of p right?

    python bench/calibration.py DIR [--model smollm2] [--limit 100]

Asks the questions of the leaderboard's files in DIR that want one call, and prints by kind of value (names of
tools; values among few; numbers) how many were right in each range of probability, with the mean there, the
expected calibration error (ECE), the Brier score beside that of always saying the mean, and what
`--confirm-below` would ask about.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gbnf_bench.bfcl.ast_checker import is_right
from gbnf_bench.bfcl.files import LeaderboardEntry, read_folder
from gbnf_bench.bfcl.functions import tools_of
from gbnf_server import Context, Planner, PlannerOptions
from gbnf_server.backends.base import Backend
from gbnf_server.backends.opening import open_model
from gbnf_server.executors import Workspace
from gbnf_server.llama.token_values import ValueProbability
from tables import parser_of, print_heads

BINS = (0.0, 0.5, 0.7, 0.9, 0.99)
CONFIRM_BELOW = (0.5, 0.6, 0.8, 0.9, 0.99)


def judged(entry: LeaderboardEntry, model: Backend, folder: str) -> Iterator[tuple[str, float, bool]]:
    """Ask a question; yield the kind, the probability and the verdict of each value of the call."""
    tools = tools_of(entry.functions)
    functions = {tool.name: function for function, tool in tools.items()}
    options = PlannerOptions(
        max_steps=1, max_seconds=None, required=("*",), salvage=False, max_tokens=200, probabilities=True
    )
    planner = Planner(tools.values(), model, options, context=Context(Workspace(folder)))
    query = "\n\n".join(message["content"] for message in entry.messages)
    (step,) = planner.run(query).steps
    if step.call is None:
        return
    (expected,) = entry.expected
    name = functions.get(step.call["name"], step.call["name"])
    is_right_name = name in expected
    lowest, right = 1.0, is_right_name
    for value in step.probabilities:
        if (kind := kind_of(value)) is None:
            continue
        verdict = is_right_name
        if kind != "name":
            if not is_right_name:
                continue
            argument = value.pointer.split("/")[2]
            function = next(function for function in entry.functions if function["name"] == name)
            parameter = function["parameters"]["properties"].get(argument)
            acceptable = expected[name].get(argument)
            verdict = (
                parameter is not None
                and acceptable is not None
                and is_right(step.call["arguments"][argument], parameter, acceptable)
            )
        lowest, right = min(lowest, value.probability), right and verdict
        yield kind, value.probability, verdict
    if step.probabilities:
        yield "call (its lowest value)", lowest, right


def kind_of(value: ValueProbability) -> str | None:
    """Return the kind of a value; None for one inside of an argument, whose verdict is the argument's."""
    path = value.pointer.split("/")[1:]
    if path == ["name"]:
        return "name"
    if len(path) != 2:
        return None
    return "among few" if value.alternatives else "number"


def report(kind: str, judgements: Sequence[tuple[float, bool]]) -> None:
    """Print the table of a kind."""
    rate = sum(right for _, right in judgements) / len(judgements)
    brier = sum((share - right) ** 2 for share, right in judgements) / len(judgements)
    error, cells = 0.0, []
    for low, high in zip(BINS, (*BINS[1:], 1.01), strict=True):
        within = [(share, right) for share, right in judgements if low <= share < high]
        if not within:
            cells.append("–")
            continue
        mean = sum(share for share, _ in within) / len(within)
        correct = sum(right for _, right in within)
        error += abs(correct - mean * len(within)) / len(judgements)
        cells.append(f"{correct}/{len(within)} ({mean:.2f})")
    scores = f"{error:.2f} | {brier:.3f} | {rate * (1 - rate):.3f}"
    print(f"| {kind} | {len(judgements)} | {rate:.0%} | {' | '.join(cells)} | {scores} |")


def report_all(judgements: Mapping[str, Sequence[tuple[float, bool]]]) -> None:
    """Print the probability and the verdict of each value, by kind."""
    ranges = [f"{low:g}–{high:g}" for low, high in zip(BINS, (*BINS[1:], 1), strict=True)]
    print_heads(f"values | n | right | {' | '.join(ranges)} | ECE | Brier | of the mean")
    for kind, values in judgements.items():
        report(kind, values)


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--limit", type=int, default=100)
    args = parser.parse_args()
    model = open_model(args.model)
    judgements: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    leaderboard = read_folder(args.folder, categories=("simple_python", "multiple"), limit=args.limit)
    with tempfile.TemporaryDirectory() as folder:
        for entry in leaderboard.questions:
            for kind, share, right in judged(entry, model, folder):
                judgements[kind].append((share, right))
    report_all(judgements)
    calls = judgements["call (its lowest value)"]
    print("\n| --confirm-below | asks about | of them wrong | wrong calls found |\n|---|---|---|---|")
    for limit in CONFIRM_BELOW:
        asked = [right for share, right in calls if share < limit]
        wrong = sum(not right for right in asked)
        every = sum(not right for _, right in calls)
        print(f"| {limit} | {len(asked)} of {len(calls)} | {wrong} | {wrong} of {every} |")


if __name__ == "__main__":
    main()
