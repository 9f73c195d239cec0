"""What one client may send: the laws of the counts, and bodies beyond each limit."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import Limits, MemoryBudget, MemoryShare, check_sizes, count_values, read_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def values(value: Any) -> int:
    match value:
        case list():
            return 1 + sum(map(values, value))
        case dict():
            return 1 + sum(map(values, value.values()))
        case _:
            return 1


def depth(value: Any) -> int:
    match value:
        case list():
            return 1 + max(map(depth, value), default=0)
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case _:
            return 0


@given(JSON, st.booleans())
def test_the_count_is_never_below_the_number_of_values_and_the_depth_is_exact(
    value: Any, ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    limit = depth(value)
    assert values(value) <= count_values(text, Limits(json_depth=limit)) <= 3 * values(value)
    if limit:
        with pytest.raises(HttpError, match="nested"):
            count_values(text, Limits(json_depth=limit - 1))


@given(st.binary(max_size=60))
def test_no_bytes_make_the_count_fail_in_another_way(body: bytes) -> None:
    with suppress(HttpError):
        assert count_values(body, Limits(json_values=10, json_depth=3)) <= 10
        assert isinstance(read_object(body), dict)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object, got array"),
        (b"null", "must be a JSON object, got null"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1, "a": 2}', "occurs twice"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": "\xff"}', "not UTF-8: byte 7 is 0xff"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too many digits"),
    ],
)
def test_a_body_that_is_no_object_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(HttpError, match=message):
        read_object(body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{}] * 4}, "messages"),
        ({"input": [{}] * 4}, "input"),
        ({"tools": [{}] * 3}, "tools"),
        ({"tools": [{}, {"a": "x" * 100}]}, r"tools[1]"),
        ({"tools": [{}], "input": [{"tools": [{}]}, {"tools": [{}]}]}, "tools"),
        ({"input": [3, {"tools": [{"a": "x" * 100}]}]}, "input[1].tools[0]"),
        ({"response_format": {"a": "x" * 100}}, "response_format"),
        ({"grammar": "x" * 101}, "grammar"),
    ],
)
def test_more_than_allowed_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    limits = Limits(messages=3, tools=2, schema_bytes=100)
    with pytest.raises(HttpError) as refused:
        check_sizes(body, limits)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_sizes_at_the_limit_are_accepted() -> None:
    check_sizes(
        {"messages": [{}] * 3, "input": "x" * 500, "tools": [{}] * 2, "grammar": "x" * 100},
        Limits(messages=3, tools=2, schema_bytes=100),
    )


@given(st.lists(st.lists(st.integers(0, 60), max_size=5), max_size=5))
def test_the_budget_is_kept_and_given_back(requests: list[list[int]]) -> None:
    budget = MemoryBudget(100)
    for sizes in requests:
        with budget.share() as share:
            expected = 0
            for size in sizes:
                if expected + size <= 100:
                    share.add(size)
                    expected += size
                else:
                    with pytest.raises(HttpError, match="too many large requests"):
                        share.add(size)
                assert budget.reserved == expected <= 100
        assert budget.reserved == 0


def test_a_thread_that_goes_on_after_its_request_reserves_nothing() -> None:
    budget = MemoryBudget(10**9)
    shares = []

    def reserve(share: MemoryShare) -> None:
        for _ in range(1000):
            share.add(3)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            with budget.share() as share:
                pool.submit(reserve, share)
                shares.append(share)
    assert budget.reserved == 0
    with budget.share() as share, ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(reserve, share)
        pool.shutdown()
        assert budget.reserved == share.size == 12_000
    shares[0].add(5)
    assert budget.reserved == 0
