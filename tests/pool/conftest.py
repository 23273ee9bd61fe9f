"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("testbed", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # slow is no failure
settings.load_profile("testbed")
