"""Where null is meant to be allowed, and is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gbnf.findings import Finding
from gbnf.schema.keywords import path_of, path_pointer, places
from gbnf.schema.names import objects


def without_null(tool: str, schema: Any) -> Iterator[Finding]:
    """Yield a finding for each part of a schema that means to allow null, and does not."""
    if not any(map(_is_suspicious, objects(schema))):  # as in most schemas, and much faster
        return
    for place, here in places(schema):
        if not isinstance(here, Mapping):
            continue
        declared, listed = here.get("type", ()), here.get("enum")
        types = [declared] if isinstance(declared, str) else [*declared] if isinstance(declared, list) else []
        is_nullable = "null" in types
        if here.get("nullable") is True and declared and not is_nullable:
            reason = (
                f"a keyword of OpenAPI without effect here. To allow null, write type = {[*types, 'null']}."
            )
            yield Finding(tool, path_pointer(path_of(place)), "nullable", "unknown_key", reason)
        elif isinstance(listed, list) and is_nullable and declared != "null" and None not in listed:
            reason = "the type allows null, but the listed values do not. To allow null, list it."
            yield Finding(tool, path_pointer(path_of(place)), "enum", "unknown_key", reason)


def _is_suspicious(here: Mapping[str, Any]) -> bool:
    return "nullable" in here or ("enum" in here and isinstance(here.get("type"), list))
