"""Where null is meant to be allowed, and is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gbnf.findings import Finding
from gbnf.schema.keywords import path_of, path_pointer, places


def without_null(tool: str, schema: Any) -> Iterator[Finding]:
    """Yield a finding for each part of a schema that means to allow null, and does not."""
    for place, here in places(schema):
        if not isinstance(here, Mapping):
            continue
        declared, listed = here.get("type", ()), here.get("enum")
        if listed is None and "nullable" not in here:  # as most
            continue
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
