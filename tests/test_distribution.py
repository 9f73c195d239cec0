"""What is beside the code: the lock file, and the files for containers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]  # of huggingface_hub

from gbnf_server.cli.app import app
from support.clients import gateway_process
from support.oracle import CHECKOUT


def toml(name: str) -> Any:
    return tomllib.loads((CHECKOUT / name).read_text("utf-8"))


def requirement(text: str) -> tuple[str, str]:
    """The name of what is required, and the versions without spaces."""
    name, versions = re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;.*)?", text).groups()  # type: ignore[union-attr]
    return name.lower().replace("_", "-"), ",".join(sorted(versions.replace(" ", "").split(",")))


def test_the_lock_file_has_what_pyproject_requires_from_the_public_index_only() -> None:
    text = (CHECKOUT / "uv.lock").read_text("utf-8")
    assert set(re.findall(r"\w+://[^/\"]*", text)) == {"https://pypi.org", "https://files.pythonhosted.org"}
    assert "file:" not in text
    (own,) = (package for package in toml("uv.lock")["package"] if package["name"] == "gbnf-toolkit")
    project = toml("pyproject.toml")["project"]
    required = [project["dependencies"], *project["optional-dependencies"].values()]
    expected = {requirement(each) for group in required for each in group}
    locked = {
        (each["name"], ",".join(sorted(each.get("specifier", "").split(","))))
        for each in own["metadata"]["requires-dist"]
    }
    own_extras = {("gbnf-toolkit", "")}
    assert locked - own_extras == expected - own_extras, "run: uv lock"


def test_both_scripts_are_the_command() -> None:
    scripts = toml("pyproject.toml")["project"]["scripts"]
    assert scripts == dict.fromkeys(("gbnf", "gbnf-toolkit"), "gbnf_server.cli:main")


def test_the_changelog_begins_with_the_version() -> None:
    headings = re.findall(r"^## (.*)$", (CHECKOUT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert toml("pyproject.toml")["project"]["version"] in re.split(r"[ ()]", headings[0])


def compose() -> Any:
    return yaml.safe_load((CHECKOUT / "compose.yaml").read_text("utf-8"))


def dockerfile(instruction: str) -> Any:
    """The JSON list of an instruction."""
    text = (CHECKOUT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    (found,) = re.findall(rf"^{instruction}.*?(\[.*\])", text, re.MULTILINE)
    return json.loads(found)


def test_no_container_runs_as_root_or_is_reached_without_a_key() -> None:
    assert re.search(r"^USER 10001$", (CHECKOUT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    services = compose()["services"]
    for service in services.values():
        assert service["user"] == "10001:10001"
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert "ports" not in services["llama"]
    assert "GBNF_API_KEYS" in services["gateway"]["environment"]


def test_the_options_of_the_container_exist() -> None:
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]  # a group
    known = {option for parameter in command.params for option in parameter.opts}
    given: list[str] = dockerfile("ENTRYPOINT") + compose()["services"]["gateway"]["command"]
    assert given[:2] == ["gbnf", "serve"]
    assert {option for option in given if option.startswith("--")} <= known


@pytest.mark.slow
def test_the_health_check_of_the_image_asks_a_running_gateway(tmp_path: Path) -> None:
    program, *arguments = dockerfile("HEALTHCHECK")
    assert program == "python"
    with gateway_process(tmp_path) as url:
        check = [sys.executable, *(each.replace("http://127.0.0.1:8000", url) for each in arguments)]
        assert url in check[-1]
        assert subprocess.run(check, check=False, timeout=60).returncode == 0
    assert subprocess.run(check, check=False, timeout=60, stderr=subprocess.DEVNULL).returncode == 1
