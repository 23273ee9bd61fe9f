"""What the OnionBalance of a lab is told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Timers(BaseModel):
    """OnionBalance's own times, in seconds. The defaults are a sixtieth of those that it comes with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: float = Field(0.75, gt=0)
    """INITIAL_CALLBACK_DELAY, 45 s: between the first fetch and the first upload, and before the loop begins."""
    fetch: float = Field(10.0, gt=0)
    """FETCH_DESCRIPTOR_FREQUENCY, 600 s: between looks at the instances' descriptors."""
    check: float = Field(5.0, gt=0)
    """PUBLISH_DESCRIPTOR_CHECK_FREQUENCY, 300 s: between looks at whether to upload."""
    lifetime: float = Field(60.0, gt=0)
    """FRONTEND_DESCRIPTOR_LIFETIME, 3600 s: oldest that the service's descriptor gets."""
    too_old: float = Field(60.0, gt=0)
    """INSTANCE_DESCRIPTOR_TOO_OLD, 3600 s: without a descriptor for so long, an instance counts as gone."""


class BalancerSettings(BaseModel):
    """All of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    """The service's secret key, in tor's format."""
    instances: tuple[str, ...]
    """Onion addresses of the instances."""
    control: str
    """Control socket of the tor that fetches and uploads."""
    folder: str
    """For the configuration, the log, ``events.jsonl`` and ``status.json``."""
    spread: int = Field(3, ge=1)
    """HSDirs a replica; OnionBalance takes it for a constant (4), tor goes by the consensus."""
    timers: Timers = Timers()
