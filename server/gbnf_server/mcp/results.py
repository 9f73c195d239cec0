"""The result of an MCP tool as the JSON object that a model reads.

    structured content          its members, or "result" if it is not an object
    text                        "text", unless it is only the structured content as JSON
    images, audio, binary data  saved in the workspace, and named in "files"
    resources and links         "resources"

The names of saved files are also the result's `entries`, which later steps may refer to.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, assert_never
from urllib.parse import urlsplit

import mcp_types
from jsonschema import SchemaError, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from referencing import Registry

from gbnf.errors import clip
from gbnf.schema.validators import extend_validator
from gbnf.work_limits import MAX_VALIDATION_WORK, limit_work
from gbnf_server.executors import Context, Write, is_executed_name
from gbnf_server.system.errors import ExecutorError

FILES_FOLDER = "mcp-files"
"""Where in the workspace a tool's images and other binary data are saved."""

_MOST_FILES = 20
_SHOWN = 300
_UNNAMED_ERROR = "it reported an error without a message"


def result_object(
    name: str, result: mcp_types.CallToolResult, output_schema: Mapping[str, Any] | None, context: Context
) -> dict[str, Any]:
    """Return the result as a JSON object. Raises ExecutorError if the tool failed, or breaks its schema."""
    if result.is_error:
        raise ExecutorError(_texts(result.content) or f"'{name}' failed: {_UNNAMED_ERROR}")
    structured = result.structured_content
    if output_schema is not None:
        missing = "there is no structured content" if structured is None else None
        if fault := missing or output_fault(structured, output_schema):
            raise ExecutorError(
                f"'{name}' was executed, but its result violates the output schema of its server: {fault}"
            )
    value: dict[str, Any] = {}
    if structured is not None:
        value = dict(structured) if isinstance(structured, dict) else {"result": structured}
    if (text := _texts(result.content)) and not _repeats(text, structured):
        value.setdefault("text", text)
    saved = _Files(context)
    resources = [resource for block in result.content if (resource := _resource(block, saved))]
    if saved.files:
        value.setdefault("files", saved.files)
        value.setdefault("entries", saved.save())
    if resources:
        value.setdefault("resources", resources)
    return value


def output_fault(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return why a value violates a schema of a server, None if it does not. The work is limited."""
    validator_class = validator_for(schema)
    try:
        validator_class.check_schema(dict(schema))
        validator = extend_validator(validator_class)(schema, registry=Registry())
        with limit_work(MAX_VALIDATION_WORK, may_backtrack=True):
            error: ValidationError | None = best_match(validator.iter_errors(value))
    except SchemaError as fault:
        return f"the schema itself is invalid at {fault.json_path}: {_clip(fault.message)}"
    except Exception as fault:  # noqa: BLE001  # a server's schema: its references and depth are not checked
        return f"the schema cannot be applied ({type(fault).__name__})"
    return None if error is None else f"{error.json_path}: {_clip(error.message)}"


def _texts(content: list[mcp_types.ContentBlock]) -> str:
    return "\n".join(block.text for block in content if isinstance(block, mcp_types.TextContent))


def _repeats(text: str, structured: Any) -> bool:
    """Return whether a text is the structured content again, as JSON or as the value of its only member."""
    if structured is None:
        return False
    forms = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        forms += structured.values()
    if text in forms:
        return True
    try:
        return json.loads(text) in forms
    except (ValueError, RecursionError):
        return False


def _resource(block: mcp_types.ContentBlock, files: _Files) -> dict[str, Any] | None:
    """Return what a block says of a resource; add binary data to the files."""
    match block:
        case mcp_types.TextContent():
            return None
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            files.add(block.data, block.mime_type, "")
            return None
        case mcp_types.ResourceLink():
            about = {"uri": str(block.uri), "name": block.name, "type": block.mime_type}
            return {key: text for key, text in {**about, "description": block.description}.items() if text}
        case mcp_types.EmbeddedResource():
            resource = block.resource
            if isinstance(resource, mcp_types.TextResourceContents):
                return {"uri": str(resource.uri), "text": resource.text}
            files.add(resource.blob, resource.mime_type or "", str(resource.uri))
            return None
        case _:
            assert_never(block)


class _Files:
    """Binary data to save. `files` describes each."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._data: dict[str, bytes] = {}
        self.files: list[dict[str, Any]] = []

    def add(self, encoded: str, media_type: str, uri: str) -> None:
        """Add a file in base64. One that is invalid, or one too many, is described but not saved."""
        about: dict[str, Any] = {"type": media_type} if media_type else {}
        if uri:
            about["uri"] = uri
        try:
            data = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            self.files.append({**about, "error": "the data is not base64"})
            return
        about["bytes"] = len(data)
        if len(self._data) == _MOST_FILES:
            self.files.append({**about, "error": f"only {_MOST_FILES} files of a result are saved"})
            return
        path = f"{FILES_FOLDER}/{hashlib.sha256(data).hexdigest()[:12]}{_suffix(media_type, uri)}"
        self._data[path] = data
        self.files.append({"path": path, **about})

    def save(self) -> list[str]:
        """Save the files, so that undo removes them, and return their paths."""
        workspace = self._context.workspace
        new = {path: data for path, data in self._data.items() if not workspace.resolve(path).exists()}
        if new:
            self._context.change(*(Write(path, data) for path, data in new.items()))
        return list(self._data)


def _suffix(media_type: str, uri: str) -> str:
    named = PurePosixPath(urlsplit(uri).path).suffix if uri else ""
    suffix = named or mimetypes.guess_extension(media_type.partition(";")[0].strip()) or ".bin"
    is_usable = re.fullmatch(r"\.[A-Za-z0-9]{1,8}", suffix) and not is_executed_name(f"x{suffix}")
    return suffix if is_usable else ".bin"


def _clip(text: str) -> str:
    return clip(" ".join(text.split()), _SHOWN)
