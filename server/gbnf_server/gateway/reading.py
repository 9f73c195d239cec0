"""Read the JSON of a request into models, with errors that name the path in it.

A parameter without effect is a warning; one that would change the meaning of the answer is an error.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gbnf.prompts.messages import Image
from gbnf.strict_json import InvalidJsonError, json_type, parse_json
from gbnf_server.web.errors import HttpError

_Model = TypeVar("_Model", bound="Part")

NO_REASONING = frozenset({"none", "minimal"})
"""The efforts at which a model does not reason."""

_SHOWN = 120  # characters of a value in an error

_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,", re.IGNORECASE)


class Part(BaseModel):
    """A part of a request. Its unknown members are kept, so that they can be reported."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    def unknown(self) -> list[str]:
        """Return the names of the members that the model does not declare."""
        return list(self.model_extra or {})


def refused(problem: str, param: str | None = None, status: int = 400) -> HttpError:
    """Return the error of a request that is invalid at `param`."""
    return HttpError(status, problem, "not_found" if status == 404 else "invalid_request", param)


def read_part(model: type[_Model], value: Any, path: str = "") -> _Model:
    """Return the part of a request at `path`. Raises HttpError with the path of a fault."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise validation_error(error, value, path) from None


def validation_error(error: ValidationError, value: Any, path: str = "") -> HttpError:
    """Return the error of a part at `path`: of its first problem; of a union's members, the deepest one."""
    problems = [(_path(problem["loc"], value), problem) for problem in error.errors(include_url=False)]
    below, problem = max(problems, key=lambda each: each[0].count(".") + each[0].count("["))
    at = f"{path}{below}".removeprefix(".")
    shown = "" if problem["type"] == "missing" else f" (got {_shown(problem['input'])})"
    return refused(f"{at}: {problem['msg']}{shown}.", at)


def _path(steps: Sequence[str | int], value: Any) -> str:
    """Return where a problem is: the steps that the value has, since pydantic adds names of types."""
    path = ""
    for index, step in enumerate(steps):
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, Mapping) and (step in value or index == len(steps) - 1):
            path, value = f"{path}.{step}", value.get(step)
    return path


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def read_kind(models: Mapping[str, type[_Model]], value: Any, path: str, kind: str | None = None) -> _Model:
    """Return the part at `path` as the model of its `type`, or of `kind` without one. Raises HttpError."""
    if not isinstance(value, Mapping):
        raise refused(f"{path}: a JSON object is expected (got {_shown(value)}).", path)
    kind = value.get("type", kind)
    model = models.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = ", ".join(models)
        raise refused(f"{path}.type: {_shown(kind)} is not supported. Known types: {known}.", f"{path}.type")
    return read_part(model, value, path)


def read_arguments(text: str, path: str) -> dict[str, Any]:
    """Return the arguments of a call, whose JSON text is at `path`. Raises HttpError."""
    try:
        value = parse_json(text) if text.strip() else {}
    except InvalidJsonError as error:
        raise refused(f"{path}: invalid JSON: {error}.", path) from None
    if not isinstance(value, dict):
        raise refused(f"{path}: the arguments must be a JSON object, got {json_type(value)}.", path)
    return value


def read_data_url(url: str, path: str) -> Image:
    """Return the image in a data URL. Raises HttpError; other URLs are not fetched."""
    found = _DATA_URL.match(url)
    if found is None:
        example = "such as data:image/png;base64,…"
        problem = f"{path}: only data URLs of images are supported, {example}; nothing is fetched."
        raise refused(problem, path)
    return read_image(found[1].lower(), url[found.end() :], path)


def read_image(media_type: str, data: str, path: str) -> Image:
    """Return the image with these bytes in base64. Raises HttpError."""
    if not media_type.startswith("image/"):
        raise refused(f"{path}: {media_type!r} is no media type of an image, such as image/png.", path)
    try:
        return Image(base64.b64decode(data, validate=True), media_type)
    except (binascii.Error, ValueError) as error:
        raise refused(f"{path}: invalid base64: {error}.", path) from None
