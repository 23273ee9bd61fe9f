"""Faults leave the host as it was: those that are healed, and those that go with their lab."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.faults.base import make_fault
from testbed.faults.faults import own_faults
from testbed.lab import cgroups, ownership, snapshot
from testbed.lab.up import up
from testbed.plan.types import Plan

NAP = {"services": {"nap": {"command": ["sleep", "300"]}}}
WEB = {"services": {"web": {"command": ["python3", "-m", "http.server", "8080"]}}}
WANTED: list[tuple[str, dict[str, Any]]] = [
    ("cpu-throttle", {"node": "a", "share": "50%"}),
    ("memory-limit", {"node": "a", "limit": "64MiB"}),
    ("clock-skew", {"node": "a", "skew": "+1h"}),
    ("link-down", {"link": ["b", "core"]}),
    ("degrade", {"link": ["a", "core"], "delay": "5ms"}),
    ("partition", {"groups": [["a"], ["b"]]}),
    ("link-flap", {"link": ["web", "core"], "period": "60s", "count": 9, "down": "100ms"}),
    ("pause", {"node": "b"}),
]


@pytest.mark.root
@pytest.mark.parametrize("healed", [True, False])
def test_c9_host_is_left_alone(state: Path, make_plan: Callable[..., Plan], healed: bool) -> None:
    """C9: the host's network, control groups, sysctls, mounts and processes are the same afterwards."""
    plan = make_plan(nodes={"a": NAP, "b": NAP, "web": WEB}, links=[["a", "core"], ["b", "core"], ["web", "core"]])
    before = snapshot.take()
    lab = up(plan, f"host-{healed}-{os.getpid()}".lower())
    faults = own_faults(lab)
    for kind, settings in WANTED:
        faults.inject(make_fault(kind, settings))
    during = snapshot.difference(before, snapshot.take(), ours=[lab.id])
    assert any(line.startswith("cgroups: new") and f"tb-{lab.id}-cpu-throttle" in line for line in during)
    assert not any(line.startswith(("links", "addresses", "routes", "rules", "sysctls", "nft")) for line in during)
    if healed:
        faults.heal_all()
        mine = [
            line for line in snapshot.difference(before, snapshot.take(), ours=[lab.id]) if line.startswith("cgroups")
        ]
        assert not [line for line in mine if lab.id in line]
    lab.down()
    assert snapshot.difference(before, snapshot.take(), ours=[lab.id]) == []
    assert ownership.processes(lab.id) == {}


LEGACY = "cgroup {root} cgroup rw,cpu,cpuacct 0 0\ncgroup2 {unified} cgroup2 rw 0 0\n"
UNIFIED = "cgroup2 {unified} cgroup2 rw,nsdelegate 0 0\n"


def test_layouts_of_control_groups(tmp_path: Path) -> None:
    """The controller's own hierarchy where it has one, the unified one elsewhere."""
    root, unified = tmp_path / "cpu", tmp_path / "unified"
    unified.mkdir()
    (unified / "cgroup.controllers").write_text("memory pids cpu\n")
    found = cgroups.hierarchy("cpu", LEGACY.format(root=root, unified=unified))
    assert (found.version, found.root) == (1, root)
    found = cgroups.hierarchy("memory", LEGACY.format(root=root, unified=unified))
    assert (found.version, found.root) == (2, unified)
    found = cgroups.hierarchy("cpu", UNIFIED.format(unified=unified))
    assert (found.version, found.root) == (2, unified)
    assert found.own("abc", "cpu-throttle-1") == unified / "tb-abc-cpu-throttle-1"
    with pytest.raises(TestbedError, match="no control groups with the controller `cpu`"):
        cgroups.hierarchy("cpu", "tmpfs /tmp tmpfs rw 0 0\n")


@pytest.mark.root
def test_controller_that_is_not_handed_down() -> None:
    """It is said what would hand it down, and no group is left."""
    mounts = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    unified = [Path(point) for _, point, kind, *_ in mounts if kind == "cgroup2"]
    without = [root for root in unified if "cpu" not in (root / "cgroup.subtree_control").read_text().split()]
    if not without:
        pytest.skip("every unified hierarchy of this machine hands down `cpu`")
    place = cgroups.Hierarchy("cpu", 2, without[0])
    group = place.own("0badcafe", "x-1")
    with pytest.raises(TestbedError, match="does not hand down `cpu`") as info:
        place.make(group)
    assert info.value.remedy == f"echo +cpu > {without[0]}/cgroup.subtree_control"
    assert not group.exists()
