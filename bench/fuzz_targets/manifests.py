"""Manifests: TOML of any kind in a file."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import Target, edited, edits
from fuzz_targets.hostile import EXTREMES, KEYWORDS, WORDS
from gbnf import compile_pool, filter_pool, load_manifests, validate_call
from gbnf.errors import GbnfError
from gbnf.prompts.messages import system_prompt
from gbnf.tools.complexity import args_complexity
from gbnf_server.system.folders import manifests_path
from support.oracle import engine
from support.schemas import SCHEMAS

_MANIFEST_PIECES = [
    "\n", "[args]\n", "[run]\n", "[offer]\n", '"', "'''", "{", "}", "[", "]", "=", ".", "true", "1e400",
    "inf", "nan", "2024-01-01", "\x00", "\ud800", "\ufeff", "\\u0000", '\\"', "effect", "= -1", "= []",
    "= {}", '["a", 1]', '"$ref" = "#"\n', '"$ref" = "#/x"\n', 'type = ["object", "null"]\n', "required = 1\n",
    "requires_one_of = [[]]\n", 'fills = "x"\n', "runtime_resolved = 1\n", "description.en = 1\n", "#",
]  # fmt: skip
_MANIFEST_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | EXTREMES | WORDS | st.just({}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "a", "en"]), inner, max_size=4)
    ),
    max_leaves=8,
)
_MANIFEST_KEYS = [
    "name", "version", "description", "affinity", "args", "run", "offer", "offer.markers", "run.timeout_s",
    "args.properties.a", "args.required", "args.requires_one_of", "offer.role", "run.effect", "x",
    "args.$defs", "run.env", "run.memory_mb", "offer.not_in", "description.it", "args.properties.from_step",
]  # fmt: skip
_MANIFEST_CASES = st.fixed_dictionaries(
    {
        "of": st.sampled_from(["", "find_files", "send_messages", "create_events"]),
        "more": st.dictionaries(st.sampled_from(_MANIFEST_KEYS), _MANIFEST_VALUES | SCHEMAS, max_size=2),
        "edits": st.just([]) | edits(_MANIFEST_PIECES),
        "bytes": st.integers(0, 7).flatmap(lambda choice: st.just(b"") if choice else st.binary(max_size=12)),
    }
)


def check_manifest(case: Mapping[str, Any]) -> str:
    """A file is loaded, and can be shown, chosen and compiled; or it is an error of the tree."""
    text = 'name = "t"\ndescription = "A tool."\n[args]\ntype = "object"\n'
    if case["of"]:
        text = (manifests_path() / case["of"] / "manifest.toml").read_text()
    more = "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in case["more"].items())
    text = edited(more + text, case["edits"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "manifest.toml")
        file.write_bytes(case["bytes"] + text.encode(errors="surrogatepass"))
        try:
            pool = load_manifests(folder)
        except GbnfError as error:
            str(error).encode()
            return "error"
    for style in ("minimal", "full", "verbose", "skeleton", "placeholder"):
        system_prompt(pool, style=style, language="it").encode()
    filter_pool(pool, "find a file and send it")
    args_complexity(pool[0].args)
    validate_call({"name": pool[0].name, "arguments": {}}, pool)
    try:
        grammar = compile_pool(pool)
    except GbnfError:
        return "loaded"
    engine().check(grammar)
    return "compiled"


def _toml_key(key: str) -> str:
    return ".".join(part if part.isidentifier() else json.dumps(part) for part in key.split("."))


def _toml(value: Any) -> str:
    match value:
        case dict():
            pairs = (f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return json.dumps(value)


MANIFEST = Target("manifest", _MANIFEST_CASES, check_manifest)
