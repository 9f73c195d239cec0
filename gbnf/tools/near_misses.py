"""Keys that are not known, but similar to one that is: probably misspelt.

Unknown keys are kept, and most are another program's. So only those that a typo explains are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from gbnf.findings import Finding
from gbnf.schema.keywords import APPLICATORS, KEYWORDS, path_pointer, walk

_ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$vocabulary", "id",
        "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
        "contentEncoding", "contentMediaType", "contentSchema", "nullable", "discriminator", "xml",
        "externalDocs", "markdownDescription", "enumNames", "enumDescriptions", "enumTitles",
        "markdownEnumDescriptions", "deprecationMessage", "errorMessage", "propertyOrder",
    }
)  # fmt: skip
"""Annotations of JSON Schema, OpenAPI and editors."""

OWN_KEYWORDS = frozenset({"requires_one_of", "fills", "runtime_resolved"})
"""This project's keywords, in the schemas of manifests."""
_MEANT = KEYWORDS | APPLICATORS.keys() | OWN_KEYWORDS | {"description", "default"}
"""What a misspelt keyword may be meant to be: to misspell other annotations has no effect here."""

_KNOWN = _MEANT | _ANNOTATIONS
_OTHERS = ("x-", "X-", "_", "@")
"""Beginnings of keys that others define, or that are commented out."""

_SIMILARITY = 0.82


def similar_key(key: str, names: Iterable[str]) -> str | None:
    """Return the known key that `key` is probably meant to be; None if there is none, or `key` is known."""
    by_fold = {_folded(name): name for name in sorted(names)}  # the first of equally similar ones
    close = get_close_matches(_folded(key), by_fold, n=1, cutoff=_SIMILARITY)
    return by_fold[close[0]] if close and by_fold[close[0]] != key else None


def _folded(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def misspelt_keywords(tool: str, schema: Any) -> Iterator[Finding]:
    """Yield a finding for each keyword of the schema, and of those below it, that is probably misspelt."""
    for path, here in walk(schema):
        for keyword in here if isinstance(here, Mapping) else ():
            if keyword in _KNOWN or keyword.startswith(_OTHERS):
                continue
            if (meant := similar_key(keyword, _MEANT)) is not None:
                yield misspelt(tool, path_pointer(path), keyword, meant)


def misspelt(tool: str, pointer: str, key: str, meant: str) -> Finding:
    """Return the finding for a key that is not known."""
    return Finding(tool, pointer, key, "unknown_key", f"unknown key, did you mean `{meant}`?")
