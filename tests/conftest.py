"""Settings for every test: how hard Hypothesis tries, and what of its surroundings counts."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from gbnf.extras import PACKAGES
from support.folders import remove

# What somebody has set for himself has no part in a test: keys and zones, proxies, and how a terminal looks,
# which CI systems set too.
_KEPT = {
    "GBNF_LLAMA_CPP_SOURCE",
    "GBNF_MCP_SERVERS",
    "GBNF_SHARED",
    "GBNF_DECODING_RUNS",
    "GBNF_LLAMA_SERVER",
    "GBNF_CACHE",
}
_PERSONAL = {
    "LLAMA_API_KEY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "COLUMNS", "LINES", "TERMINAL_WIDTH",
    "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
}  # fmt: skip
for _name in [*os.environ]:
    if _name.upper() in _PERSONAL or (_name.startswith("GBNF_") and _name not in _KEPT):
        del os.environ[_name]
os.environ["GBNF_COMPILE_CACHE"] = "0"  # what an earlier run compiled has no part in a test either
if find_spec("psutil"):
    from support.leftovers import end_with_this_process

    _END = end_with_this_process()  # its standard input closes with this process

# A shell starts what runs in its background with SIGINT ignored, which is inherited; tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The engine and the schemas are slow to build beside what Hypothesis expects, and never by the clock.
_RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def _register(name: str, max_examples: int, **more: Any) -> None:
    settings.register_profile(
        name, max_examples=max_examples, deadline=None, suppress_health_check=_RELAXED, **more
    )


# The same examples at every run: the thorough profile looks for what is new, not chance in a check.
_register("quick", 10, derandomize=True)
_register("full", 50, derandomize=True)
_register("thorough", 2000, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile of Hypothesis: `quick` for `-m quick`, else `full`, or what the environment names."""
    usual = "quick" if config.option.markexpr == "quick" else "full"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would visit all modules and tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_SLOW_MODULE = re.compile(r"^pytestmark = .*pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out of `-m quick` what need not be imported for it: foreign suites and clients, slow modules."""
    if config.option.markexpr != "quick":
        return None
    is_slow = collection_path.suffix == ".py" and _SLOW_MODULE.search(collection_path.read_text("utf-8"))
    return bool(is_slow) or collection_path.name in ("external", "clients") or None


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test as quick that is not marked as slow."""
    for item in items:
        if item.get_closest_marker("slow") is None:
            item.add_marker("quick")


_ABSENT = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip the modules that import a package of an extra which is not installed, as in the core alone."""
    report = yield
    absent = _ABSENT.search(str(report.longrepr)) if report.outcome == "failed" else None
    if absent and absent[1] in PACKAGES and find_spec(absent[1]) is None:
        report.outcome = "skipped"
        reason = f"Skipped: needs {absent[1]}: the extra {PACKAGES[absent[1]]}"
        report.longrepr = (report.nodeid, 0, reason)
    return report


@pytest.fixture
def deep_path(tmp_path: Path) -> Iterator[Path]:
    """`tmp_path`, removed after the test, for tests that make folders which pytest cannot remove."""
    yield tmp_path
    remove(tmp_path)
