"""The plugin of the command `llm`, in the real `llm`: with random weights, and with a real model."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.models import make_model
from support.oracle import CHECKOUT
from support.smollm2 import requires_smollm2
from support.tool_templates import JSON_IN_TAGS

llm = pytest.importorskip("llm", reason="needs the extra llm")

from click.testing import CliRunner  # noqa: E402  # llm requires it
from llm.cli import cli  # noqa: E402
from llm.plugins import load_plugins, pm  # noqa: E402

from gbnf_server import llm_plugin  # noqa: E402

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def weather(city: str, days: int = 1) -> str:
    """Return the weather forecast of a city."""
    return f"{city}: sunny for {days} days"


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights: whatever fits a schema is the grammar's doing."""
    return make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", template=JSON_IN_TAGS, context=2048)


@pytest.fixture
def home(tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of llm's settings, which names a model; the plugin is loaded."""
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    (tmp_path / "tiny.gguf").symlink_to(model_file)
    (tmp_path / llm_plugin.FILE_NAME).write_text(
        '[tiny]\nmodel = "tiny.gguf"\nthreads = 1\nctx-size = 2048\n'
    )
    (tmp_path / "logs-off").touch()  # no database
    load_plugins()
    loaded = pm.has_plugin("gbnf") or pm.is_registered(llm_plugin)
    if not loaded:
        pm.register(llm_plugin, name="gbnf under test")
    yield tmp_path
    if not loaded:
        pm.unregister(llm_plugin)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, arguments)
    return result.exit_code, result.output


def test_the_distribution_declares_the_plugin() -> None:
    [(name, value)] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["entry-points"][
        "llm"
    ].items()
    assert EntryPoint(name, value, "llm").load() is llm_plugin


@requires_smollm2
def test_the_models_are_listed_without_being_loaded(home: Path) -> None:
    (home / "tiny.gguf").unlink()
    code, output = run("models", "list")
    assert code == 0
    assert {"GbnfModel: gbnf/smollm2", "GbnfModel: gbnf/tiny"} <= set(output.splitlines())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_an_answer_fits_its_schema(home: Path, seed: int, stream: bool) -> None:
    model = llm.get_model("gbnf/tiny")
    pieces = list(model.prompt("Ada is 36", schema=PERSON, seed=seed, max_tokens=200, stream=stream))
    jsonschema.validate(json.loads("".join(pieces)), PERSON)
    assert len(pieces) > 1 or not stream


def test_the_options_of_the_sampler(home: Path) -> None:
    model = llm.get_model("gbnf/tiny")

    def said(**options: Any) -> str:
        return str(model.prompt("go", max_tokens=20, **options).text())

    assert said(temperature=0, seed=1) == said(temperature=0, seed=2)
    assert said(temperature=1, seed=1) == said(temperature=1, seed=1)
    assert len({said(temperature=1, seed=seed) for seed in range(4)}) > 1
    response = model.prompt("go", max_tokens=3)
    assert response.usage().output == 3
    assert response.usage().input > 1


@requires_smollm2
@pytest.mark.slow
def test_a_call_fits_and_its_result_is_in_the_next_prompt(home: Path) -> None:
    (home / llm_plugin.FILE_NAME).write_text('[small]\nmodel = "smollm2"\nthreads = 1\n')
    greedy = {"temperature": 0, "max_tokens": 100}
    conversation = llm.get_model("gbnf/small").conversation(tools=[weather])
    response = conversation.prompt("What is the weather in Rome for 3 days?", **greedy)
    [call] = response.tool_calls()
    assert (call.name, call.arguments) == ("weather", {"city": "Rome", "days": 3})
    [result] = response.execute_tool_calls()
    again = conversation.prompt(tool_results=[result], **greedy)
    again.text()
    assert again.usage().input > response.usage().input
    sent = [message for each in again.prompt.messages for message in llm_plugin._messages(each)]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert [made["id"] for made in sent[1]["tool_calls"]] == [call.tool_call_id] == [sent[2]["tool_call_id"]]
    assert sent[2]["content"] == "Rome: sunny for 3 days"


def test_a_truncated_answer_is_an_error(home: Path) -> None:
    code, output = run("-m", "gbnf/tiny", "--schema", json.dumps(PERSON), "-o", "max_tokens", "3", "go")
    assert code == 1
    assert "truncated after" in output
    assert "-o max_tokens" in output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[tiny", "gbnf-models.toml: "),
        ("tiny = 3", "gbnf-models.toml: tiny: must be a table, as [tiny], got 3."),
        (
            '[tiny]\nmodle = "tiny.gguf"',
            "gbnf-models.toml: tiny: unknown option 'modle'. Did you mean 'model'?",
        ),
        ("[tiny]\nmodel = 3", "gbnf-models.toml: tiny: 1 validation error"),
        ('[tiny]\nmodel = "none.gguf"', "there is no model file none.gguf"),
        ('[tiny]\nmodel = "a"\nserver = "http://127.0.0.1:1"', "use --model or --server, not both"),
        pytest.param('[tiny]\nserver = "http://127.0.0.1:1"', "127.0.0.1:1", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("brief_pauses")
def test_what_is_wrong_in_the_file_is_named(home: Path, text: str, problem: str) -> None:
    (home / llm_plugin.FILE_NAME).write_text(text)
    code, output = run("-m", "gbnf/tiny", "go")
    assert code == 1
    assert problem in " ".join(output.split())


@requires_smollm2
@pytest.mark.slow
def test_a_real_model_fills_a_schema_and_calls_a_function(home: Path) -> None:
    (home / llm_plugin.FILE_NAME).write_text('[small]\nmodel = "smollm2"\nthreads = 1\n')
    greedy = ("-m", "gbnf/small", "-o", "temperature", "0", "-o", "max_tokens", "100")
    code, output = run(*greedy, "--schema", "name, age int", "Ada is 36 years old")
    assert code == 0, output
    assert json.loads(output)["age"] == 36
    (home / "tools.py").write_text(
        'def weather(city: str, days: int = 1) -> str:\n    """Return the weather forecast of a city."""\n'
        '    return f"{city}: sunny for {days} days"\n'
    )
    asked = ("--functions", str(home / "tools.py"), "--td", "What is the weather in Rome for 3 days?")
    code, output = run(*greedy, *asked)
    assert code == 0, output
    assert "weather({'city': 'Rome', 'days': 3})" in output
    assert "Rome: sunny for 3 days" in output
