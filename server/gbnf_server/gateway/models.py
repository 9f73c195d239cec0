"""The list of models, as OpenAI and Anthropic return it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_CREATED = "1970-01-01T00:00:00Z"  # the APIs require a time, and files of models tell none


def list_models(
    names: Sequence[str], headers: Mapping[str, str], context_length: int | None
) -> dict[str, Any]:
    """Return the models: in Anthropic's shape for its clients, which send `anthropic-version`."""
    models = [model_card(name, headers, context_length) for name in names]
    if "anthropic-version" in headers:
        return {"data": models, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    return {"object": "list", "data": models}


def model_card(name: str, headers: Mapping[str, str], context_length: int | None) -> dict[str, Any]:
    """Return one model. `context_length` in tokens, None if it is not known; the key is vLLM's."""
    if "anthropic-version" in headers:
        about = {"display_name": name, "created_at": _CREATED, "lifecycle": "active"}
        return {"type": "model", "id": name, **about, "max_input_tokens": context_length}
    longest = {} if context_length is None else {"max_model_len": context_length}
    return {"id": name, "object": "model", "created": 0, "owned_by": "gbnf", **longest}
