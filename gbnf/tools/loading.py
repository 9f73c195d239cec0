"""Loading of manifests from folders and files.

Invariants: all broken files are reported at once; the result has each name once, in the order of names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from gbnf.errors import BrokenManifestsError, ManifestError
from gbnf.tools.tool import Tool

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
            found = list(_below(path, errors))
            if not found:
                hint = f"Give a folder that contains <name>/{FILE_NAME}, or a manifest file."
                errors.append(ManifestError(path, "", None, f"the folder contains no {FILE_NAME}", hint))
            yield from found
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
        folders = [entry for entry in entries if os.path.isdir(entry)]  # noqa: PTH112 - it never raises
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
