"""What a link does to packets, from what the topology says of it."""

from __future__ import annotations

from typing import Any

from testbed.errors import Path
from testbed.model.topology import AttachmentSpec, ImpairmentSpec, LinkSpec
from testbed.plan.types import Impairment


def impairment_of(*specs: ImpairmentSpec | None) -> Impairment:
    """The impairment of one direction: of each property the value of the last spec that sets it."""
    names = {"delay": "delay_us", "jitter": "jitter_us", "rate": "rate_bps"}
    values: dict[str, Any] = {}
    for spec in specs:
        for key in ImpairmentSpec.model_fields if spec is not None else ():
            value = getattr(spec, key, None)
            if value is not None:
                values[names.get(key, key)] = value
    return Impairment(**values)


def burst_is_possible(impairment: Impairment) -> bool:
    """Whether a Gilbert model has that loss and mean burst: at least one packet passes between two bursts."""
    loss, burst = impairment.loss, impairment.loss_burst or 1.0
    return loss == 1 or 0 < loss <= burst / (1 + burst)


def jitter_place(spec: AttachmentSpec | LinkSpec | None, path: Path) -> Path:
    """The mapping that sets the jitter of a link: ``spec`` at ``path``, one of its directions, or the defaults."""
    if spec is not None:
        for key, part in (("forward", spec.forward), ("backward", spec.backward)):
            if part is not None and part.jitter is not None:
                return (*path, key)
        if spec.jitter is not None or spec.delay is not None:
            return path
    return ("defaults", "link")
