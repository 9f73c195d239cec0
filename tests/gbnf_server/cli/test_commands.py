"""`gbnf compile`, `check`, `manifests` and what all commands share: output and exit codes."""

from __future__ import annotations

import json
import shutil
import socket
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gbnf import Grammar, args_complexity, compile_pool, compile_schema, load_manifests
from gbnf_server.cli import main
from gbnf_server.cli.commands import reflow
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.manifests import ToolRow, tools_table
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.folders import manifests_path
from support.command_line import Gbnf
from support.toys import make_tool

NOW = '{"name": "get_now", "arguments": {}}'


@pytest.fixture(scope="module")
def grammar_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grammar") / "tools.gbnf"
    path.write_text(str(compile_pool(load_manifests(manifests_path() / "get_now"))))
    return path


# gbnf compile


def test_compile_prints_the_grammar_and_nothing_else(gbnf: Gbnf) -> None:
    result = gbnf("compile")
    assert (result.code, result.err) == (ExitCode.SUCCESS, "")
    assert result.out == str(compile_pool(load_manifests(manifests_path())))
    Grammar.parse(result.out)


def test_compile_takes_several_paths(gbnf: Gbnf) -> None:
    result = gbnf("compile", manifests_path() / "get_now", manifests_path() / "compute" / "manifest.toml")
    both = [load_manifests(manifests_path() / name)[0] for name in ("compute", "get_now")]
    assert result.out == str(compile_pool(both))


def test_compile_for_a_request(gbnf: Gbnf) -> None:
    result = gbnf("compile", "--query", "find my notes", "--report")
    assert "get_inputs" in result.err
    assert "left out find_files_google_workspace: " in result.err
    assert "the request" in result.err
    assert "_google_workspace" not in result.out


def make_loose_tool(folder: Path) -> Path:
    """A tool with one argument of any kind, and one that no grammar can hold to its schema."""
    words = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    make_tool(folder, "loose", args={"properties": {"anything": {}, "words": words}})
    return folder


def test_the_report_names_each_finding(gbnf: Gbnf, tmp_path: Path) -> None:
    folder = make_loose_tool(tmp_path)
    report = compile_pool(load_manifests(folder)).report
    assert {finding.kind for finding in report} == {"free_form", "unenforced"}
    result = gbnf("compile", folder, "--report")
    assert all(str(finding) in result.err for finding in report)
    assert "not exact: 1 keyword left to the validator" in result.err
    make_tool(tmp_path / "exact", "ping")
    assert "\nexact: every text" in gbnf("compile", tmp_path / "exact", "--report").err


def test_compile_for_a_request_as_json_keeps_the_tools_that_fit_best(gbnf: Gbnf) -> None:
    options = ["--query", "find the files of Rome", "--max-tools", "2", "--final-answer"]
    value = json.loads(gbnf("compile", "--json", *options).out)
    assert set(value) == {"grammar", "exact", "findings", "kept", "dropped"}
    assert len(value["kept"]) == 2
    assert "find_files" in value["kept"]
    assert value["dropped"]["get_now"].endswith("for this request, and the limit is 2")
    assert "undo_last_turn" in value["dropped"]
    Grammar.parse(value["grammar"])


@pytest.mark.parametrize(
    ("options", "keyword", "value"),
    [
        (["--final-answer"], "final_answer", True),
        (["--ask-user"], "ask_user", True),
        (["--step", "1", "--step", "4"], "steps", (1, 4)),
        (["--whitespace", "compact"], "whitespace", "compact"),
        (["--max-depth", "0"], "max_depth", 0),
    ],
)
def test_compile_options(gbnf: Gbnf, options: list[str], keyword: str, value: object) -> None:
    expected = compile_pool(load_manifests(manifests_path()), **{keyword: value})  # type: ignore[arg-type]  # of its kind
    assert gbnf("compile", *options).out == str(expected)


# gbnf check


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (NOW, ExitCode.SUCCESS, ["accepted"]),
        ('{"name": "get_nov", "arguments": {}}', ExitCode.FAILURE, ["line 1, column 17", '"w\\"']),
        ('{"name": "get_now", "argu', ExitCode.FAILURE, ["ends too early", "column 26"]),
        (NOW + "}", ExitCode.FAILURE, ["column 37", "end of text"]),
        ("", ExitCode.FAILURE, ["column 1"]),
        ("\x1b[31m", ExitCode.FAILURE, ["\\u001b[31m"]),
    ],
)
def test_check_says_where_and_what(
    gbnf: Gbnf, grammar_file: Path, text: str, code: ExitCode, said: list[str]
) -> None:
    result = gbnf("check", grammar_file, text)
    assert result.code == code
    assert all(part in result.out for part in said)
    assert "\x1b" not in result.out


def test_the_caret_is_under_the_error(gbnf: Gbnf, tmp_path: Path) -> None:
    path = tmp_path / "lines.gbnf"
    path.write_text('root ::= "日本\\n" [a-z]{1,200} "!"')
    text = "日本\n" + "a" * 150 + "?" + "b" * 150
    lines = gbnf("check", path, text).out.splitlines()
    assert lines[0] == "rejected at line 2, column 151"
    assert lines[1][lines[2].index("^")] == "?"
    assert len(lines[1]) < 130
    path.write_text('root ::= "日本" "a"')
    lines = gbnf("check", path, "日本b").out.splitlines()
    assert lines[1:3] == ["  日本b", "      ^"], "wide characters count as two"


@pytest.mark.parametrize("piped", [NOW, NOW + "\n", NOW + "\r\n"])
def test_check_reads_the_text_from_a_pipe(gbnf: Gbnf, grammar_file: Path, piped: str) -> None:
    assert gbnf("check", grammar_file, stdin=piped).out == "accepted\n"
    assert gbnf("check", grammar_file, stdin=piped + "\n").code == (
        ExitCode.SUCCESS if piped == NOW else ExitCode.FAILURE
    )


def test_check_reads_the_grammar_from_a_pipe(gbnf: Gbnf, grammar_file: Path) -> None:
    assert gbnf("check", "-", NOW, stdin=grammar_file.read_text()).out == "accepted\n"
    assert gbnf("check", "-", stdin=grammar_file.read_text()).out.startswith("valid: ")


@pytest.mark.skipif(not model_path().is_file(), reason="there is no embedded model yet")
def test_llama_cpp_loads_the_grammar_too(gbnf: Gbnf, grammar_file: Path) -> None:
    assert gbnf("check", grammar_file).out.endswith("accepted by this toolkit and llama.cpp\n")
    assert gbnf("check", grammar_file, "--no-engine").out.endswith("accepted by this toolkit\n")


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        (b"root ::= a", "not defined"),
        (b'root ::= "a', ":1:10: error"),
        (b'snake_case ::= "a"', ":1:6: error"),
        (b'root ::= "\xff"', "UTF-8"),
        (b"", "root"),
        (None, "broken.gbnf"),
    ],
)
def test_a_broken_grammar_is_a_broken_file(
    gbnf: Gbnf, tmp_path: Path, grammar: bytes | None, problem: str
) -> None:
    path = tmp_path / "broken.gbnf"
    if grammar is not None:
        path.write_bytes(grammar)
    result = gbnf("check", path, "a")
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    assert problem in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (NOW, {"accepted": True}),
        ('{"name": "get_nov', {"accepted": False, "at_end": False, "line": 1, "column": 17, "position": 16}),
        ('{"name"', {"accepted": False, "at_end": True, "position": 7, "expected": ['":"']}),
    ],
)
def test_check_as_json(gbnf: Gbnf, grammar_file: Path, text: str, value: dict[str, object]) -> None:
    result = gbnf("check", grammar_file, text, "--json")
    assert result.code == (ExitCode.SUCCESS if value["accepted"] else ExitCode.FAILURE)
    assert json.loads(result.out).items() >= value.items()
    assert json.loads(gbnf("check", grammar_file, "--json").out)["accepted"] is True


# gbnf manifests


def test_findings_are_counted_and_on_request_listed(gbnf: Gbnf, tmp_path: Path) -> None:
    folder = make_loose_tool(tmp_path)
    table = gbnf("manifests", folder)
    assert (table.code, "loose  " in table.out) == (ExitCode.SUCCESS, True)
    assert "2 findings; --findings lists them" in table.out
    listed = gbnf("manifests", folder, "--findings").out
    assert "loose: /properties/anything" in listed
    assert "uniqueItems" in listed


def test_tools_as_json(gbnf: Gbnf, tmp_path: Path) -> None:
    rows = {row["name"]: row for row in json.loads(gbnf("manifests", "--json").out)}
    assert rows["delete_files"]["effect"] == "write"
    assert rows["delete_files"]["confirm"] is True
    assert rows["get_inputs"]["is_complex"] is True
    assert rows["get_inputs"]["complexity"]["score"] > rows["get_now"]["complexity"]["score"]
    [loose] = json.loads(gbnf("manifests", make_loose_tool(tmp_path), "--json").out)
    assert [finding["pointer"] for finding in loose["findings"]] == [
        "/properties/anything",
        "/properties/words/uniqueItems",
    ]


def test_broken_manifests_are_all_named(gbnf: Gbnf, tmp_path: Path) -> None:
    for name, text in {"one": "name = 3", "two": "name ="}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.toml").write_text(text)
    for command in (["manifests", tmp_path], ["compile", tmp_path], ["run", "x", "--manifests", tmp_path]):
        result = gbnf(*command)
        assert result.code == ExitCode.INPUT
        assert str(tmp_path / "one") in result.err
        assert str(tmp_path / "two") in result.err


def make_impossible_tool(folder: Path) -> None:
    args = {"required": ["a"], "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 3}}}
    make_tool(folder, "never", args=args)


def test_a_tool_that_cannot_be_called_is_named_with_its_file(gbnf: Gbnf, tmp_path: Path) -> None:
    make_impossible_tool(tmp_path)
    result = gbnf("compile", tmp_path)
    assert result.code == ExitCode.INPUT
    assert str(tmp_path / "never" / "manifest.toml") in result.err
    assert "/properties/a" in result.err
    assert "Remove the contradiction" in result.err
    result = gbnf("manifests", tmp_path)
    assert result.code == ExitCode.SUCCESS
    assert str(tmp_path / "never" / "manifest.toml") in result.out
    assert "/properties/a" in result.out


def test_one_tool_that_cannot_be_compiled_does_not_take_the_pool_with_it(gbnf: Gbnf, tmp_path: Path) -> None:
    make_impossible_tool(tmp_path)
    make_tool(tmp_path, "ping")
    result = gbnf("compile", tmp_path, "--report")
    assert result.code == ExitCode.SUCCESS
    assert "ping" in result.out
    assert "never" not in result.out
    assert "left out  never: " in result.err
    assert gbnf("compile", tmp_path, "--strict").code == ExitCode.INPUT


def test_mistakes_are_always_listed_and_fail_with_strict(gbnf: Gbnf, tmp_path: Path) -> None:
    make_tool(tmp_path, "fine", offer={"after": ["ask_user"]})
    assert gbnf("manifests", tmp_path, "--strict").code == ExitCode.SUCCESS
    late = make_tool(tmp_path, "late", offer={"after": ["fin"]})
    assert gbnf("manifests", tmp_path, "--strict").code == ExitCode.FAILURE
    reason = "it comes after 'fin', which the pool does not have; did you mean 'fine'?"
    assert f"late: /offer: after: {reason}" in gbnf("manifests", tmp_path).out
    shutil.rmtree(late.path.parent)  # type: ignore[union-attr]  # it was loaded from a file
    make_tool(tmp_path, "typo", args={"properties": {"a": {"type": "string", "maxlegth": 3}}})
    make_tool(tmp_path, "no_code")
    (tmp_path / "no_code" / "executor.py").unlink()
    result = gbnf("manifests", tmp_path)
    assert result.code == ExitCode.SUCCESS
    assert "typo: /properties/a: maxlegth: unknown key, did you mean `maxLength`?" in result.out
    assert "no_code: /: executor.py: the file is not beside the manifest" in result.out
    assert gbnf("manifests", tmp_path, "--strict").code == ExitCode.FAILURE
    assert "did you mean `maxLength`?" in gbnf("compile", tmp_path, "--report").err
    strict = gbnf("compile", tmp_path, "--strict")
    assert (strict.code, strict.out) == (ExitCode.INPUT, "")
    assert "did you mean `maxLength`?" in strict.err


def test_tools_of_an_api_need_no_code(gbnf: Gbnf, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"type": "function", "function": {"name": "ping"}}]))
    result = gbnf("manifests", file, "--strict")
    assert (result.code, result.err) == (ExitCode.SUCCESS, "")
    assert "executor.py" not in result.out


@pytest.mark.parametrize("width", [60, 89, 90, 120])
def test_every_width_shows_names_effects_and_findings_whole(width: int) -> None:
    rows = [
        ToolRow(tool, args_complexity(tool.model_args()), is_complex=False, findings=())
        for tool in load_manifests(manifests_path())
    ]
    console = Console(width=width, file=StringIO(), legacy_windows=False)
    console.print(tools_table(rows, width))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    for row in rows:
        [line] = [line for line in lines if line.split()[:1] == [row.tool.name]]
        policy = row.tool.run
        shown = line.split(row.tool.name, 1)[1]
        assert (policy.effect + (", asks" if policy.confirm else "")) in shown
        assert (f" {row.complexity.score} " in shown) == (width >= 90)
        assert " - " in shown
        assert len(line) <= width
        if width < 90:
            below = " ".join(" ".join(lines[lines.index(line) + 1 :]).split())
            assert below.startswith(row.tool.description())


# gbnf server


def test_a_port_in_use_is_an_error(gbnf: Gbnf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = gbnf("server", "start", "--port", port)
    assert result.code == ExitCode.ENVIRONMENT
    assert f"port {port} cannot be used: Address already in use. Choose another port" in result.err


def test_what_follows_two_dashes_is_for_llama_server(gbnf: Gbnf) -> None:
    result = gbnf("server", "start", "--port", "0", "--", "--not-an-option", "3")
    assert result.code == ExitCode.ENVIRONMENT
    assert "invalid argument: --not-an-option" in result.err


def test_a_text_that_begins_with_a_dash_needs_two_before_it(gbnf: Gbnf, tmp_path: Path) -> None:
    (tmp_path / "list.gbnf").write_text('root ::= "- 12 x eggs"')
    refused = gbnf("check", tmp_path / "list.gbnf", "- 12 x eggs")
    assert refused.code == ExitCode.USAGE
    assert "No such option: -. Write -- before a text that begins with a dash." in refused.err
    assert gbnf("check", tmp_path / "list.gbnf", "--", "- 12 x eggs").code == ExitCode.SUCCESS


def test_a_server_is_built_for_one_kind_of_gpu(gbnf: Gbnf) -> None:
    assert gbnf("server", "install", "--cuda", "--vulkan").code == ExitCode.USAGE


# the rest


def test_no_command_and_an_unknown_one_are_usage_errors(gbnf: Gbnf) -> None:
    assert gbnf().code == ExitCode.USAGE
    assert gbnf("fly").code == ExitCode.USAGE


@pytest.mark.parametrize("command", [[], ["run"], ["compile"], ["check"], ["manifests"], ["server", "start"]])
def test_help_teaches(gbnf: Gbnf, command: list[str]) -> None:
    result = gbnf(*command, "--help")
    assert result.code == ExitCode.SUCCESS
    assert f"gbnf {' '.join(command)}".strip() in result.out
    assert "Try:" in result.out


def test_the_exit_codes_are_in_the_help(gbnf: Gbnf) -> None:
    for result in (gbnf("--help"), gbnf("run", "--help")):
        for code in ExitCode:
            assert f" {code.value}  " in result.out


def test_completion_of_a_shell(gbnf: Gbnf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    result = gbnf("--show-completion", "bash")
    assert result.code == ExitCode.SUCCESS
    assert "_GBNF_COMPLETE" in result.out


def test_the_version(gbnf: Gbnf) -> None:
    assert gbnf("--version").out.startswith("gbnf-toolkit")


def test_paragraphs_are_reflowed_and_examples_are_not() -> None:
    text = """One
    line.

    \b
    Try:
      a  b
    """
    assert reflow(text, None) == "One line.\n\n\b\nTry:\n  a  b\n\n"


def test_a_fault_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gbnf_server.cli.app.app", broken)
    with pytest.raises(ZeroDivisionError):
        main([])


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def test_compile_a_schema(gbnf: Gbnf, schema: Path) -> None:
    ways: list[list[object]] = [["--schema", schema], ["--schema", "-"], [schema]]
    for way in ways:
        result = gbnf("compile", *way, "--report", stdin=schema.read_text())
        assert result.out == str(compile_schema(SCHEMA, closed=True))
        assert result.err.splitlines()[0].endswith("bytes")
    assert gbnf("compile", schema, "--open").out == str(compile_schema(SCHEMA))
    deep = {"items": {"items": {"items": {"items": {"items": {"items": {"enum": [0]}}}}}}}
    schema.write_text(json.dumps(deep))
    for depth in (0, 2, 5):
        expected = compile_schema(deep, closed=True, max_depth=depth)
        assert gbnf("compile", schema, "--max-depth", depth).out == str(expected)
    assert gbnf("compile", schema).out == str(compile_schema(deep, closed=True))


def test_a_misspelt_keyword_of_a_schema_is_a_finding(gbnf: Gbnf, schema: Path) -> None:
    schema.write_text('{"type": "string", "minlength": 3}')
    finding = "/: minlength: unknown key, did you mean `minLength`?"
    result = gbnf("compile", "--schema", schema, "--report")
    assert result.code == ExitCode.SUCCESS
    assert finding in result.err
    result = gbnf("compile", "--schema", schema, "--strict")
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    assert f"{schema}: {finding}" in result.err
    [found] = json.loads(gbnf("compile", "--schema", schema, "--json").out)["findings"]
    assert found["kind"] == "unknown_key"


@pytest.mark.parametrize(
    "more", [["--query", "x"], ["--final-answer"], ["--step", "1"], [manifests_path() / "get_now"]]
)
def test_a_schema_is_compiled_alone(gbnf: Gbnf, schema: Path, more: list[object]) -> None:
    alone: list[list[object]] = [[schema], ["--schema", schema]]
    for arguments in alone:
        result = gbnf("compile", *arguments, *more)
        assert result.code == ExitCode.USAGE
        assert "alone" in result.err


def test_the_schema_of_an_invalid_file_is_named(gbnf: Gbnf, schema: Path) -> None:
    schema.write_text('{"properties": {"a": {"type": "integr"}}}')
    result = gbnf("compile", schema)
    assert result.code == ExitCode.INPUT
    assert f"{schema}: schema at '/properties/a/type'" in result.err


def test_a_list_of_tools_is_not_a_schema(gbnf: Gbnf, tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text('{"tools": [{"name": "search", "inputSchema": {"type": "object"}}]}')
    result = gbnf("compile", "--schema", path)
    assert result.code == ExitCode.INPUT
    assert f"{path}: it is a list of tools, not a JSON Schema. Use --tools." in result.err
    assert gbnf("compile", "--tools", path).code == ExitCode.SUCCESS
