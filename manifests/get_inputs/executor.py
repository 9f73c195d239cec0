"""A form that the user fills in.

The choices of a field are its `options`, otherwise the earlier step's entries. Credentials stay out of the
conversation: the runner replaces each by a handle such as ``secret:1f0c…``, and an executor that needs the
credential gets it by `Context.secret`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError, Field, Form

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Ask the user to fill in a form."""
    offered = arguments.get("entries", [])
    fields = tuple(_field(each, offered) for each in arguments["dialog"])
    names = [field.var for field in fields]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ExecutorError(f"each field needs a 'var' of its own; {', '.join(sorted(twice))} is there twice")
    values = context.ask(Form(arguments["title"], fields))
    return {"values": values, "entries": [entry for value in values.values() for entry in _entries(value)]}


def _field(field: dict[str, Any], offered: list[str]) -> Field:
    """Return a field; what there is nothing to choose from is asked as a text."""
    kind, options = field["schema"]["kind"], tuple(field["schema"].get("options") or offered)
    return Field(field["var"], field["prompt"], kind if options or "choice" not in kind else "text", options)


def _entries(value: Any) -> list[str]:
    match value:
        case list():
            return [str(each) for each in value]
        case bool():
            return ["yes" if value else "no"]
        case _:
            return [str(value)]
