"""Read the JSON of a request into models, with errors that name the path in it.

A parameter without effect is a warning; one that would change the meaning of the answer is an error.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gbnf.errors import clip
from gbnf.prompts.messages import Image
from gbnf.strict_json import InvalidJsonError, nests_deeper, parse_json
from gbnf_server.gateway.chat import INVALID_ARGUMENTS, FunctionTool
from gbnf_server.web.errors import invalid_request
from gbnf_server.web.limits import Limits

_Model = TypeVar("_Model", bound="RequestPart")

_MAX_DEPTH = Limits().json_depth  # of arguments, which are a text in the body
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,", re.IGNORECASE)


class RequestPart(BaseModel):
    """A part of a request. Its unknown members are kept, so that they can be reported."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    def unknown(self, path: str = "") -> Iterator[str]:
        """Yield the paths of the members that no model declares, in the parts of parts, too."""
        if self.model_extra:
            yield from (f"{path}{name}" for name, value in self.model_extra.items() if value is not None)
        for name, value in self.__dict__.items():  # much quicker than by `model_fields`
            for member in value if isinstance(value, list) else (value,):
                if isinstance(member, RequestPart):
                    yield from member.unknown(f"{path}{name.rstrip('_')}.")


class ContentPart(RequestPart):
    """A part of a content that is a text or an image."""

    def read(self, path: str) -> str | Image:
        """Return the text or the image of the part, which is at `path`. Raises HttpError."""
        raise NotImplementedError


class TextPart(ContentPart):
    """A text."""

    text: str

    def read(self, path: str) -> str:
        """Return the text."""
        return self.text


class RefusalPart(TextPart):
    """A refusal of the model."""

    text: str = Field(alias="refusal")


ToolName = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,128}$")]
MaxCalls = Annotated[int, Field(ge=1)]


class Function(RequestPart):
    """A function of the client, as the APIs of OpenAI declare it."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self, path: str, name: str | None = None) -> FunctionTool:
        """Return the tool, which is at `path`. `name`: under which the model knows it, if another."""
        schema = {"type": "object", "properties": {}} if self.parameters is None else self.parameters
        described, strict = self.description or "", self.strict is True
        return FunctionTool(name or self.name, described, schema, strict, f"{path}.parameters")


def read_part(model: type[_Model], value: Any, path: str = "") -> _Model:
    """Return the part of a request at `path`.

    Raises HttpError for its first problem; of a union's members, for the deepest one.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = [(_path(problem["loc"], value), problem) for problem in error.errors(include_url=False)]
    below, problem = max(problems, key=lambda candidate: candidate[0].count(".") + candidate[0].count("["))
    full_path = f"{path}{below}".removeprefix(".")
    shown = "" if problem["type"] == "missing" else f" (got {clip(repr(problem['input']))})"
    raise invalid_request(f"{full_path}: {problem['msg']}{shown}.", full_path)


def _path(steps: Sequence[str | int], value: Any) -> str:
    """Return where a problem is: the steps that the value has, since pydantic adds names of types."""
    path = ""
    for index, step in enumerate(steps):
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, Mapping) and (step in value or index == len(steps) - 1):
            path, value = f"{path}.{step}", value.get(step)
    return path


def read_kind(models: Mapping[str, type[_Model]], value: Any, path: str, kind: str | None = None) -> _Model:
    """Return the part at `path` as the model of its `type`, or of `kind` without one. Raises HttpError."""
    if not isinstance(value, Mapping):
        raise invalid_request(f"{path}: a JSON object is expected (got {clip(repr(value))}).", path)
    kind = value.get("type", kind)
    model = models.get(kind) if isinstance(kind, str) else None
    if model is None:
        types = ", ".join(models)
        raise invalid_request(
            f"{path}.type: {clip(repr(kind))} is not supported. Known types: {types}.", f"{path}.type"
        )
    return read_part(model, value, path)


def read_content(
    kinds: Mapping[str, type[ContentPart]], content: str | Sequence[Any], path: str
) -> tuple[str, list[Image]]:
    """Return the text and the images of a content that is not read yet. Raises HttpError."""
    if isinstance(content, str):
        return content, []
    parts = [read_kind(kinds, value, f"{path}[{index}]") for index, value in enumerate(content)]
    return join_content(parts, path)


def join_content(content: str | Sequence[ContentPart], path: str) -> tuple[str, list[Image]]:
    """Return the text of a content, a line break between its parts, and its images. Raises HttpError."""
    if isinstance(content, str):
        return content, []
    contents = [part.read(f"{path}[{index}]") for index, part in enumerate(content)]
    texts = [text for text in contents if isinstance(text, str)]
    return "\n".join(texts), [image for image in contents if isinstance(image, Image)]


def check_supported(body: Mapping[str, Any], hints: Mapping[str, str]) -> None:
    """Raise HttpError for a parameter that would change the meaning of the answer. `hints`: by parameter."""
    for name, hint in hints.items():
        if body.get(name):
            raise invalid_request(f"{name} is not supported. {hint}", name)


def read_effort(effort: str | None) -> bool | None:
    """Return whether a model reasons at an effort, None if it may decide."""
    return None if effort is None else effort not in {"none", "minimal"}


def read_arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call in the history, of their JSON text or value.

    Arguments that are not a JSON object, such as those of a truncated call, become the text of one member, so
    that the conversation can go on. Anthropic's documentation recommends the name of the member.
    """
    text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
    with suppress(InvalidJsonError):
        value = parse_json(text) if text.strip() else {}
        if isinstance(value, dict) and not nests_deeper(value, _MAX_DEPTH):
            return value
    return {INVALID_ARGUMENTS: text}


def read_data_url(url: str, path: str) -> Image:
    """Return the image in a data URL. Raises HttpError; other URLs are not fetched."""
    match = _DATA_URL.match(url)
    if match is None:
        example = "such as data:image/png;base64,…"
        problem = f"{path}: only data URLs of images are supported, {example}; nothing is fetched."
        raise invalid_request(problem, path)
    return read_image(match[1].lower(), url[match.end() :], path)


def read_image(media_type: str, data: str, path: str) -> Image:
    """Return the image with these bytes in base64. Raises HttpError."""
    if not media_type.startswith("image/"):
        raise invalid_request(
            f"{path}: {media_type!r} is no media type of an image, such as image/png.", path
        )
    try:
        return Image(base64.b64decode(data, validate=True), media_type)
    except (binascii.Error, ValueError) as error:
        raise invalid_request(f"{path}: invalid base64: {error}.", path) from None
