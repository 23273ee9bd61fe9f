"""What users set for one direction of a link, in their units. The fields are those of ``plan.types.Impairment``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError, nearest

if TYPE_CHECKING:
    from testbed.plan.types import Impairment

LONGEST_US = 3_600_000_000
"""One hour: more is a mistake in units."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One direction of a link. All zero: frames pass as they are."""

    delay_us: int = 0
    jitter_us: int = 0
    loss: float = 0.0
    loss_burst: float | None = None
    duplicate: float = 0.0
    corrupt: float = 0.0
    reorder: bool = False
    rate_bps: int | None = None
    """Only the size of the queue follows from it here; a token bucket at the TAP's egress enforces it."""

    def __post_init__(self) -> None:
        """Refuse what no link can do; TestbedError says which property and why."""
        _whole("delay_us", self.delay_us, 0, LONGEST_US)
        _whole("jitter_us", self.jitter_us, 0, LONGEST_US)
        for name in ("loss", "duplicate", "corrupt"):
            _number(name, getattr(self, name), 0, 1)
        if not isinstance(self.reorder, bool):
            raise _refused("reorder", self.reorder, "true or false")
        if self.rate_bps is not None:
            _whole("rate_bps", self.rate_bps, 1, 10**13)
        if self.loss_burst is not None:
            _number("loss_burst", self.loss_burst, 1, 1e6)
            shortest = self.loss / (1 - self.loss) if self.loss < 1 else 1
            if self.loss_burst < shortest:
                raise TestbedError(
                    f"a loss of {self.loss:g} in bursts of {self.loss_burst:g} packets is impossible: at least one "
                    "packet passes between two bursts",
                    remedy=f"bursts of at least {shortest:.3g} packets",
                )

    def changed(self, change: Mapping[str, Any]) -> Settings:
        """A copy with some properties changed; TestbedError for unknown names and impossible values."""
        known = [field.name for field in fields(self)]
        for name in change:
            if name not in known:
                remedy = nearest(name, known, f"properties: {', '.join(known)}")
                raise TestbedError(f"a link has no property {name!r}", remedy=remedy)
        return replace(self, **change)

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)


def settings_of(impairment: Impairment) -> Settings:
    """The settings that a plan gives to one direction of a link."""
    return Settings(**{field.name: getattr(impairment, field.name) for field in fields(Settings)})


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _refused(name, value, f"a whole number from {least} to {most}")


def _number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise _refused(name, value, f"a number from {least:g} to {most:g}")


def _refused(name: str, value: object, wanted: str) -> TestbedError:
    return TestbedError(f"{name} cannot be {value!r}", remedy=f"give {wanted}")


NONE = Settings()
