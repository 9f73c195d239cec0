"""Every exception of the server and the bench is in the tree that `gbnf_server.system.errors` draws."""

import inspect
import pickle
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import pytest

import gbnf_bench
import gbnf_server
from gbnf.errors import GbnfError
from gbnf_server.system import errors

RUN_AS_FILES = {
    *("gbnf_server.__main__", "gbnf_server.executors.child_process"),
    "gbnf_server.llama.prebuilt_server",
}
NEEDS = {"gbnf_server.backends.ray_workers": "ray", "gbnf_server.llm_plugin": "llm"}


def exceptions() -> Iterator[type[BaseException]]:
    server = pkgutil.walk_packages(gbnf_server.__path__, "gbnf_server.")
    bench = pkgutil.walk_packages(gbnf_bench.__path__, "gbnf_bench.")
    for module in (*server, *bench):
        is_absent = module.name in NEEDS and find_spec(NEEDS[module.name]) is None
        if module.name not in RUN_AS_FILES and not is_absent:
            for name, value in inspect.getmembers(import_module(module.name), inspect.isclass):
                own = value.__module__.startswith(("gbnf_server.", "gbnf_bench."))
                if own and issubclass(value, BaseException) and not name.startswith("_"):
                    yield value


@pytest.mark.slow  # it imports every module
def test_the_tree_has_every_exception_below_its_parent() -> None:
    tree, signals = (errors.__doc__ or "").split("Outside of the tree")
    drawn: dict[str, str] = {}
    parents: list[str] = []
    for branch, name in re.findall(r"^    ([│├└─ ]*)(\w+)", tree, re.MULTILINE):
        parents[len(branch) // 4 :] = [name]
        drawn[name] = parents[-2] if len(parents) > 1 else "GbnfError"
    found = set(exceptions())
    outside = {each.__name__ for each in found if not issubclass(each, errors.GbnfServerError)}
    assert outside == set(re.findall(r"`(\w+)`", signals))
    inside = {
        each.__name__: each.__base__.__name__
        for each in found
        if each.__base__ and each.__name__ not in outside
    }
    assert drawn == inside


@pytest.mark.slow
def test_every_error_can_be_sent_to_another_process() -> None:
    for kind in {each for each in exceptions() if issubclass(each, GbnfError)}:
        error = kind.__new__(kind)
        error.args = ("what is wrong",)
        vars(error)["status"] = 404
        found = pickle.loads(pickle.dumps(error))
        assert (type(found), str(found), vars(found)) == (kind, "what is wrong", {"status": 404})
