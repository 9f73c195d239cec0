"""Which MCP servers to use: command lines, URLs, and the `mcp.json` of Claude Desktop and VS Code.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "…"], "env": {"KEY": "${env:KEY}"}}}}
    {"servers": {"docs": {"type": "http", "url": "https://…/mcp", "headers": {"Authorization": "…"}}}}

Unknown keys are ignored, as other clients have keys of their own.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf_server.system.errors import InputError

McpSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A command line, a URL, the path of an `mcp.json`, or its parsed content."""

_HTTP_TYPES: Mapping[str, Literal["http", "sse"]] = {
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}
_STRINGS_AND_COMMENTS = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRINGS_AND_LAST_COMMAS = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")


class McpConfigError(InputError):
    """A source of MCP servers that cannot be used. Fields: `location`, `problem`, `hint`."""

    def __init__(self, location: str, problem: str, hint: str) -> None:
        self.location, self.problem, self.hint = location, problem, hint
        super().__init__(f"{location}: {problem}. {hint}")


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is started as a process. `env` is added to the default environment of the MCP SDK."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None

    def __str__(self) -> str:
        return shlex.join([self.command, *self.args])


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server at a URL. `transport` is None if unknown: streamable HTTP is tried first, then SSE."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["http", "sse"] | None = None

    def __str__(self) -> str:
        return re.sub("//[^/@]*@", "//", self.url)


McpServerConfig: TypeAlias = StdioServer | HttpServer
"""Where an MCP server is. `name` is "" if the source names none."""


def read_source(source: McpSource) -> tuple[McpServerConfig, ...]:
    """Return the servers that a source names. Raises McpConfigError."""
    if isinstance(source, Mapping):
        return _read_mapping("<mapping>", source, Path.cwd())
    if isinstance(source, str):
        text = source.strip()
        if re.match(r"(?i)https?://", text):
            return (HttpServer("", text),)
        if not text.lower().endswith((".json", ".jsonc")) or (" " in text and not Path(text).exists()):
            return (_command_line(text),)
    return _read_file(Path(source).expanduser())


def _command_line(text: str) -> StdioServer:
    try:
        words = shlex.split(text)
    except ValueError as error:
        hint = "Close every quote, as in a shell."
        raise McpConfigError(repr(text), f"the command line cannot be split: {error}", hint) from None
    if not words:
        raise McpConfigError(repr(text), "the command line is empty", "Give a command, a URL or an mcp.json.")
    return StdioServer("", words[0], tuple(words[1:]))


def _read_file(path: Path) -> tuple[McpServerConfig, ...]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problem = f"the file cannot be read: {error.strerror or error}"
        raise McpConfigError(str(path), problem, "Give an mcp.json, a command or a URL.") from None
    except UnicodeDecodeError:
        raise McpConfigError(str(path), "the file is not UTF-8", "Save it as UTF-8.") from None
    try:
        for pattern in (_STRINGS_AND_COMMENTS, _STRINGS_AND_LAST_COMMAS):  # which VS Code allows
            text = pattern.sub(lambda match: match[1] or "", text)
        content = parse_json(text)
    except InvalidJsonError as error:
        raise McpConfigError(str(path), f"invalid JSON: {error}", "Correct the file.") from None
    return _read_mapping(str(path), content, path.absolute().parent)


def _read_mapping(location: str, content: Any, folder: Path) -> tuple[McpServerConfig, ...]:
    inputs = content.get("inputs", []) if isinstance(content, Mapping) else []
    for key in ("mcp", "mcpServers", "servers"):
        if isinstance(content, Mapping) and key in content:
            content, location = content[key], f"{location}: {key}"
            if key != "mcp":
                break
    else:
        hint = 'Write {"mcpServers": {"name": {"command": "…", "args": ["…"]}}}.'
        raise McpConfigError(location, "neither mcpServers nor servers is given", hint)
    if not isinstance(content, Mapping):
        raise McpConfigError(location, "it must be an object", "Give a server for each name.")
    return tuple(
        _EntryReader(f"{location}.{name}", folder, inputs).server(name, entry)
        for name, entry in content.items()
        if not (isinstance(entry, Mapping) and entry.get("disabled") is True)
    )


class _EntryReader:
    """Reads one server of an `mcp.json`. Each method raises McpConfigError."""

    def __init__(self, location: str, folder: Path, inputs: Any) -> None:
        self._location, self._folder = location, folder
        self._inputs = inputs if isinstance(inputs, list) else []

    def server(self, name: str, entry: Any) -> McpServerConfig:
        if not isinstance(entry, Mapping):
            raise self._fault("", entry, "a server must be an object", "Give a command or a url.")
        kind = entry.get("type", "stdio" if "command" in entry else None)
        if "envFile" in entry:
            hint = "Write its variables below env, for example as ${env:NAME}."
            raise self._fault("envFile", entry["envFile"], "files of variables are not read", hint)
        if kind == "stdio":
            cwd = self._text(entry, "cwd") if "cwd" in entry else None
            return StdioServer(
                name,
                self._text(entry, "command"),
                tuple(self._texts(entry)),
                self._table(entry, "env"),
                None if cwd is None else self._folder / Path(cwd).expanduser(),
            )
        if kind is not None and (not isinstance(kind, str) or kind not in _HTTP_TYPES):
            raise self._fault("type", kind, "unknown type", "Use stdio, http or sse.")
        if "url" not in entry:
            raise self._fault("", None, "neither command nor url is given", "Give one of them.")
        url = self._text(entry, "url")
        if not re.match(r"(?i)https?://", url):
            raise self._fault("url", url, "it is not an HTTP address", "Begin it with https:// or http://.")
        return HttpServer(name, url, self._table(entry, "headers"), _HTTP_TYPES[kind] if kind else None)

    def _text(self, entry: Mapping[str, Any], key: str) -> str:
        value = entry.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self._fault(key, value, "it must be a text", f'Write "{key}": "…".')
        return self._expanded(key, value)

    def _texts(self, entry: Mapping[str, Any]) -> Iterator[str]:
        values = entry.get("args", [])
        if not isinstance(values, list):
            raise self._fault("args", values, "it must be a list of texts", 'Write "args": ["…"].')
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self._fault(f"args[{index}]", value, "it must be a text", "Put it in quotes.")
            yield self._expanded(f"args[{index}]", value)

    def _table(self, entry: Mapping[str, Any], key: str) -> dict[str, str]:
        values = entry.get(key) or {}
        if not isinstance(values, Mapping):
            raise self._fault(key, values, "it must be an object of texts", f'Write "{key}": {{"…": "…"}}.')
        for name, value in values.items():
            if not isinstance(value, str):
                raise self._fault(f"{key}.{name}", None, "it must be a text", "Put it in quotes.")
        return {name: self._expanded(f"{key}.{name}", value) for name, value in values.items()}

    def _expanded(self, key: str, text: str) -> str:
        """Return `text` with `${NAME}`, `${env:NAME}` and `${NAME:-default}` replaced."""
        return _VARIABLE.sub(partial(self._variable, key), text)

    def _variable(self, key: str, match: re.Match[str]) -> str:
        kind, colon, name = match[1].partition(":")
        if kind == "input" and colon:
            described = next(
                (item for item in self._inputs if isinstance(item, Mapping) and item.get("id") == name), {}
            )
            about = f" ({described['description']})" if isinstance(described.get("description"), str) else ""
            hint = f"Set an environment variable, and write ${{env:NAME}} instead of {match[0]}."
            raise self._fault(key, match[0], f"the input {name!r}{about} is not asked for", hint)
        if kind == "workspaceFolder" and not colon:
            return str(self._folder.parent if self._folder.name == ".vscode" else self._folder)
        if kind == "userHome" and not colon:
            return str(Path.home())
        default: str | None = None
        if kind != "env" or not colon:
            name, separator, default = match[1].partition(":-")
            default = default if separator else None
        value = os.environ.get(name, default)
        if value is None:
            raise self._fault(key, match[0], f"the environment variable {name!r} is not set", "Set it.")
        return value

    def _fault(self, key: str, value: Any, problem: str, hint: str) -> McpConfigError:
        shown = "" if value is None else f" (got {str(value)[:80]!r})"
        return McpConfigError(f"{self._location}.{key}" if key else self._location, problem + shown, hint)
