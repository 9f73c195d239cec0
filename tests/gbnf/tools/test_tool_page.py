"""The examples of the guide on tools run, one after the other, and print what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "tools.md"


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psutil")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)  # where its annotations are looked up
    page = PAGE.read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 6
    space: dict[str, Any] = vars(module)
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), space)
    [printed] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert capsys.readouterr().out == printed
