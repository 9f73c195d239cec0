"""Downloads of models: with huggingface_hub itself, from a server on this machine."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.system.errors import ModelLoadError
from gbnf_server.system.model_files import choose_files
from support.hugging_face import DAMAGED, GATED, hugging_face

PARTS = tuple(f"split/big-Q4_K_M-{number:05}-of-00003.gguf" for number in (1, 2, 3))
REPOS = {
    "owner/one": {"README.md": b"#", "only-Q5_K_S.gguf": b"five", "mmproj-only-F16.gguf": b"vision"},
    "owner/many": {
        "m-Q4_K_M.gguf": b"four",
        "m-UD-Q4_K_M.gguf": b"other four",
        "m.q8_0.gguf": b"eight",
        "m-Q4_K.gguf": b"plain",
    },
    "owner/split": {name: name.encode() for name in PARTS},
    "owner/damaged": {"m-Q4_K_M.gguf": DAMAGED},
    "owner/none": {"model.safetensors": b"x"},
    "owner/odd": {"../../escaped-Q4_K_M.gguf": b"out", "/tmp/escaped-Q4_K_M.gguf": b"out"},
}
DOWNLOAD = """
import sys
from gbnf_server.system.errors import ModelLoadError
from gbnf_server.system.model_files import download_model
for reference in sys.argv[1:]:
    try:
        print(download_model(reference))
    except ModelLoadError as error:
        print(f"refused: {error}")
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[tuple[str, list[str]]]:
    with hugging_face(REPOS) as (url, served):
        yield url, served


def download(url: str, home: Path, *references: str, **variables: str) -> list[str]:
    """Return a path or an error for each; huggingface_hub reads its variables when it is imported."""
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_ETAG_TIMEOUT": "60"}
    done = subprocess.run(
        [sys.executable, "-c", DOWNLOAD, *references],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


CONTENTS = {
    "owner/one": b"five",
    "owner/one:q5_k_s": b"five",
    "owner/many": b"four",
    "owner/many:UD-Q4_K_M": b"other four",
    "owner/many:Q8_0": b"eight",
    "owner/many:Q4_K": b"plain",
}
REFUSED = {
    "owner/one:Q8_0": ("no GGUF model of quantization Q8_0", "only-Q5_K_S.gguf"),
    "owner/none": ("no GGUF model of quantization Q4_K_M", "choose another repository"),
    "owner/odd": ("no GGUF model", "choose another"),
    "owner/missing": ("there is no repository owner/missing", "HF_TOKEN"),
    "owner/damaged": ("is damaged: its SHA-256 is", ""),
    GATED: ("owner/gated is gated", "Accept its terms at http"),
    "model": ("names no model", "OWNER/REPOSITORY"),
    "a/b:c:d": ("names no model", "OWNER/REPOSITORY"),
    "../x": ("does not serve ../x", "Correct the name"),
}


@pytest.mark.slow
def test_what_is_downloaded_and_what_is_refused(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    references = [*CONTENTS, *REFUSED, "owner/damaged"]
    found = dict(zip(references, download(hub[0], tmp_path, *references), strict=True))
    for reference, content in CONTENTS.items():
        assert Path(found[reference]).is_relative_to(tmp_path), found
        assert Path(found[reference]).read_bytes() == content
    for reference, (problem, hint) in REFUSED.items():
        assert found[reference].startswith("refused: ")
        assert problem in found[reference]
        assert hint in found[reference]
    assert DAMAGED.upper() not in [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]


@pytest.mark.slow
def test_all_parts_of_a_split_model_and_a_second_time_none(
    hub: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, served = hub
    served.clear()
    path, again = download(url, tmp_path, "owner/split", "owner/split")
    assert again == path
    assert sorted(served) == list(PARTS)
    first = Path(path)
    assert first.name == Path(PARTS[0]).name
    assert [(first.parent / Path(name).name).read_bytes().decode() for name in PARTS] == [*PARTS]
    assert download("http://127.0.0.1:1", tmp_path, "owner/split") == [path]
    assert download(url, tmp_path, "owner/split", HF_HUB_OFFLINE="1") == [path]


@pytest.mark.slow
@pytest.mark.parametrize("repo", ["owner/damaged", "owner/one:Q5_K_S"])
def test_a_download_that_was_killed_before_its_check_is_checked_later(
    hub: tuple[str, list[str]], tmp_path: Path, repo: str
) -> None:
    url, served = hub
    killed = "import os\nfrom gbnf_server.system import model_files\n"
    killed += "model_files._check_hash = lambda *_: os._exit(9)\n" + DOWNLOAD
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", killed, repo], env=environment, check=False)
    assert done.returncode == 9
    served.clear()
    [offline] = download(url, tmp_path, repo, HF_HUB_OFFLINE="1")
    assert offline.startswith("refused: ")
    [found] = download(url, tmp_path, repo)
    if repo == "owner/damaged":
        assert "is damaged: its SHA-256 is" in found
    else:
        assert Path(found).read_bytes() == b"five"
        assert not served  # it is not downloaded again
        assert download(url, tmp_path, repo, HF_HUB_OFFLINE="1") == [found]


@pytest.mark.slow
def test_at_a_terminal_there_is_a_progress_bar(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    main, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-c", DOWNLOAD, "owner/one"]
    variables = {"HF_ENDPOINT": hub[0], "HF_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=child, stderr=child, env={**os.environ, **variables}):
        os.close(child)
        shown = b""
        with suppress(OSError):  # the end of the other side
            while data := os.read(main, 4096):
                shown += data
    os.close(main)
    assert b"only-Q5_K_S.gguf" in shown
    assert b"100%" in shown


@pytest.mark.slow
@pytest.mark.parametrize("offline", [{"HF_ENDPOINT": "nothing://127.0.0.1"}, {"HF_HUB_OFFLINE": "1"}])
def test_without_a_connection(hub: tuple[str, list[str]], tmp_path: Path, offline: dict[str, str]) -> None:
    [said] = download(hub[0], tmp_path, "owner/one", **offline)
    assert "can't be downloaded" in said
    assert "--model FILE.gguf" in said


names = st.sampled_from(["a", "b/c", "../x", "/x", "d\x1b", "x-Q4_K_M", "x-Q8_0", "y-mmproj-Q4_K_M"])
listings = st.lists(
    st.builds(
        "{}{}{}".format,
        names,
        st.sampled_from(["", "-00001-of-00002", "-00002-of-00002"]),
        st.sampled_from([".gguf", ".GGUF", ".bin"]),
    ),
    unique=True,
)


@given(listings, st.none() | st.sampled_from(["Q4_K_M", "Q8_0", "x"]))
def test_only_whole_models_of_listed_files_are_chosen(listed: list[str], quantization: str | None) -> None:
    try:
        chosen = choose_files("owner/repo", listed, quantization)
    except ModelLoadError:
        return
    assert set(chosen) <= set(listed)
    for name in chosen:
        assert not name.startswith(("/", ".."))
        assert name.isprintable()
        assert name.lower().endswith(".gguf")
    assert ("-of-" in chosen[0]) == (len(chosen) == 2)
