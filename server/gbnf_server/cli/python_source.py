"""Python code that a command line names: `module:name`, `file.py:name`, or `file.py` for the whole module.

A module is searched in the current folder first, as uvicorn does. A file is imported as the module that it
is, from the folder above its outermost package, so that a process of its own can import it, too. What the
import prints goes to stderr, since stdout is the command's.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from gbnf.errors import suggestion
from gbnf.extras import missing_extra
from gbnf_server.system.errors import InputError


def python_target(text: str) -> tuple[str, str] | None:
    """Return the file or module that a text names, and the name in it ("": none); None if it names none."""
    place, _, name = text.partition(":")
    if place.endswith(".py"):
        return place, name
    is_target = name and all(part.isidentifier() for part in f"{place}.{name}".split("."))
    return (place, name) if is_target and not Path(text).exists() else None


def python_value(text: str) -> Any:
    """Return what `text` names; the module if it is only a file. Raises InputError."""
    target = python_target(text)
    assert target is not None
    place, name = target
    value: Any = _import_file(Path(place)) if place.endswith(".py") else _import(place, Path.cwd(), text)
    for part in name.split(".") if name else ():
        if not hasattr(value, part):
            public = [attribute for attribute in dir(value) if not attribute.startswith("_")]
            hint = suggestion(part, public) or f" It has {', '.join(public[:20]) or 'no public names'}."
            raise InputError(f"{text}: {place} has no {part!r}.{hint}")
        value = getattr(value, part)
    return value


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        hint = suggestion(file.name, [path.name for path in file.parent.glob("*.py")])
        raise InputError(f"{file} does not exist.{hint}")
    folder, module = file.resolve().parent, file.stem
    while (folder / "__init__.py").is_file() and folder.name:
        folder, module = folder.parent, f"{folder.name}.{module}"
    imported = None if module in sys.stdlib_module_names else _import(module, folder, str(file))
    if imported is None or Path(imported.__file__ or "").resolve() != file.resolve():
        raise InputError(f"{file}: another module is named {module!r}. Rename the file.")
    return imported


def _import(module: str, folder: Path, text: str) -> ModuleType:
    """Import a module, with a folder first on the import path."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        with redirect_stdout(sys.stderr):
            return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever its code raises
        missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
        if missing and f"{module}.".startswith(f"{missing}."):
            parent, dot, _ = missing.rpartition(".")
            places = getattr(sys.modules.get(parent), "__path__", [str(folder)])
            hint = suggestion(missing, [parent + dot + entry.name for entry in pkgutil.iter_modules(places)])
            raise InputError(
                f"{text}: the module {missing!r} is neither in {folder} nor installed.{hint}"
            ) from None
        if isinstance(error, ImportError) and (extra := missing_extra(error)):
            raise extra from None
        places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        own = [line for line in places if line[0].startswith(f"{folder}/") and "-packages/" not in line[0]]
        place = "" if isinstance(error, SyntaxError) else " ({}, line {})".format(*(own or places)[-1])
        problem = f"the import fails: {type(error).__name__}: {error}{place}."
        raise InputError(f"{text}: {problem}") from None
