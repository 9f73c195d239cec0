"""A question for the user's location, answered in their own words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import Field, Form

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Ask the user for their location."""
    title = arguments.get("reason") or "Your location is needed"
    answers = context.ask(Form(title, (Field("location", "Where are you?", "location"),)))
    return {"location": answers["location"], "entries": [answers["location"]]}
