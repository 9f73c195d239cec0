"""The conversation as the model reads it: marks, roles and the chat template that puts them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

END, PAD = "<|end|>", "<|pad|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (END, PAD, *(f"<|{role}|>" for role in ROLES))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def conversation(turns: Iterable[tuple[str, str]]) -> str:
    """(role, content) turns as the chat template writes them."""
    return "".join(f"<|{role}|>{content}{END}" for role, content in turns)
