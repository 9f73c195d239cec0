"""Comments that switch a check off say why."""

from __future__ import annotations

import re

import pytest

from support.oracle import CHECKOUT

_WITHOUT_REASON = re.compile(r"#\s*(?:noqa|type:\s*ignore)\b[^#\n]*$", re.MULTILINE)


@pytest.mark.parametrize("folder", ["gbnf", "server", "bench", "manifests"])
def test_each_check_that_is_switched_off_has_its_reason(folder: str) -> None:
    unexplained = [
        f"{path.relative_to(CHECKOUT)}: {match[0]}"
        for path in (CHECKOUT / folder).rglob("*.py")
        for match in _WITHOUT_REASON.finditer(path.read_text())
    ]
    assert unexplained == []


def test_what_has_no_reason_is_found() -> None:
    assert _WITHOUT_REASON.search("x = 1  # noqa: E501\n")
    assert _WITHOUT_REASON.search("x = 1  # type: ignore[misc]")
    assert not _WITHOUT_REASON.search("x = 1  # noqa: E501  # a table\n")
