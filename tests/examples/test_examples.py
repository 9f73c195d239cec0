"""The examples that need no gateway. The others: `tests/gbnf_server/gateway/clients`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.by_hand import call
from support.examples import EXAMPLES, run_example
from support.qwen import MODEL, requires_qwen
from support.server import PROPS, Reply, completion, scripted
from support.smollm2 import requires_smollm2

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        pytest.param(
            "own_tools.py", r"'count_words'.*\nanswered \{\"result\": 3\}\n", marks=requires_smollm2
        ),
        ("mcp_tools.py", r"'create_dirs'.*\n(.*\n)*answered .*trips"),
        pytest.param("own_grammar.py", r"\[1-8\].*\n([a-h][1-8]-[a-h][1-8] ?){3}\n", marks=requires_smollm2),
        pytest.param(
            "typed_extraction.py",
            r"Invoice\(customer='[^\n]+\n/customer: [^\n]+\n/total: 120\.50",
            marks=requires_smollm2,
        ),
        pytest.param(
            "batch_csv.py",
            r"id,text,mood,probability\n(\d,.*,(happy|angry),[01]\.\d\d\n){2}",
            marks=requires_smollm2,
        ),
        pytest.param("llama_cpp_python.py", r"\{'name': '.*', 'born': \d{4}\}\n", marks=requires_smollm2),
    ],
)
def test_a_program(name: str, printed: str, tmp_path: Path) -> None:
    if name == "mcp_tools.py":
        pytest.importorskip("mcp", reason="needs the extra mcp")
    if name == "llama_cpp_python.py":
        pytest.importorskip("llama_cpp", reason="needs the extra compiled")
    assert re.search(printed, run_example(name, tmp_path))


@pytest.mark.parametrize("has_vision", [False, True])
def test_each_frame_is_shown_with_few_of_the_earlier_ones(tmp_path: Path, has_vision: bool) -> None:
    pytest.importorskip("PIL", reason="needs the extra images")
    settings = {**PROPS, "default_generation_settings": {"n_ctx": 16_384}}
    props = Reply(200, {**settings, "modalities": {"vision": has_vision}})
    colours = ("black", "blue", "orange", "white")
    texts = [call("overlay_text", text=f"all {colour}") for colour in colours]
    if not has_vision:
        texts = [text for shown in texts for text in (call("describe_frame", path="frame.png"), shown)]
    with scripted(props=[props], completion=[completion(text) for text in texts]) as script:
        printed = run_example("describe_frames.py", tmp_path, "--seconds", 0, "--server", script.url)
        prompts = [body["prompt"] for path, body in script.asked if path == "/completion"]
    assert printed == "".join(f"[overlay] all {each}\n{each}.png: answered \n" for each in colours)
    last = prompts[-1]
    if has_vision:
        assert len(last["multimodal_data"]) == 1
        last = last["prompt_string"]
    assert last.count("describe the image") == 3  # the present one, and the last two
    assert ["all black" in last, "all blue" in last] == [False, True]
    assert ("white 100%" in last) == (not has_vision)


@requires_qwen
def test_a_tournament_of_poems_in_plain_lines(tmp_path: Path) -> None:
    printed = run_example("haiku_tournament.py", tmp_path, MODEL)
    assert re.match(r"[23] poets, [12] judges\n\d poets abstained\n(Haiku \d: .+ / .+ / .+\n){2,3}", printed)
    assert re.search(r"\njudge 1(: \d, | abstained: )", printed)


def test_the_tests_of_tools(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "test_tools.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_notebook(tmp_path: Path) -> None:
    for package, extra in (("nbclient", "docs"), ("ipykernel", "docs"), ("railroad", "inspect")):
        pytest.importorskip(package, reason=f"needs the extra {extra}")
    notebook = shutil.copy(EXAMPLES / "inspector.ipynb", tmp_path)
    assert '"outputs": []' in Path(notebook).read_text("utf-8")
    command = [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", str(notebook)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = Path(notebook).read_text("utf-8")
    assert "nightsPair1 ::=" in text
    pages = set(re.findall(r'src=\\"(\w+\.html)\\"', text))
    assert pages == {"trip.html", "run.html"}
    assert "railroad-diagram" in (tmp_path / "trip.html").read_text("utf-8")
    assert "find_events_empty" in (tmp_path / "run.html").read_text("utf-8")


def test_each_example_says_how_it_is_run() -> None:
    tested = Path(__file__).read_text("utf-8") + "".join(
        path.read_text("utf-8")
        for path in Path(__file__).parents[1].glob("gbnf_server/gateway/clients/test_*.py")
    )
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text("utf-8")
        assert re.match(r'"""[^\n]+\?\n\n', text), f"{path.name} begins with no question"
        assert f"examples/{path.name}" in text
        assert f'"{path.name}"' in tested
        question = text.partition("\n")[0].removeprefix('"""')
        assert f"| {question} | [{path.name}]({path.name}) |" in listed
