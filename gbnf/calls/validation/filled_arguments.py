"""Validation of the value that a step reference inserts into an argument."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator

from gbnf.calls.validation.argument_schemas import property_schemas, validation_schema
from gbnf.calls.validation.messages import error_messages
from gbnf.schema.format_checks import FORMAT_CHECKER
from gbnf.schema.validators import extend_validator
from gbnf.tools import Tool
from gbnf.work_limits import MAX_VALIDATION_WORK, limit_work


def filled_argument_errors(tool: Tool, target: str, value: Any) -> tuple[str, ...]:
    """Return the errors of `value` as the argument `target`, which the runtime may fill in, one line each.

    Only schemas that apply whatever the other arguments are count. Never raises.
    """
    validator, schemas = _validators(tool, target)
    try:
        with limit_work(MAX_VALIDATION_WORK, may_backtrack=True):
            errors = [error for schema in schemas for error in validator.descend(value, schema, path=target)]
            return tuple(error_messages(errors, tool.name, validator.schema))
    except Exception as error:  # noqa: BLE001 - jsonschema on a tool's output: its errors must not end a run
        return (f"the entries can't be judged ({type(error).__name__})",)


@lru_cache(maxsize=1024)
def _validators(tool: Tool, target: str) -> tuple[Any, tuple[Any, ...]]:
    properties = {
        name: {key: member for key, member in schema.items() if key != "runtime_resolved"}
        if name == target and isinstance(schema, Mapping)
        else schema
        for name, schema in tool.args.get("properties", {}).items()
    }
    root = validation_schema({**tool.args, "properties": properties}, frozenset(), closed=True)
    validator_class = extend_validator(Draft202012Validator, every_draft=True)
    validator = validator_class(root, format_checker=FORMAT_CHECKER)
    return validator, tuple(property_schemas(root, target))
