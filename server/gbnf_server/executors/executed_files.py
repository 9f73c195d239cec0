"""Which files programs execute by themselves, so that a person must approve what a model writes there.

A program loads them because of their name or folder, not because a person names them: start-up files and
settings of programs, hooks, virtual environments, packages and build files. Programs that exist belong to
them, too. A new file of another name, such as a script, is executed only by who runs it.
"""

from __future__ import annotations

import re
import stat
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from gbnf_server.executors.workspace import STATE_FOLDER, plain_name

MARKERS = frozenset({"pyvenv.cfg", "manifest.toml", "HEAD"})
"""Files that make their folder a virtual environment, an executor's, or a bare Git repository."""

_FOLDERS = re.compile(
    r"\..+|git~\d+|site-packages|dist-packages|python\d+\.\d+t?|__pycache__|.*\.(?:dist|egg)-info|"
    r"node_modules|launch(?:agents|daemons)"
)
"""Folders that programs load code from, and hidden ones, with the settings of programs."""

_FILES = re.compile(
    # Python, its tests and packages
    r"(?:site|user)customize\..*|conftest\.py|test_.*\.py|.*_test\.py|.*\._?pth|pyvenv\.cfg|.*\.egg-link|"
    r"(?:setup|noxfile|tasks|fabfile|manage)\.py|(?:.*\.)?conf\.py|(?:setup|ansible)\.cfg|pyproject\.toml|tox\.ini|"
    r"pytest\.(?:ini|toml)|mkdocs\.ya?ml|requirements(?:[-_.][\w.-]*)?\.txt|.*\.py[cod]|.*\.so(?:\.\d+)*|.*\.dylib|"
    # this package
    r"gbnf\.toml|manifest\.toml|on_request\.toml|executor\.py|(?:.*[._-])?mcp(?:[._-].*)?\.json|claude_desktop_config\.json|"
    # build tools of other languages
    r"package\.json|.*\.config\.[cm]?[jt]s|(?:gulp|grunt)file\..*|deno\.jsonc?|.*\.gypi?|composer\.json|"
    r"build\.rs|cargo\.toml|.*\.gradle(?:\.kts)?|.*\.sbt|(?:pom|build)\.xml|.*\.(?:cs|fs|vb|vcx)proj|"
    r"directory\.build\.(?:props|targets)|mix\.exs|package\.swift|"
    # other build tools, hooks, containers, desktops, shells
    r"(?:gnu)?makefile|.*\.mk|justfile|taskfile\.ya?ml|cmakelists\.txt|.*\.cmake|sconstruct|wscript|meson\.build|"
    r".*\.(?:bazel|bzl)|lefthook(?:-local)?\.(?:ya?ml|toml|json)|(?:rake|gem|pod|vagrant|jenkins|proc|brew)file|"
    r"(?:docker|container)file(?:\.(?!(?:md|txt|rst)$).+)?|.*\.(?:docker|container)file|"
    r"(?:docker-)?compose(?:\.[\w-]+)?\.ya?ml|(?:flake|shell|default)\.nix|.*profile\.ps1|"
    r".*\.(?:desktop|service|command|lnk|bat|cmd)|autorun\.inf|crontab|"
    r"head"  # HEAD: of a bare Git repository, whose configuration names programs
)

_LOADED = frozenset({"bin", "lib", "lib64", "Scripts"})
"""Folders of a virtual environment."""

_BEGINNINGS = (b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""Of programs."""

_SOURCES = frozenset(
    ".py .sh .bash .zsh .fish .js .mjs .cjs .ts .rb .pl .lua .php .ps1 .r .jl .tcl .awk".split()  # noqa: SIM905  # shorter
)
"""Suffixes of programs: a new one is executed by who runs it, a changed one also by what already does."""


def is_executed_name(path: str) -> bool:
    """Return whether the names in a relative path say that a program executes the file."""
    *folders, name = map(plain_name, path.split("/"))
    packages = [folder for folder in folders[-1:] if name == "__init__.py"] + [name.removesuffix(".py")]
    packages = [package for package in packages if "." not in package]
    return (
        any(map(_FOLDERS.fullmatch, [*folders, name]))
        or _FILES.fullmatch(name) is not None
        or (name.endswith(".py") and any(map(_is_importable, packages)))
    )


def is_executed(root: Path, path: str) -> bool:
    """Return whether a program executes the file at this path without links in the workspace `root`."""
    file = root / path
    inside = [folder for folder in file.parents if folder.is_relative_to(root)]
    is_loaded = path.partition("/")[0] in _LOADED or file.suffix == ".py"  # of an environment or tool
    marked = inside if is_loaded else [folder for folder in inside if folder != root]
    imported = {Path(entry).resolve() for entry in sys.path} - {root}
    return (
        is_executed_name(path)
        or any(folder in imported for folder in inside)
        or any(map(_is_marked, marked))
        or _is_program(file, root / STATE_FOLDER / ".gitignore")
    )


def refusal(named: str) -> str:
    """Return the error for files that programs execute, without the person's approval."""
    why = "programs execute such files by themselves, so a person must approve it (--yes does not)"
    return f"{named} is refused: {why}"


def _is_marked(folder: Path) -> bool:
    with suppress(OSError):  # it cannot be read, so the file cannot be written
        return any((folder / marker).exists() for marker in MARKERS)
    return False


def _is_importable(module: str) -> bool:
    """Return whether Python has a module of this name, in whose place it would import the file."""
    if module in sys.stdlib_module_names:
        return True
    spec = PathFinder.find_spec(module)
    return spec is not None and spec.origin is not None


def _is_program(file: Path, other: Path) -> bool:
    """Return whether a file exists, and is a program. `other`: a file that is executable if all files are."""
    try:
        mode, usual = file.lstat().st_mode, other.lstat().st_mode if other.exists() else 0
    except OSError:
        return False
    if not stat.S_ISREG(mode) or plain_name(file.suffix) in _SOURCES:
        return stat.S_ISREG(mode)
    if not mode & ~usual & 0o111 or not file.suffix:
        return bool(mode & ~usual & 0o111)
    with suppress(OSError), file.open("rb") as content:  # a document of another file system has the bit, too
        return content.read(4).startswith(_BEGINNINGS)
    return True
