"""Read the JSON of a request into models, with errors that name the path in it.

A parameter without effect is a warning; one that would change the meaning of the answer is an error.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gbnf.prompts.messages import Image
from gbnf_server.errors import GatewayError

_Model = TypeVar("_Model", bound="Part")

_SHOWN = 80
"""Characters of a value in an error."""

IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""The media types of images that the APIs take."""


class Part(BaseModel):
    """A part of a request. Its unknown members are kept, so that they can be reported."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    def unknown(self) -> list[str]:
        """Return the names of the members that the model does not declare."""
        return list(self.model_extra or {})


def refused(problem: str, param: str | None = None, status: int = 400) -> GatewayError:
    """Return the error of a request that is invalid at `param`."""
    return GatewayError(status, problem, "not_found" if status == 404 else "invalid_request", param)


def read_part(model: type[_Model], value: Any, path: str = "") -> _Model:
    """Return the part of a request at `path`. Raises GatewayError with the path of the first fault."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
    param = join_path(path, fault["loc"])
    shown = "" if fault["type"] == "missing" else f": {repr(fault['input'])[:_SHOWN]}"
    raise refused(f"{param or 'the body'} is invalid{shown}. {fault['msg']}.", param or None)


def join_path(path: str, keys: Iterable[str | int]) -> str:
    """Return the path to a member, such as `input[2].content`."""
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            path += f".{key}" if path else key
    return path


def read_kind(models: Mapping[str, type[_Model]], value: Any, path: str, kind: str | None = None) -> _Model:
    """Return the part at `path` as the model of its `type`, or of `kind` without one. Raises GatewayError."""
    if not isinstance(value, Mapping):
        raise refused(f"{path} is no JSON object: {repr(value)[:_SHOWN]}.", path)
    kind = value.get("type", kind)
    model = models.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = ", ".join(models)
        raise refused(f"{path}.type {kind!r} is not supported. Known types: {known}.", f"{path}.type")
    return read_part(model, value, path)


def read_data_url(url: str, path: str) -> Image:
    """Return the image in a data URL. Raises GatewayError; other URLs are not fetched."""
    head, separator, data = url.partition(",")
    if not separator or not head.startswith("data:") or not head.endswith(";base64"):
        problem = f"{path} is no data URL: {url[:_SHOWN]!r}. Send the image as data:image/png;base64,…"
        raise refused(problem, path)
    return read_image(head.removeprefix("data:").removesuffix(";base64"), data, path)


def read_image(media_type: str, data: str, path: str) -> Image:
    """Return the image with these bytes in base64. Raises GatewayError."""
    if media_type not in IMAGE_TYPES:
        known = ", ".join(IMAGE_TYPES)
        raise refused(f"{path} has the media type {media_type!r}. Known types: {known}.", path)
    try:
        return Image(base64.b64decode(data, validate=True), media_type)
    except (binascii.Error, ValueError):
        raise refused(f"{path} is not base64.", path) from None
