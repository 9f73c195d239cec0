"""The folder that executors are confined to.

Invariants:

- A path from a model is relative, has no ``..``, and neither it nor a folder above it is a symbolic link
  that leads out. Links that stay inside are followed.
- Executors have no access to the runtime's own folder ``.gbnf`` (journal, trash, staging), nor to that of a
  workspace inside this one: paths into it are refused, searches skip it.
- Every change goes through file descriptors opened one component at a time without following links, from
  the root down. So the kernel refuses a link that appears after the check (``O_NOFOLLOW``, open(2)).

Hard links and bind mounts are not detected: inside a folder they look like its own files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from gbnf.surrogates import has_surrogate
from gbnf_server.system.append_log import append_whole
from gbnf_server.system.errors import ExecutorError, SetupError

STATE_FOLDER = ".gbnf"
"""Name of the runtime's own folder inside a workspace."""

MAX_PATH_BYTES = 4096
"""Maximum bytes of a path from a model: PATH_MAX of Linux, the limit of every system call."""

_SIMILAR_AMONG = 2000
"""Maximum names that are compared with a misspelt one."""

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags of os.open for a folder, but not for a link to one."""

_PROBLEMS = {
    errno.ENOTDIR: ": a part of the path is a file or a link, not a folder",
    errno.EISDIR: " is a folder",
    errno.EEXIST: " already exists",
    errno.ELOOP: " contains a symbolic link that may not be followed",
    errno.EACCES: ": permission denied",
    errno.EPERM: ": permission denied",
    errno.ENAMETOOLONG: ": the name is too long",
    errno.EXDEV: " is on another file system than the workspace",
}
"""What messages say of a path, after its name."""


_PATTERN_SIGNS = frozenset("*?")


class Workspace:
    """A folder, created if it is missing. Raises `SetupError` if it cannot be used.

    `root` is absolute and free of links. Paths given and returned are relative to it, with ``/``; the
    workspace itself is ``"."``.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
            self.root = Path(root).resolve(strict=True)
            if not (self.root / STATE_FOLDER).exists():
                (self.root / STATE_FOLDER).mkdir(exist_ok=True)
                (self.root / STATE_FOLDER / ".gitignore").write_text("*\n")
            with self.open_folder(STATE_FOLDER):
                pass
        except OSError as error:
            raise SetupError(
                f"'{root}' cannot be used as the workspace: {error.strerror or error}. "
                f"Use a writable folder in which '{STATE_FOLDER}' is not a link or a file."
            ) from None

    def __repr__(self) -> str:
        return f"Workspace({str(self.root)!r})"

    @property
    def state(self) -> Path:
        """The runtime's own folder."""
        return self.root / STATE_FOLDER

    @property
    def trash(self) -> Path:
        """The folder of deleted and replaced files, for undo."""
        return self.state / "trash"

    def resolve(self, relative: str) -> Path:
        """Return the absolute path without links; it need not exist. Raises `ExecutorError` outside."""
        return self._inside(relative, Path(os.path.realpath(self.root.joinpath(*self._parts(relative)))))

    def locate(self, relative: str) -> Path:
        """As `resolve`, but a link at the end stays a link: to delete it, not its target."""
        self.resolve(relative)
        parts = self._parts(relative)
        if not parts:
            return self.root
        parent = Path(os.path.realpath(self.root.joinpath(*parts[:-1])))
        return self._inside(relative, parent / parts[-1])

    def check(self, relative: str) -> None:
        """Raise `ExecutorError` if a link-free path leads out, or into the runtime's own folder.

        The file system is not accessed: `open_parent` ensures that no component is a link.
        """
        self._inside(relative, self.root.joinpath(*self._parts(relative)))

    def relative(self, path: str | os.PathLike[str]) -> str:
        """Return the path relative to the workspace. Raises `ExecutorError` if `path` is outside."""
        try:
            shown = Path(path).relative_to(self.root).as_posix()
        except ValueError:
            raise ExecutorError(f"'{path}' is outside the workspace") from None
        # names that would be refused as the beginning of a path
        return f"./{shown}" if shown.partition("/")[0] == "~" or not shown.strip() else shown

    def read(self, relative: str, *, limit: int) -> bytes:
        """Return the bytes of a regular file of at most `limit` bytes. Raises `ExecutorError`."""
        path = self.relative(self.resolve(relative))
        if path == ".":
            raise ExecutorError(f"'{relative}' is a folder; find_files lists the files in it")
        try:
            with self.open_parent(path) as (parent, name):
                # O_NONBLOCK: opening a named pipe must not wait for a writer
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                # not os.fdopen, which leaves the descriptor of a folder open
                with open(name, "rb", opener=lambda file, _: os.open(file, flags, dir_fd=parent)) as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        raise ExecutorError(f"'{relative}' is not a regular file")
                    data = file.read(limit + 1)
        except OSError as error:
            raise self.explain(error, relative) from None
        if len(data) > limit:
            raise ExecutorError(f"'{relative}' is larger than {limit} bytes")
        return data

    @contextmanager
    def open_folder(self, relative: str) -> Iterator[int]:
        """Open the folder at a link-free path, for use as `dir_fd`. Raises OSError."""
        descriptor = os.open(self.root, DIRECTORY)
        try:
            for part in relative.split("/"):
                if part == ".":
                    continue
                inner = os.open(part, DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def open_parent(self, relative: str) -> Iterator[tuple[int, str]]:
        """Open the parent folder of a link-free path; yield it, and the name. Raises OSError."""
        parent, _, name = relative.rpartition("/")
        with self.open_folder(parent or ".") as descriptor:
            yield descriptor, name

    def append_to_state(self, name: str, line: bytes) -> None:
        """Add a line to a file of the runtime's own folder, in one piece."""
        with self.open_folder(STATE_FOLDER) as state:
            # O_NONBLOCK: a named pipe is an error, instead of a wait for its reader
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o666, dir_fd=state), "wb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                append_whole(file.fileno(), line)

    def explain(self, error: OSError, relative: str, *, suggests: bool = True) -> ExecutorError:
        """Return the error for `relative`, with a message for the model; `suggests`: and a similar name."""
        if error.errno == errno.ENOENT and not _PATTERN_SIGNS.isdisjoint(relative):
            return ExecutorError(f"'{relative}' does not exist: it is a pattern; find the files first")
        if error.errno == errno.ENOENT:
            return ExecutorError(f"'{relative}' does not exist{self._similar(relative) if suggests else ''}")
        problem = _PROBLEMS.get(error.errno or 0, f": {error.strerror or error}")
        return ExecutorError(f"'{relative}'{problem}")

    def _parts(self, relative: str) -> list[str]:
        """Return the components of a relative path, without ".". Raises ExecutorError if it is refused."""
        if not isinstance(relative, str) or not relative.strip():
            raise ExecutorError('the path is empty; "." is the workspace itself')
        if "\0" in relative:
            raise ExecutorError(f"{relative!r} is not a path: it contains a NUL character")
        try:
            size = len(os.fsencode(relative))
        except UnicodeEncodeError:
            raise ExecutorError(f"{relative[:100]!a} is not a path: it cannot be encoded") from None
        if size > MAX_PATH_BYTES:
            raise ExecutorError(
                f"'{relative[:100]}…' is refused: the path has {size:,} bytes; "
                f"the maximum is {MAX_PATH_BYTES:,}"
            )
        parts = relative.split("/")
        if parts[0] in {"", "~"}:
            raise ExecutorError(
                f"'{relative}' is refused: give a path relative to the workspace, such as 'notes/a.txt'"
            )
        if ".." in parts:
            raise ExecutorError(
                f"'{relative}' is refused: '..' is not allowed; paths are relative to the workspace"
            )
        return [part for part in parts if part not in {"", "."}]

    def _inside(self, relative: str, path: Path) -> Path:
        if not path.is_relative_to(self.root):
            raise ExecutorError(f"'{relative}' is refused: a symbolic link leads out of the workspace")
        inner = path.relative_to(self.root).parts
        if any(plain_name(part) == STATE_FOLDER for part in inner):
            raise ExecutorError(f"'{relative}' is refused: '{STATE_FOLDER}' is reserved for the runtime")
        return path

    def _similar(self, relative: str) -> str:
        """Return a hint for a misspelt name: similar names in the same folder."""
        from difflib import get_close_matches  # noqa: PLC0415  # only where something is missing

        try:
            parent = self.resolve(relative).parent
            with os.scandir(parent) as entries:
                names = [entry.name for entry in islice(entries, _SIMILAR_AMONG)]
        except (OSError, ExecutorError):
            return ""
        shown = [name for name in names if name != STATE_FOLDER and is_text(name)]
        close = get_close_matches(Path(relative).name, shown, n=1)
        return f"; did you mean '{self.relative(parent / close[0])}'?" if close else ""


def is_text(name: str) -> bool:
    """Return whether a file name is valid text, so that a model can repeat it."""
    return not has_surrogate(name)


def plain_name(name: str) -> str:
    """Return a name as file systems compare it that ignore case, invisible characters, or dots at the end."""
    folded = unicodedata.normalize("NFKC", name.replace("\u2026", "_"))  # an ellipsis is no three dots
    visible = "".join(char for char in folded if unicodedata.category(char) != "Cf")
    return visible.casefold().partition("::$")[0].rstrip(". ") or name
