"""Which instance's descriptor goes on which HSDir: as evenly as possible, and with as few changes as possible. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def place(
    hsdirs: Sequence[str],
    instances: Sequence[str],
    previous: Mapping[str, str] | None = None,
    held: Mapping[str, float] | None = None,
    *,
    rotate: bool = False,
) -> dict[str, str]:
    """An instance for each HSDir, in the HSDirs' order.

    Each instance has as many HSDirs as any other, or one more where it does not come out even. ``previous`` is kept as
    far as that allows: no even placement changes fewer HSDirs. ``held`` is how long each instance has held HSDirs so
    far, summed over them; with ``rotate`` those that had least get the extra ones, even where that changes more.

    From nothing the instances follow each other round the ring, so that one with several HSDirs has them in both
    replicas. Without instances there is no placement.
    """
    if not instances:
        return {}
    before = {hsdir: name for hsdir, name in (previous or {}).items() if hsdir in hsdirs and name in instances}
    wanted = _quotas(len(hsdirs), instances, Counter(before.values()), held or {}, rotate=rotate)
    kept: Counter[str] = Counter()
    placed: dict[str, str] = {}
    for hsdir in hsdirs:
        name = before.get(hsdir)
        if name is not None and kept[name] < wanted[name]:
            placed[hsdir] = name
            kept[name] += 1
    for hsdir in hsdirs:
        if hsdir not in placed:
            name = max(instances, key=lambda item: wanted[item] - kept[item])  # the first of equals
            placed[hsdir] = name
            kept[name] += 1
    return {hsdir: placed[hsdir] for hsdir in hsdirs}


def _quotas(
    places: int, instances: Sequence[str], having: Mapping[str, int], held: Mapping[str, float], *, rotate: bool
) -> dict[str, int]:
    """How many HSDirs each instance gets: the same for all, and one more for some."""
    share, extra = divmod(places, len(instances))

    def claim(name: str) -> tuple[float, ...]:
        keeps = 0 if having.get(name, 0) > share else 1
        had = held.get(name, 0.0)
        return (had, keeps) if rotate else (keeps, had)

    first = sorted(instances, key=claim)[:extra]
    return {name: share + (name in first) for name in instances}


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """HSDirs that hold something else after than before, or that are new."""
    return [hsdir for hsdir, held in after.items() if before.get(hsdir) != held]
