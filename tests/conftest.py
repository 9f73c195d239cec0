"""Settings for every test: how hard Hypothesis tries."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The engine and the schemas are slow to build beside what Hypothesis expects, and never by the clock.
_RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
# The same examples at every run: what is new is looked for by the thorough profile, not by chance in a check.
settings.register_profile(
    "quick", max_examples=100, deadline=None, derandomize=True, suppress_health_check=_RELAXED
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=_RELAXED, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
