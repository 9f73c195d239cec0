"""Tools from wherever they are described: manifests, APIs, MCP servers, JSON Schemas, functions and models.

    load_manifests(paths)  ->  tuple[Tool, ...], each name once, in the order of names
    load_tools(source)     ->  tuple[Tool, ...], in the order of the source

Both raise BrokenManifestsError with all problems.
"""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from gbnf.errors import BrokenManifestsError, GbnfError, ManifestError
from gbnf.extras import MissingExtraError
from gbnf.findings import Finding
from gbnf.schema.keywords import TYPES
from gbnf.schema.models import is_model, json_schema_of
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools.loosening import build_tool
from gbnf.tools.manifest_checks import RESERVED_NAMES, valid_name
from gbnf.tools.tool import Tool

_NO_FILE = Path("<source>")
_LISTS = ("tools", "functions")
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")
_PORTABLE = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
"""The names of tools that the APIs of OpenAI and Anthropic accept."""

MCP_TIMEOUT_S = 60.0
"""Time limit of a call of an MCP server, that of the SDKs of MCP."""

_FORMS = (
    "Give a tools list of OpenAI, Anthropic or an MCP server, a function, a JSON Schema with a title, "
    "a manifest, or a typed Python function."
)


def load_tools(source: Any, *, prefix: str | None = None, strict: bool = False) -> tuple[Tool, ...]:
    """Return the tools of a source, in its order.

    `source` is a path (a folder of manifests, or a file in TOML or JSON), or a value:

    - a tools list of OpenAI (Chat Completions or Responses) or Anthropic, or one of its members;
    - the result of an MCP server's `tools/list`, whose annotations become `effect` and `confirm`: a call that
      may destroy something, or about which nothing is said, needs approval;
    - a function: name, description and parameters; or a JSON Schema whose title is the name;
    - a mapping with the content of a manifest;
    - a typed Python function, or one marked by `tool`, or a pydantic model;
    - a module: its functions marked by `tool`, or if there are none, those that are public and typed;
    - a `Tool`;
    - a sequence of these, and of paths (but a file names no other files).

    `prefix` is put before each name, and characters that APIs do not accept in names become "_". Without it,
    those that names cannot have do, except in manifests, and `tool_` is put before a digit and before the
    name of a built-in tool. Of a schema, what is malformed is removed, and is among the tool's findings; if
    `strict`, mistakes are errors.

    Raises BrokenManifestsError with every tool that cannot be loaded, every invalid name and every name that
    two different tools have.
    """
    reader = _SourceReader(prefix)
    reader.read(source, _NO_FILE, "")
    if strict:
        hint = "Correct it, or load the tools without strict."
        reader.errors += [
            ManifestError(origin.path, origin.key, None, str(finding), hint)
            for tool, origin in reader.tools.values()
            for finding in tool.findings
            if finding.is_mistake
        ]
    if reader.errors:
        raise BrokenManifestsError(tuple(reader.errors))
    return tuple(tool for tool, _ in reader.tools.values())


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a tool is described: a file, the path inside it, and the tool's name there."""

    path: Path
    key: str
    name: str

    def __str__(self) -> str:
        return f"{self.path}: {self.key}" if self.key else str(self.path)


@dataclass
class _SourceReader:
    """Reads sources, and collects tools by name, and errors."""

    prefix: str | None
    tools: dict[str, tuple[Tool, _Origin]] = field(default_factory=dict)
    errors: list[ManifestError] = field(default_factory=list)

    def read(self, source: Any, path: Path, key: str) -> None:
        """Read a source that is at `key` of the file `path`."""
        try:
            self._read(source, path, key)
        except BrokenManifestsError as errors:
            self.errors += errors.errors
        except ManifestError as error:
            where = f"{key}.{error.key}" if key and error.key else key or error.key
            hint = error.hint
            if error.key == "name" and self.prefix is None and "prefix" not in hint:
                hint += " A prefix of load_tools does so."
            self.errors.append(ManifestError(path, where, error.value, error.problem, hint))
        except MissingExtraError:
            raise
        except GbnfError as error:
            with suppress(TypeError, OSError):  # not defined in a file
                path, key = Path(inspect.getsourcefile(source) or path), getattr(source, "__qualname__", "")
            self.errors.append(ManifestError(path, key, None, str(error).rstrip("."), "Correct the code."))

    def _read(self, source: Any, path: Path, key: str) -> None:
        match source:
            case Tool():
                self._add(source, path, key)
            case str() | os.PathLike() if path == _NO_FILE:  # a file names no other files
                self._read_path(Path(source))
            case Mapping():
                self._read_mapping(source, path, key)
            case _ if is_model(source):
                schema = json_schema_of(source)
                schema.pop("description", None)
                text = inspect.cleandoc(source.__dict__.get("__doc__") or "")
                self._add(build_tool(source.__name__, text, schema, run={}, extra={}), path, key)
            case _ if is_model(type(source)):  # an object of a client library
                self._read(source.model_dump(mode="json", by_alias=True, exclude_none=True), path, key)
            case ModuleType():
                from gbnf.tools.functions import functions_of  # noqa: PLC0415  # most tools are no code

                self._read(functions_of(source), path, key)
            case Callable():
                from gbnf.tools.functions import function_tool  # noqa: PLC0415  # as above

                self._add(function_tool(source), path, key)
            case Iterable() if not isinstance(source, str):
                for index, member in enumerate(source):
                    self.read(member, path, f"{key}[{index}]")
            case _:
                raise ManifestError(path, "", source, "no description of a tool", _FORMS)

    def _read_path(self, path: Path) -> None:
        if path.suffix != ".json":
            for tool in load_manifests(path):
                self._add(tool, path if tool.path is None else tool.path, "")
            return
        try:
            content = parse_json(path.read_bytes().decode("utf-8-sig"))
        except OSError as error:
            problem, hint = f"cannot be read: {error.strerror or error}", "Correct the path."
        except (InvalidJsonError, UnicodeDecodeError) as error:
            problem, hint = f"invalid JSON: {error}", "Correct the file."
        else:
            if isinstance(content, dict | list):
                self.read(content, path, "")
                return
            problem, hint = "no description of a tool", _FORMS
        self.errors.append(ManifestError(path, "", None, problem, hint))

    def _read_mapping(self, source: Mapping[Any, Any], path: Path, key: str) -> None:
        for name in _LISTS:
            if isinstance(source.get(name), list | tuple):
                for index, member in enumerate(source[name]):
                    self.read(member, path, f"{key}.{name}[{index}]".removeprefix("."))
                return
        if isinstance(source.get("result"), Mapping):  # the response of JSON-RPC
            self._read_mapping(source["result"], path, f"{key}.result".removeprefix("."))
        elif source.get("type") == "function" and isinstance(source.get("function"), Mapping):
            self._add(
                described_tool(source["function"], self._named),
                path,
                f"{key}.function".removeprefix("."),
                source_name=source["function"].get("name"),
            )
        elif "args" in source:
            self._add(Tool.from_mapping(source), path, key)
        elif any(name in source for name in _SCHEMA_KEYS) or (
            isinstance(source.get("name"), str)
            and source.get("type", "function") == "function"  # without parameters
        ):
            self._add(described_tool(source, self._named), path, key, source_name=source.get("name"))
        elif isinstance(source.get("title"), str) and not isinstance(source.get("name"), str):
            schema = {name: value for name, value in source.items() if name != "description"}
            text = source.get("description", "")
            title = re.sub(r"\W+", "_", source["title"].strip(), flags=re.ASCII)
            tool = build_tool(self._named(title), _text(text), schema, run={}, extra={})
            self._add(tool, path, key, source_name=source["title"])
        elif (
            isinstance(kind := source.get("type"), str)
            and kind not in {"function", *TYPES}
            and isinstance(source.get("name"), str | None)
        ):  # such as {"type": "web_search"}
            problem = "a tool that the API itself executes, which has no schema"
            raise ManifestError(path, "", kind, problem, "Leave it out.")
        else:
            raise ManifestError(path, "", dict(source), "no description of a tool", _FORMS)

    def _named(self, name: Any) -> Any:
        """Return the name with the prefix, and in it only what APIs accept; without one, a valid name."""
        if not isinstance(name, str):
            return name
        if self.prefix is None:
            return valid_name(name) if name.strip() else name
        return self.prefix + re.sub(r"[^a-zA-Z0-9_-]", "_", name)

    def _add(self, tool: Tool, path: Path, key: str, *, source_name: str | None = None) -> None:
        """Add a tool, which is renamed already if `source_name` is its name in the source."""
        origin = _Origin(path, key, source_name or tool.name)
        if source_name in RESERVED_NAMES and self.prefix is None:
            reason = f"{source_name!r} is the name of a built-in tool, so {tool.name} is used"
            tool = replace(
                tool, findings=(Finding(tool.name, "", "name", "loosened", reason), *tool.findings)
            )
        if self.prefix is not None:
            if source_name is None:
                name = self._named(tool.name)
                findings = tuple(replace(finding, tool=name) for finding in tool.findings)
                tool = replace(tool, name=name, findings=findings)
            if not _PORTABLE.fullmatch(tool.name):
                hint = "Give a prefix of letters, digits, '_' and '-': 64 characters in all."
                raise ManifestError(path, "name", tool.name, "APIs do not accept the name", hint)
        other, first = self.tools.setdefault(tool.name, (tool, origin))
        if other is not tool and (other != tool or first.name != origin.name):
            problem = f"another tool has the same name: {first}"
            hint = "Rename one of the two, or load one of the sources with a prefix."
            self.errors.append(ManifestError(path, f"{key}.name".removeprefix("."), tool.name, problem, hint))


def described_tool(source: Mapping[Any, Any], rename: Callable[[Any], Any] = lambda name: name) -> Tool:
    """Return the tool of a function of OpenAI, or of a tool of Anthropic or of an MCP server.

    `rename` returns its name here. Raises ManifestError, for the name only: a malformed schema is loosened.
    """
    schema: Any = next((source[key] for key in _SCHEMA_KEYS if source.get(key) is not None), {})
    read_keys = {"type", "name", "description", "strict", "annotations", *_SCHEMA_KEYS}
    extra = {str(key): value for key, value in source.items() if key not in read_keys}
    description = _text(source.get("description")) or _text(source.get("title"))
    return build_tool(rename(source.get("name")), description, schema, run=_policy(source), extra=extra)


def _policy(source: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the policy that the annotations of an MCP tool describe; {} for the tools of an API.

    A tool destroys something unless they say that it does not, or that it only reads.
    Source: https://modelcontextprotocol.io/specification, ToolAnnotations.
    """
    if "inputSchema" not in source:
        return {}
    annotations = source.get("annotations")
    hints = annotations if isinstance(annotations, Mapping) else {}
    reads = hints.get("readOnlyHint") is True
    return {
        "effect": "read" if reads else "write",
        "confirm": not reads and hints.get("destructiveHint") is not False,
        "timeout_s": MCP_TIMEOUT_S,
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


FILE_NAME = "manifest.toml"
Source: TypeAlias = str | os.PathLike[str]


def load_manifests(paths: Source | Iterable[Source]) -> tuple[Tool, ...]:
    """Return the tools of manifest files, and of each `manifest.toml` below a folder, in the order of names.

    A file that several paths lead to is loaded once. Raises BrokenManifestsError with every broken file.
    """
    sources = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    errors: list[ManifestError] = []
    tools: dict[str, Tool] = {}
    seen: set[str] = set()
    for file in _files(sources, errors):
        real = os.path.realpath(file)
        if real in seen:
            continue
        seen.add(real)
        try:
            tool = _load(file)
        except ManifestError as error:
            errors.append(error)
            continue
        first = tools.setdefault(tool.name, tool)
        if first is not tool:
            problem = f"another manifest has the same name: {first.path}"
            errors.append(ManifestError(file, "name", tool.name, problem, "Rename one of the two."))
    if errors:
        raise BrokenManifestsError(tuple(errors))
    return tuple(tools[name] for name in sorted(tools))


def _files(sources: list[Source], errors: list[ManifestError]) -> Iterator[Path]:
    for source in sources:
        path = Path(source)
        if path.is_dir():
            manifests = list(_below(path, errors))
            if not manifests:
                hint = f"Give a folder that contains <name>/{FILE_NAME}, or a manifest file."
                errors.append(ManifestError(path, "", None, f"the folder contains no {FILE_NAME}", hint))
            yield from manifests
        else:
            yield path


def _below(folder: Path, errors: list[ManifestError]) -> Iterator[Path]:
    """Yield every manifest below `folder`, in a fixed order. Links to folders are followed, each folder once.

    `os.walk` is recursive in Python 3.11, and fails in deep folders.
    """
    visited: set[tuple[int, int]] = set()
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            info = here.stat()
            entries = sorted(here.iterdir(), reverse=True)
        except OSError as error:
            errors.append(_unreadable(here, error))
            continue
        identity = info.st_dev, info.st_ino
        if identity in visited:
            continue
        visited.add(identity)
        folders = [entry for entry in entries if os.path.isdir(entry)]  # noqa: PTH112  # it never raises
        manifest = here / FILE_NAME
        if manifest in entries and manifest not in folders:
            yield manifest
        pending += folders


def _load(file: Path) -> Tool:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "Save the file as UTF-8."
        raise ManifestError(file, "", error.object[error.start : error.end], "invalid UTF-8", hint) from None
    except FileNotFoundError:
        raise ManifestError(file, "", None, "no such file or folder", "Correct the path.") from None
    except OSError as error:
        raise _unreadable(file, error) from error
    return parse_manifest(text, file)


def parse_manifest(text: str, file: Path) -> Tool:
    """Return the tool of a manifest with this text. Raises ManifestError."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "Correct the line. See https://toml.io."
        raise ManifestError(file, "", None, f"invalid TOML: {error}", hint) from None
    except RecursionError:
        hint = "Move the inner schemas to args.$defs, and refer to them."
        raise ManifestError(file, "", None, "tables and arrays are nested too deeply", hint) from None
    return Tool.from_mapping(content, file.absolute())


def _unreadable(path: Path, error: OSError) -> ManifestError:
    problem = f"cannot be read: {error.strerror or error}"
    return ManifestError(path, "", None, problem, "Make it readable, or give another path.")
