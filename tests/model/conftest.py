"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("testbed", deadline=None)  # a slow machine is no failure
settings.load_profile("testbed")
