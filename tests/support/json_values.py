"""Any JSON value, small, and values nested of others."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def nested(
    leaves: Any, keys: Any, *, items: int = 3, most: int = 3, size: int = 10
) -> st.SearchStrategy[Any]:
    """Return values of about `size` leaves, in lists of `items` and objects of `most` members at most."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=items) | st.dictionaries(keys, inner, max_size=most),
        max_leaves=size,
    )


json_values = nested(SIMPLE | st.text(), st.text(), size=8)
"""Any JSON value, small."""
