"""The bench of drafts makes a model generate the expected calls, however it decodes."""

from __future__ import annotations

import pytest

from drafts import jobs, measure, summary
from gbnf import compile_pool, load_manifests
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.folders import manifests_path


@pytest.mark.slow
def test_all_ways_of_decoding_generate_the_expected_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeModel, "is_small", False)  # it would not be drafted for
    grammar = compile_pool(load_manifests(manifests_path()))
    wanted = list(jobs("representative", grammar, "minimal"))
    assert len(wanted) > 3
    with InProcess(model_path(), threads=1) as backend:
        results = [result for job in wanted[:4] for result in measure(backend, grammar, job, 1)]
    assert all(result.is_same for result in results)
    rows = {row: [each for each in results if each.row == row] for row in {each.row for each in results}}
    steps = {row: sum(each.steps for each in mine) for row, mine in rows.items()}
    assert steps["one by one"] > steps["forced text"] > steps["forced and drafts"]
    assert sum(each.accepted for each in rows["forced and drafts"]) > 0
    assert len(summary(results, "").rows) == 3
