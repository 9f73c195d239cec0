"""The JSON-Schema-Test-Suite passes except for the cases in the table, and the table may only shrink."""

from __future__ import annotations

import pytest

from external.suite import Failures, failures_of_file, load_expectations, load_groups, suite_files

_MISSING = pytest.param(
    None, marks=pytest.mark.skip(reason="no suite here: set JSON_SCHEMA_TEST_SUITE or GBNF_SHARED")
)


def _cases(name: str, failures: Failures) -> set[tuple[str, str]]:
    """Group and test of each failure; a group that fails alike as a whole is each of its tests."""
    return {
        (group.description, description)
        for group in load_groups(name)
        for description, _, _ in group.tests
        if isinstance(some := failures.get(group.description, {}), str) or description in some
    }


@pytest.mark.parametrize("name", suite_files() or [_MISSING])
def test_passing_cases_still_pass(name: str) -> None:
    found, listed = failures_of_file(name), load_expectations().get(name, {})
    failing, expected = _cases(name, found), _cases(name, listed)
    failures = "\n".join(
        f"  {group}: {found[group]}" for group in sorted({group for group, _ in failing - expected})
    )
    assert not failing - expected, f"these passed before, or are new:\n{failures}"
    assert not expected - failing, (
        f"these pass now: {sorted(expected - failing)}. Run `python tests/external/suite.py --update`."
    )


@pytest.mark.skipif(not suite_files(), reason="no suite here")
def test_the_table_names_what_the_suite_has() -> None:
    files = set(suite_files())
    for name, failures in load_expectations().items():
        assert name in files
        assert set(failures) <= {group.description for group in load_groups(name)}
