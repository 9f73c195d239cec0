"""The JSON-Schema-Test-Suite, judged by llama.cpp's own engine.

A case passes if its instance is valid and accepted (keys in declared order), or invalid and either refused
or explained by the report. Cases that fail are listed in `expectations.json`, by file, group and test,
each with what happens instead; one text for a whole group where all of its cases are alike. After a change of
the compiler, write that table anew and look at what became of it:

    python tests/external/suite.py --update
    git diff tests/external/expectations.json
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

# Run as a program, it is neither beside the benchmarks nor among the tests.
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from contenders import gbnf_judge, open_model
from corpus import DataMissingError, shared_path, vocabulary_path
from explanations import unexplained
from external.declared_order import in_declared_order
from gbnf import Grammar
from gbnf.compiler.schema import compile_schema
from gbnf.errors import GbnfError

EXPECTATIONS = Path(__file__).with_name("expectations.json")
DRAFTS = {
    "draft2020-12": jsonschema.Draft202012Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft4": jsonschema.Draft4Validator,
}
FORMATS = (
    "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6",
    "uri", "uri-reference", "uuid", "json-pointer",
)  # fmt: skip
_UNSATISFIABLE = "no JSON value satisfies the schema"
_VOCABULARY = "ggml-vocab-qwen2.gguf"

#: Group to test to what happens instead, or to one text where all tests of a group are alike.
Failures = dict[str, dict[str, str] | str]


@dataclass(frozen=True, slots=True)
class Group:
    """One schema of the suite, with its tests: description, instance, whether it is valid."""

    draft: str
    description: str
    schema: Any
    tests: tuple[tuple[str, Any, bool], ...]


def suite_path() -> Path | None:
    """The folder of the suite: JSON_SCHEMA_TEST_SUITE, else among the shared data; None if it is not."""
    if named := os.environ.get("JSON_SCHEMA_TEST_SUITE"):
        return Path(named)
    try:
        return shared_path("json-schema-test-suite")
    except DataMissingError:
        return None


def suite_files() -> list[str]:
    """The files that are judged, such as `draft7/items.json`; none without the suite."""
    root = suite_path()
    if root is None:
        return []
    found = []
    for draft in DRAFTS:
        formats = [root / "tests" / draft / "optional" / "format" / f"{name}.json" for name in FORMATS]
        files = [
            *sorted((root / "tests" / draft).glob("*.json")),
            *(path for path in formats if path.is_file()),
        ]
        found += [path.relative_to(root / "tests").as_posix() for path in files]
    return found


def load_groups(name: str) -> Iterator[Group]:
    """The groups of one file. If two have one description, the second gets a number.

    A schema that names no draft gets that of its folder, since the compiler cannot know it otherwise.
    """
    root = suite_path()
    assert root is not None
    draft = name.partition("/")[0]
    uri = DRAFTS[draft].META_SCHEMA["id" if draft == "draft4" else "$schema"]
    seen: Counter[str] = Counter()
    for raw in json.loads((root / "tests" / name).read_text(encoding="utf-8")):
        schema = raw["schema"]
        if isinstance(schema, Mapping) and "$schema" not in schema:
            schema = {"$schema": uri, **schema}
        tests = tuple((test["description"], test["data"], test["valid"]) for test in raw["tests"])
        yield Group(draft, _numbered(seen, raw["description"]), schema, tests)


def _numbered(seen: Counter[str], description: str) -> str:
    seen[description] += 1
    return description if seen[description] == 1 else f"{description} ({seen[description]})"


def failures_of_file(name: str) -> Failures:
    """The cases of one file that fail."""
    found: Failures = {}
    for group in load_groups(name):
        failures = failures_of_group(group)
        reasons = set(failures.values())
        if len(failures) == len(group.tests) > 1 and len(reasons) == 1:
            found[group.description] = reasons.pop()
        elif failures:
            found[group.description] = failures
    return found


def failures_of_group(group: Group) -> dict[str, str]:
    """The cases of one schema that fail: test to what happens instead."""

    def for_all(reason: str) -> dict[str, str]:
        return {description: reason[:200] for description, _, _ in group.tests}

    try:
        grammar = compile_schema(group.schema)
    except GbnfError as error:
        if _UNSATISFIABLE in str(error):  # all that is invalid is as good as refused
            return {name: f"compile error: {error}"[:200] for name, _, valid in group.tests if valid}
        return for_all(f"compile error: {error}")
    except Exception as error:  # noqa: BLE001  # the table says it; the suite goes on
        return for_all(f"crashed: {type(error).__name__}: {error}")
    try:
        Grammar.parse(str(grammar))
        accepts = gbnf_judge(_model(), str(grammar))
    except GbnfError as error:
        return for_all(f"engine refused: {error}")
    found = {}
    for description, data, valid in group.tests:
        text = json.dumps(in_declared_order(group.schema, data), ensure_ascii=False)
        accepted = accepts(text)
        if valid and not accepted:
            found[description] = "rejects valid"
        elif accepted and not valid:
            broken = unexplained(group.schema, data, grammar.report, draft=DRAFTS[group.draft])
            if broken:
                found[description] = f"accepts invalid, unexplained: {broken[0]}"[:200]
    return found


@cache
def _model() -> Any:
    return open_model(vocabulary_path(_VOCABULARY))


def load_expectations() -> dict[str, Failures]:
    """File to the cases in it that fail."""
    table: dict[str, Failures] = json.loads(EXPECTATIONS.read_text(encoding="utf-8"))
    return table


def main() -> None:
    """Judge the whole suite and report the cases that fail; with --update, write the table."""
    if sys.argv[1:] not in ([], ["--update"]):
        raise SystemExit("usage: python tests/external/suite.py [--update]")
    table = {name: failures for name in suite_files() if (failures := failures_of_file(name))}
    if not suite_files():
        raise SystemExit("there is no suite here: set JSON_SCHEMA_TEST_SUITE or GBNF_SHARED to its folder")
    counts, total = Counter[str](), 0
    for name in suite_files():
        for group in load_groups(name):
            total += len(group.tests)
            some = table.get(name, {}).get(group.description, {})
            reasons = [some] * len(group.tests) if isinstance(some, str) else some.values()
            counts.update(reason.partition(":")[0] for reason in reasons)
    text = json.dumps(table, indent=1, ensure_ascii=False) + "\n"
    sys.stdout.write(f"{text}{total} cases, {counts.total()} do not hold: {dict(counts)}\n")
    if sys.argv[1:]:
        EXPECTATIONS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
