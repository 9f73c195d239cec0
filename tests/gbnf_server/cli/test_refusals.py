"""What commands refuse before they work: the problem is named, without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Gbnf

ANY = "http://127.0.0.1:1"  # where nobody listens
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 5}}}
FILES = {
    "schema.json": SCHEMA,
    "three.json": {"type": 3},
    "false.json": False,
    "tools.json": [{"name": "tool", "inputSchema": SCHEMA}],
    "none.json": [],
}
RUN = [
    ("--model nothing.gguf", 4, "nothing.gguf"),
    (f"--server {ANY}", 4, ANY),
    (f"--model a.gguf --server {ANY}", 2, "not both"),
    (f"--server {ANY} --ctx-size 99", 2, "--ctx-size"),
    ("--backend llama-server --ctx-size 99", 2, "--ctx-size"),
    ("--manifests nothing", 3, "nothing"),
    ("--image nothing.png", 3, "'nothing.png' cannot be read"),
    ("--max-steps 0", 2, "max-steps"),
    ("--seed -2 --temperature 1", 2, "seed"),
    ("--seed 4294967296", 2, "seed"),
    ("--temperature nan", 2, "temperature"),
    ("--temperature inf", 2, "temperature"),
    (f"--server {ANY} --api-key cl\xe9", 2, "api-key"),
    ("--workspace /proc/nothing", 4, "workspace"),
    ("--hf nothing", 4, "OWNER/REPOSITORY"),
    ("--hf a/b --model m.gguf", 2, "--hf"),
    (f"--hf a/b --server {ANY}", 2, "--hf"),
    (f"--gpu-layers 1 --server {ANY}", 2, "--gpu-layers 1"),
    (f"--lora a.gguf --server {ANY}", 2, "gbnf server start --lora a.gguf"),
    ("--threads 1 --backend ollama --model m", 2, "--threads 1"),
    ("--call-format soft", 2, "call-format"),
    ("--call-format grammar", 2, "call-format"),
    ("--call-format text --reasoning field", 2, "--reasoning free"),
    ("--backend ollama", 2, "requires --model NAME"),
    ("--backend vllm --model m", 2, "requires --server URL"),
    (f"--backend in-process --server {ANY}", 2, "does not apply to --backend in-process"),
    ("--backend llama-server --model m", 2, "it serves one model"),
    ("--backend telepathy", 2, "backend"),
]
SERVE = [
    ("--host 0.0.0.0", 2, "give --api-key"),
    ("--host ::", 2, "give --api-key"),
    ("--host example.org", 2, "give --api-key"),
    ("--api-key gehe\u00efm", 2, "must be printable ASCII"),
    ("--api-key=", 2, "there is no key in it"),
    ("--api-key-file missing.txt", 2, "cannot be read"),
    ("--manifests tools", 2, "it is for --agent"),
    ("--mcp x", 2, "it is for --agent"),
    ("--yes", 2, "it is for --agent"),
    ("--backend vllm", 2, "requires --server URL"),
    (f"--model x.gguf --server {ANY}", 2, "use --model or --server, not both"),
    (f"--deterministic --server {ANY}", 2, "it is for a model in process"),
    (f"--port 0 --server {ANY} --server http://127.0.0.1:2", 4, f"no llama-server answers at {ANY}"),
]
MCP = [
    ("--http 0.0.0.0:0", 2, "give --api-key"),
    ("--http example.org:0", 2, "give --api-key"),
    ("--http [::]:0", 2, "give --api-key"),
    ("--http localhost", 2, "is not [HOST:]PORT"),
    ("--http 65536", 2, "is not [HOST:]PORT"),
    ("--http a:b", 2, "is not [HOST:]PORT"),
    ("--api-key x", 2, "it is for --http"),
    ("--manifests .", 3, "contains no manifest.toml"),
]
INSPECT = [
    ("--schema three.json", 3, "/type"),
    ("--schema false.json", 3, "no JSON value satisfies"),
    ("--schema schema.json --tools tools.json", 2, "shown alone"),
    ("--schema schema.json --html no/such/folder/page.html", 4, "cannot be written"),
    ("schema.json --call-format native", 2, "a JSON Schema has no calls"),
    ("--call-format native --whitespace free", 2, "the chat template decides"),
    ("--call-format native --property-order declared", 2, "the chat template decides"),
    ("--call-format native --model no.gguf", 4, "no.gguf"),
    ("--call-format text", 2, "'json', 'native'"),
    ("--whitespace none", 2, "'default', 'compact'"),
    ("--tools none.json", 3, "there is no tool in it to show"),
    ("--model no.gguf", 4, "there is no model file"),
    ("--lora no.gguf", 4, "there is no LoRA adapter"),
    ("none.json --model schema.json", 4, "schema.json is not a GGUF file"),
]
CASES = [
    (f"{command} {options}", code, problem)
    for command, rows in {
        "run go": RUN,
        "serve": SERVE,
        "mcp --workspace work": MCP,
        "inspect --html page.html": INSPECT,
    }.items()
    for options, code, problem in rows
]


@pytest.mark.parametrize(
    "command",
    [
        "run -", "chat", "serve --agent --manifests absent", "generate - --schema absent", "inspect absent",
        "batch absent", "server start", "tune --suite absent", "bench --suite absent",
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["--model", "--lora"])
@pytest.mark.parametrize("content", [b"", b"no model", None])
def test_a_file_that_is_no_model_is_reported_before_anything_else(
    gbnf: Gbnf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    option: str,
    content: bytes | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("m.gguf").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    result = gbnf(*command.split(), option, "m.gguf")
    assert (result.code, result.out) == (4, "")
    kind = "model file" if option == "--model" else "LoRA adapter"
    assert result.err.startswith(
        f"error: the {kind} m.gguf is not a GGUF file: "
        if content is not None
        else f"error: there is no {kind} m.gguf"
    )
    assert result.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("line", "code", "problem"), CASES)
def test_problems_are_named_without_a_traceback(
    gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(json.dumps(content))
    result = gbnf(*line.split(" "))
    assert (result.code, result.out) == (code, "")
    assert problem in " ".join(result.err.replace("│", " ").split())
    assert "Traceback" not in result.err
