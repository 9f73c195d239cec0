"""A form that the person fills in.

Choices come from the field's own `options`, else from the earlier step's entries. What is typed as a
credential stays out of the conversation: the runner puts a handle such as ``secret:1f0c…`` in its place, for
which an executor that takes credentials gets it by `Context.secret`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError, Field, Form

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    offered = arguments.get("entries", [])
    fields = tuple(_field(each, offered) for each in arguments["dialog"])
    names = [field.var for field in fields]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ExecutorError(f"each field needs a 'var' of its own; {', '.join(sorted(twice))} is there twice")
    values = context.ask(Form(arguments["title"], fields))
    return {"values": values, "entries": [entry for value in values.values() for entry in _entries(value)]}


def _field(field: dict[str, Any], offered: list[str]) -> Field:
    schema = field["schema"]
    return Field(field["var"], field["prompt"], schema["kind"], tuple(schema.get("options") or offered))


def _entries(value: Any) -> list[str]:
    match value:
        case list():
            return [str(each) for each in value]
        case bool():
            return ["yes" if value else "no"]
        case _:
            return [str(value)]
