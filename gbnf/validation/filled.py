"""What a step reference puts into an argument, judged as if the model had written it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator

from gbnf.effort import MAX_JUDGEMENT, bounded
from gbnf.manifests import Executor
from gbnf.schema.validators import taught
from gbnf.validation.closing import judged_schema, property_schemas
from gbnf.validation.complaints import complaints


def filled_errors(executor: Executor, target: str, value: Any) -> tuple[str, ...]:
    """What the schemas of the argument `target` say against `value`, a line each; it may be the runtime's.

    Judged are those that the arguments hold for it whatever else is given. It never raises.
    """
    validator, schemas = _judges(executor, target)
    try:
        with bounded(MAX_JUDGEMENT, may_backtrack=True):
            errors = [error for schema in schemas for error in validator.descend(value, schema, path=target)]
            return tuple(complaints(errors, executor.name, validator.schema))
    except Exception as error:  # noqa: BLE001 - jsonschema on a tool's output: its faults must not end a run
        return (f"the entries can't be judged ({type(error).__name__})",)


@lru_cache(maxsize=1024)
def _judges(executor: Executor, target: str) -> tuple[Any, tuple[Any, ...]]:
    properties = {
        name: {key: held for key, held in schema.items() if key != "runtime_resolved"}
        if name == target and isinstance(schema, Mapping)
        else schema
        for name, schema in executor.args.get("properties", {}).items()
    }
    root = judged_schema({**executor.args, "properties": properties}, frozenset(), closed=True)
    judge = taught(Draft202012Validator, every_draft=True)
    validator = judge(root, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return validator, tuple(property_schemas(root, target))
