"""Profiles are found again by the model that they were measured on, and say what is wrong with them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.compiler.layout import Whitespace
from gbnf.requests.evidence import EvidenceUse
from gbnf.tools import Tool
from gbnf_bench.profile_files import save
from gbnf_server.planner.options import CallFormat
from gbnf_server.planner.profiles import ModelKey, Profile, find, load, tools_key
from gbnf_server.system.errors import SetupError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
KEYS = st.builds(ModelKey, TEXTS, st.none() | st.integers(0, 2**40))
SETTING_TYPES = st.fixed_dictionaries(
    {},
    optional={
        "call_format": st.sampled_from(get_args(CallFormat)),
        "whitespace": st.sampled_from(get_args(Whitespace)),
        "evidence": st.sampled_from(get_args(EvidenceUse)),
        "reasoning": st.sampled_from(["off", "field", "free"]),
        "reasoning_budget": st.integers(1, 999),
        "prompt_style": st.sampled_from(["full", "minimal", "verbose"]),
    },
)
MEASURED = st.dictionaries(
    st.sampled_from(["at", "suites", "runs"]), TEXTS | st.integers(0, 99) | st.floats(0, 1)
)
PROFILES = st.builds(Profile, KEYS, st.sampled_from(["", "a1", "b2"]), TEXTS, SETTING_TYPES, MEASURED)


@given(PROFILES, PROFILES)
def test_what_is_kept_is_found_again(first: Profile, second: Profile) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "profiles"
        assert not find(first.model, folder)
        paths = [save(each, folder) for each in (first, second)]
        assert load(paths[1]) == second
        found = find(second.model, folder)
        assert (second, paths[1]) in found
        assert all(profile.model.matches(second.model) for profile, _ in found)
        if (first.model, first.tools) != (second.model, second.tools):
            assert load(paths[0]) == first
        assert ((first, paths[0]) in found) == (load(paths[0]) == first and first.model.matches(second.model))
        assert save(second, folder) == paths[1]
        assert len(list(folder.iterdir())) == len(set(paths))


@pytest.mark.parametrize(
    ("one", "other", "matches"),
    [
        (ModelKey("a.gguf", 5), ModelKey("a.gguf", 5), True),
        (ModelKey("a.gguf", 5), ModelKey("a.gguf"), True),  # a server tells no size
        (ModelKey("a.gguf", 5), ModelKey("a.gguf", 6), False),
        (ModelKey("a.gguf"), ModelKey("b.gguf"), False),
    ],
)
def test_a_model_is_its_name_and_its_size(one: ModelKey, other: ModelKey, matches: bool) -> None:
    assert one.matches(other) == other.matches(one) == matches


def test_a_set_of_tools_is_what_a_model_sees_of_them() -> None:
    one, two = Tool("one"), Tool("two", args={"type": "object", "properties": {"a": {"type": "string"}}})
    assert tools_key([one, two]) == tools_key([two, one])
    assert tools_key([one]) == tools_key([replace(one, path=Path("elsewhere/manifest.toml"), version="2")])
    assert len({tools_key(each) for each in ([], [one], [two], [one, two])}) == 4
    assert tools_key([one]) != tools_key([replace(one, descriptions={"en": "Another."})])


HEAD = "strategy = 'x'\n[model]\nname = 'm'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read"),
        ("strategy = ", "invalid TOML"),
        ("strategy = 'x'", "are required"),
        (f"{HEAD}bytes = 'big'\n[settings]", "bytes is 'big'"),
        (f"{HEAD}[settings]\nunion = false", "union is unknown"),
        (f"{HEAD}[settings]\ncall_format = 1", "call_format = 1 is none of"),
        (f"{HEAD}[settings]\nreasoning_budget = 0", "reasoning_budget = 0 is not"),
        (f"{HEAD}[settings]\nreasoning = 'banana'", "'banana' is none of off, field"),
    ],
)
def test_an_invalid_profile_is_an_error(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "m.toml"
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    with pytest.raises(SetupError, match=said) as broken:
        find(ModelKey("m"), tmp_path)
    assert "m.toml" in str(broken.value)
    assert "--no-profile" in str(broken.value)


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="can't be written"):
        save(Profile(ModelKey("m"), "", "soft", {}), tmp_path / "file")
