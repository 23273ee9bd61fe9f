"""What a link does to packets, from what the topology says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from testbed.errors import Path, Problem
from testbed.model.quantities import format_duration_us
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


def impossible(impairments: Iterable[Impairment], path: Path, *, jitter_at: Path) -> Iterator[Problem]:
    """What no link can do, of the impairments of its two directions.

    ``path`` is the link's; ``jitter_at`` is where its jitter is set, which is blamed for both directions at once.
    """
    for impairment in impairments:
        if impairment.loss_burst is not None and not _burst_is_possible(impairment):
            message = (
                f"losses in bursts of {impairment.loss_burst:g} packets do not fit a loss of {impairment.loss:.1%}"
            )
            remedy = "between two bursts one packet passes: lose less (but some), or make the bursts longer"
            yield Problem((*path, "loss_burst"), message, remedy)
        if impairment.jitter_us > impairment.delay_us:
            delay = f"about a delay of {format_duration_us(impairment.delay_us)}" if impairment.delay_us else "alone"
            message = f"a jitter of {format_duration_us(impairment.jitter_us)} {delay} would need negative delays"
            yield Problem((*jitter_at, "jitter"), message, "make `delay` at least as long as `jitter`")
            return


def _burst_is_possible(impairment: Impairment) -> bool:
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
