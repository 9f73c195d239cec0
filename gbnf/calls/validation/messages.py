"""Error messages for small models: which argument, what it must be, what it is.

One line for each error of jsonschema, values as Python shows them (`'3'` is a string, `3` a number), nested
locations as `dialog[0].schema.kind`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gbnf.calls.validation.argument_schemas import declared_names
from gbnf.errors import clip, suggestion
from gbnf.schema.pattern_matching import pattern_sample
from gbnf.strict_json import json_type
from gbnf.tools.tool import localized

if TYPE_CHECKING:
    from jsonschema import ValidationError

VALUE_LIMIT, ENUM_LIMIT, MESSAGE_LIMIT = 80, 50, 12
"""Characters of a value that are shown, values of an enumeration, errors of one call."""

_REQUIREMENTS: Mapping[str, Callable[[Any], str]] = {
    "const": lambda value: f"must be {short_repr(value)}",
    "minimum": lambda value: f"must be at least {value}",
    "maximum": lambda value: f"must be at most {value}",
    "exclusiveMinimum": lambda value: f"must be more than {value}",
    "exclusiveMaximum": lambda value: f"must be less than {value}",
    "multipleOf": lambda value: f"must be a multiple of {value}",
    "minLength": lambda value: f"must have at least {_counted(value, 'character')}",
    "maxLength": lambda value: f"must have at most {_counted(value, 'character')}",
    "minItems": lambda value: f"must have at least {_counted(value, 'item')}",
    "maxItems": lambda value: f"must have at most {_counted(value, 'item')}",
    "uniqueItems": lambda _: "must not hold an item twice",
    "minProperties": lambda value: f"must have at least {_counted(value, 'key')}",
    "maxProperties": lambda value: f"must have at most {_counted(value, 'key')}",
    "type": lambda value: f"must be {value if isinstance(value, str) else ' or '.join(value)}",
}

_REQUIRING = frozenset({"required", "type", "title", "description"})
"""Keywords of a schema that only requires properties."""

_OF_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT1H30M",
}


def error_messages(errors: Iterable[ValidationError], tool: str, root: Mapping[str, Any]) -> list[str]:
    """Return one line per error, missing arguments first; those of one object share a line."""
    errors = sorted(errors, key=lambda error: [str(step) for step in error.absolute_path])
    faulty = {tuple(error.absolute_path) for error in errors if error.validator != "unevaluatedProperties"}
    missing: dict[tuple[Any, ...], list[str]] = {}
    others: list[str] = []
    for error in errors:
        path = tuple(error.absolute_path)
        match error.validator:
            case "required":
                names = missing.setdefault(path, [])
                wanted: Any = error.validator_value
                instance: Any = error.instance
                names += [name for name in wanted if name not in instance and name not in names]
            case "unevaluatedProperties" if path in faulty:
                pass  # a consequence of the other error: a branch that fails declares nothing
            case "additionalProperties" | "unevaluatedProperties" if error.validator_value is False:
                others += _unknown(error, tool, root)
            case _ if exclusive := _exclusive(error):
                others.append(f"tool '{tool}'{f', in {path_text(path)!r}' if path else ''}: {exclusive}")
            case _:
                others.append(f"{_subject(path, tool)} {_requirement(error, root)}")
    firsts = [
        f"missing required args {names}{f' in {path_text(path)!r}' if path else ''} for tool '{tool}'"
        for path, names in missing.items()
    ]
    lines = list(dict.fromkeys([*firsts, *others]))
    if len(lines) > MESSAGE_LIMIT:
        lines[MESSAGE_LIMIT:] = [f"and {len(lines) - MESSAGE_LIMIT} more faults"]
    return lines


def path_text(path: Sequence[str | int]) -> str:
    """Return a path as text: `dialog[0].schema.kind`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, shortened."""
    match value:
        case dict() | list() if len(value) > VALUE_LIMIT:
            return f"{json_type(value)} of {len(value)}"
        case str():
            return repr(clip(value, VALUE_LIMIT))
        case _:
            return clip(repr(value), VALUE_LIMIT)


def typed_value(value: Any) -> str:
    """Return a value with its JSON type: `string '3'`."""
    return "null" if value is None else f"{json_type(value)} {short_repr(value)}"


def _unknown(error: ValidationError, tool: str, root: Mapping[str, Any]) -> Iterator[str]:
    path = tuple(error.absolute_path)
    names = declared_names(error.schema, root)
    instance: Any = error.instance
    unknown = [name for name in instance if name not in names]
    if not unknown:
        yield f"{_subject(path, tool)} combines arguments that don't go together: {list(instance)}"
    where = f" in {path_text(path)!r}" if path else ""
    rest = f"It takes {', '.join(names)}." if names else "It takes none."
    for name in unknown:
        yield f"unknown argument {short_repr(name)}{where} for tool '{tool}'.{suggestion(name, names)} {rest}"


def _exclusive(error: ValidationError) -> str:
    """Return which properties exclude each other, or that one is missing: "give 'a' or 'b', not both"; or "".

    That is the error of `not` with `required`, of `anyOf` with such branches, and of `oneOf` if each branch
    requires one property that the others do not.
    """
    value: Any = error.validator_value
    instance: Any = error.instance
    branches = [value] if error.validator == "not" else value if error.validator in ("oneOf", "anyOf") else ()
    if error.validator == "anyOf":  # at least one is not there
        branches = [part["not"] for part in branches if isinstance(part, dict) and part.keys() == {"not"}]
        branches = branches if len(branches) == len(value) else []
    elif error.validator == "not" and isinstance(value, dict) and value.keys() == {"allOf"}:
        branches = value["allOf"]
    if error.validator == "oneOf":  # what else a valid branch says of its properties is not told
        branches = [_without_other(part, is_valid=not error.context) for part in branches]
    only = [part for part in branches if _only_requires(part)]
    counts = Counter(name for branch in only for name in branch["required"])
    names = [name for name in counts if counts[name] == 1]
    shared = [name for name in counts if counts[name] > 1]
    is_clear = len(only) == len(branches) and (error.validator == "not" or len(branches) == len(names))
    is_clear = is_clear and isinstance(instance, dict) and all(name in instance for name in shared)
    present = sum(name in instance for name in names) if isinstance(instance, dict) else 1
    if error.validator == "not" and is_clear and len(names) == present == 1:
        return f"leave out {names[0]!r}"
    if len(names) < 2 or present == 1 or not is_clear:
        return ""
    rest = "both" if len(names) == 2 else "all of them" if error.validator == "not" else "several of them"
    return f"give {', '.join(map(repr, names[:-1]))} or {names[-1]!r}{f', not {rest}' if present else ''}"


def _only_requires(schema: Any) -> bool:
    return isinstance(schema, dict) and {"required"} <= schema.keys() <= _REQUIRING


def _without_other(branch: Any, *, is_valid: bool) -> Any:
    if not isinstance(branch, dict) or not _only_requires(branch.get("not", {"required": ()})):
        return branch
    left_out = {"not", "properties"} if is_valid else {"not"}
    return {keyword: branch[keyword] for keyword in branch if keyword not in left_out}


def _requirement(error: ValidationError, root: Mapping[str, Any]) -> str:
    """Return what the failed keyword requires, as the predicate of a sentence about the value."""
    value: Any = error.validator_value
    keyword = str(error.validator)
    schema: Any = error.schema
    if keyword == "not" and schema.get("runtime_resolved") is True:
        return "is filled in by the runtime; leave it out"
    if keyword == "None":  # the schema `false`
        return f"must not contain {short_repr(error.instance)}"
    if keyword == "enum":
        allowed = ", ".join(short_repr(member) for member in value[:ENUM_LIMIT])
        omitted = f" … ({len(value) - ENUM_LIMIT} more)" if len(value) > ENUM_LIMIT else ""
        return f"must be one of [{allowed}{omitted}], got {typed_value(error.instance)}"
    if keyword in ("anyOf", "oneOf") and error.context:
        return f"fits none of its forms: {'; or '.join(_forms(error, root))}"
    if keyword == "oneOf":
        return f"fits more than one of its forms, got {typed_value(error.instance)}"
    if keyword == "format":
        return f"must be a valid {value}{_example(error)}, got {typed_value(error.instance)}"
    if keyword == "pattern":
        return f"{_form(value, error, root)}, got {typed_value(error.instance)}"
    if keyword in _REQUIREMENTS:
        return f"{_REQUIREMENTS[keyword](value)}, got {typed_value(error.instance)}"
    message = error.message
    return f"is not valid: {message if len(message) <= 2 * VALUE_LIMIT else message[: 2 * VALUE_LIMIT] + '…'}"


def _form(pattern: str, error: ValidationError, root: Mapping[str, Any]) -> str:
    """Return what a pattern requires, in the words of the nearest description, or by an example."""
    schema: Any = root
    described = schema.get("description")
    for step in error.absolute_path:
        if not isinstance(schema, Mapping):
            break
        schema = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
        described = schema.get("description", described) if isinstance(schema, Mapping) else described
    if text := localized(described):
        return f"has another form than described: {clip(text, 2 * VALUE_LIMIT)}{_example(error)}"
    sample = pattern_sample(pattern) if len(pattern) <= VALUE_LIMIT else ""
    if example := _example(error) or (sample and f", for example {short_repr(sample)}"):
        return f"must have another form{example}"
    return f"must match the pattern {clip(pattern, 2 * VALUE_LIMIT)}"


def _example(error: ValidationError) -> str:
    """Return an example of a valid text, from the schema or of its format, as a phrase; "" without one."""
    from gbnf.schema.validators import violation  # noqa: PLC0415  # needed once there is an error

    schema: Any = error.schema
    examples = schema.get("examples", ())
    candidates = [*examples] if isinstance(examples, list) else []
    candidates += [schema.get("default"), _OF_FORMAT.get(str(schema.get("format")))]
    form = {keyword: schema[keyword] for keyword in ("pattern", "format") if keyword in schema}
    texts = (text for text in candidates if isinstance(text, str) and not violation(form, text))
    return next((f", for example {short_repr(text)}" for text in texts), "")


def _forms(error: ValidationError, root: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first error of each branch, the deepest errors first: the model most likely meant these."""
    branches: dict[Any, ValidationError] = {}
    for fault in error.context or ():
        branches.setdefault(fault.relative_schema_path[0], fault)
    deepest = sorted(branches.values(), key=lambda fault: -len(fault.relative_path))
    for fault in deepest[:4]:
        where = f"{path_text(tuple(fault.relative_path))} " if fault.relative_path else ""
        if fault.validator == "required":
            wanted: Any = fault.validator_value
            instance: Any = fault.instance
            yield f"{where}needs {[name for name in wanted if name not in instance]}"
        elif names := _exclusive(fault):
            yield f"{where}{names}"
        else:
            yield f"{where}{_requirement(fault, root)}"


def _subject(path: Sequence[str | int], tool: str) -> str:
    return f"argument {path_text(path)!r} of tool '{tool}'" if path else f"the arguments of tool '{tool}'"


def _counted(number: Any, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
