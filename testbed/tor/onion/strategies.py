"""The ways in which the instances of an onion service are published: what each asks of an instance, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from testbed.errors import TestbedError
from testbed.tor.protocol.keys import Ed25519Key, hidden_service_files, onion_address, onion_key

MAX_POINTS = 20
"""Introduction points in a descriptor (tor: HS_CONFIG_V3_MAX_INTRO_POINTS)."""
MIN_POINTS = 3
"""Fewest introduction points of a service that tor allows, and as many as it makes by itself."""
POINTS_EACH = 2
"""Of each instance in a mixed descriptor, as OnionBalance has it."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One word of ``publish``."""

    name: str
    meaning: str
    own_keys: bool = False
    """Instances have keys and addresses of their own, and answer for the service's as well (OnionBalance instances)."""
    uploads: bool = True
    """Each instance uploads its own descriptor."""
    single: bool = False
    """A descriptor is one instance's, and somebody else uploads it."""
    mixed: bool = False
    """A descriptor has introduction points of several instances."""
    every: bool = False
    """It is the same on all HSDirs."""

    def limit(self, hsdirs: int) -> int | None:
        """Most instances with so many HSDirs; None: any number."""
        if self.single:
            return hsdirs
        if self.mixed:
            return MAX_POINTS // POINTS_EACH * (1 if self.every else hsdirs)
        return None


STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("naive", "each instance starts and publishes by itself, `stagger` after the one before"),
        Strategy("simultaneous", "all are released together"),
        Strategy("late", "as naive, but one instance starts `late_by` after the others"),
        Strategy("distributor", "each HSDir gets one instance's descriptor, evenly", uploads=False, single=True),
        Strategy("onionbalance", "OnionBalance mixes their introduction points", own_keys=True, mixed=True, every=True),
        Strategy("hybrid", "each HSDir gets a mix of other instances", own_keys=True, uploads=False, mixed=True),
    )
}
"""By name."""


def find(name: str) -> Strategy:
    """The strategy called ``name``; TestbedError names the nearest."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    near = get_close_matches(name.lower(), STRATEGIES, 1)
    remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(STRATEGIES)}"
    raise TestbedError(f"{name!r} is no way to publish", remedy=remedy)


def number_problem(strategy: Strategy, instances: int, hsdirs: int) -> tuple[str, str]:
    """What is wrong with this number of instances, and the remedy; both empty if nothing is."""
    limit = strategy.limit(hsdirs)
    if limit is not None and instances > limit:
        why = f"{hsdirs} HSDirs, a descriptor of one instance each"
        if strategy.mixed:
            many = "one descriptor" if strategy.every else f"{hsdirs} descriptors"
            why = f"{many} of {MAX_POINTS} introduction points, {POINTS_EACH} of each instance"
        remedy = "use fewer" if strategy.name == "hybrid" else "use fewer, or `publish: hybrid`"
        return f"`{strategy.name}` serves at most {limit} instances ({why}), not {instances}", remedy
    if strategy.name == "late" and instances < 2:
        return "`late` needs two instances at least, one of which starts after the others", "use more"
    return "", ""


def instance_key(seed: int, instance: str) -> Ed25519Key:
    """An instance's own identity key, where it has one."""
    return Ed25519Key.derive(seed, f"onion instance {instance}")


def key_of(strategy: Strategy, seed: int, service: str, instance: str) -> Ed25519Key:
    """The key that an instance's tor has: the service's, or its own."""
    return instance_key(seed, instance) if strategy.own_keys else onion_key(seed, service)


def service_files(strategy: Strategy, seed: int, service: str, instance: str) -> dict[str, bytes]:
    """The files of an instance's HiddenServiceDir, by name."""
    files = dict(hidden_service_files(key_of(strategy, seed, service, instance)))
    if strategy.own_keys:
        master = onion_address(onion_key(seed, service).public)
        files["ob_config"] = f"MasterOnionAddress {master}\n".encode()
    return files


def service_options(strategy: Strategy, *, single_onion: bool, points: int | None) -> list[tuple[str, str]]:
    """Torrc options of an instance beside ``torrc.instance``; those of the service come first, as tor wants them."""
    options = []
    if points is not None:
        options.append(("HiddenServiceNumIntroductionPoints", str(points)))
    if strategy.own_keys:
        options.append(("HiddenServiceOnionbalanceInstance", "1"))
    if not strategy.uploads:
        options.append(("PublishHidServDescriptors", "0"))
    if single_onion:
        options += [("HiddenServiceSingleHopMode", "1"), ("HiddenServiceNonAnonymousMode", "1")]
    return options
