"""The checks of string formats in validation: those of jsonschema, and of IRIs by their automaton.

For IRIs jsonschema needs `rfc3987_syntax`, which takes longer to import than all other modules together, and
refuses characters beyond U+FFFF, which RFC 3987 allows.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

from jsonschema import Draft202012Validator


def _conforms(name: str, text: Any) -> bool:
    from gbnf.regular.formats import format_language  # noqa: PLC0415  # IRIs are rare

    language = format_language(name)
    return not isinstance(text, str) or language is None or language.accepts(text)


#: Formats mean in every draft what they mean in 2020-12.
FORMAT_CHECKER = copy(Draft202012Validator.FORMAT_CHECKER)
FORMAT_CHECKER.checkers = {
    **FORMAT_CHECKER.checkers,
    **{name: (partial(_conforms, name), ()) for name in ("iri", "iri-reference")},
}
