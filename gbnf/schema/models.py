"""JSON Schemas of Python types, by pydantic, which is imported on first use."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gbnf.errors import InvalidArgumentError


def is_model(value: object) -> bool:
    """Return whether `value` is a pydantic model class. Does not import pydantic."""
    return isinstance(value, type) and hasattr(value, "__pydantic_core_schema__")


def json_schema_of(type_: Any) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a type that pydantic validates: a model, a dataclass, `list[int]`.

    Raises InvalidArgumentError if the type has none.
    """
    from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 - `import gbnf` does not import pydantic

    try:
        return TypeAdapter(type_).json_schema(schema_generator=_schema_generator())
    except (PydanticUserError, NameError, TypeError) as error:
        raise InvalidArgumentError(f"{type_!r} has no JSON Schema: {_first_line(error)}") from None


@cache
def _schema_generator() -> Any:
    """Return pydantic's generator without titles made of the names of fields."""
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - as above

    class Untitled(GenerateJsonSchema):
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in pydantic

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
            return False

    return Untitled


@dataclass(frozen=True)
class ArgumentsModel:
    """The arguments of a function as a pydantic model.

    `names`: field -> parameter. Fields have aliases, since pydantic does not allow every name of a parameter.
    """

    name: str
    model: Any
    names: Mapping[str, str]

    def json_schema(self) -> dict[str, Any]:
        """Return the schema of the arguments. Raises InvalidArgumentError."""
        schema = json_schema_of(self.model)
        return {key: value for key, value in schema.items() if key != "title"}

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given arguments, converted. Raises InvalidArgumentError."""
        from pydantic import ValidationError  # noqa: PLC0415 - as above

        try:
            read = self.model.model_validate_json(json.dumps(arguments))
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
                for fault in error.errors(include_url=False, include_input=False, include_context=False)
            )
            raise InvalidArgumentError(f"the arguments of {self.name!r} do not fit: {faults}") from None
        return {self.names[field]: getattr(read, field) for field in read.model_fields_set}


def arguments_model(
    name: str, parameters: Mapping[str, tuple[Any, Any]], descriptions: Mapping[str, str]
) -> ArgumentsModel:
    """Return the model of parameters: name -> annotation and default (`inspect.Parameter.empty`: required).

    `descriptions` are those of parameters whose annotation has none. Raises InvalidArgumentError.
    """
    from pydantic import ConfigDict, Field, PydanticUserError, create_model  # noqa: PLC0415 - as above

    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for index, (parameter, (annotation, default)) in enumerate(parameters.items()):
        names[f"argument_{index}"] = parameter
        given: dict[str, Any] = {"alias": parameter}
        if type(default).__name__ == "FieldInfo":
            raise InvalidArgumentError(
                f"the parameter {parameter!r} of the tool {name!r} has a Field as its default. "
                "Write it in the annotation: Annotated[int, Field(ge=1)] = 3."
            )
        if default is not inspect.Parameter.empty:
            given["default"] = default
        if parameter in descriptions and not _has_description(annotation):
            given["description"] = descriptions[parameter]
        fields[f"argument_{index}"] = (annotation, Field(**given))
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticUserError, NameError, TypeError) as error:
        raise InvalidArgumentError(
            f"the tool {name!r} has a parameter that no JSON Schema describes: {_first_line(error)}"
        ) from None
    return ArgumentsModel(name, model, names)


def _has_description(annotation: Any) -> bool:
    metadata = getattr(annotation, "__metadata__", ())
    return any(getattr(each, "description", None) for each in metadata)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
