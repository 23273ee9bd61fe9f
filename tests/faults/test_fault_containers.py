"""Faults of nodes that are containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fault_world import BUSY, CLOCK, Watch
from waiting import await_true

from testbed.errors import TestbedError
from testbed.faults.base import FaultError
from testbed.faults.clock_skew import ClockSkew
from testbed.faults.cpu_throttle import CpuThrottle
from testbed.faults.disk_full import DiskFull
from testbed.faults.faults import Faults
from testbed.faults.kill import Kill
from testbed.faults.memory_limit import MemoryLimit
from testbed.faults.one_way_cut import OneWayCut
from testbed.faults.partition import Partition
from testbed.faults.pause import Pause
from testbed.faults.recreate import Recreate
from testbed.faults.tools import programs
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.model.topology import Topology
from testbed.plan.expand import expand
from testbed.runtime.base import start_time

pytestmark = [pytest.mark.root, pytest.mark.engine]


@pytest.fixture(scope="module")
def shared_lab(module_state: Path) -> Lab:
    """A container with two links, one of them limited, beside a plain node; in a state folder of its own."""
    services = {"clock": {"command": ["python3", "-c", CLOCK]}, "busy": {"command": ["python3", "-c", BUSY]}}
    plan, problems = expand(
        Topology.model_validate(
            {
                "name": "boxes",
                "nodes": {"a": {"runtime": "container", "services": services}, "b": None, "sw": {"kind": "switch"}},
                "links": [{"endpoints": ["a", "core"], "rate": "50mbit"}, ["b", "core"], ["a", "sw"], ["sw", "core"]],
            }
        )
    )
    assert problems == []
    return up(plan, f"boxes-{os.getpid()}", owner=os.getpid())


def test_recreate(faults: Faults, lab: Lab, watch: Watch) -> None:
    """Another container with the same links at both ends; its programs run, its temporary files are gone, and traffic
    of others through the same router loses nothing."""
    first = programs.first_process(lab, "a")
    Path(f"/proc/{first}/root/tmp/old").touch()
    before = {node: watch.routes(node) for node in ("a", "core", "sw")}
    rate = watch.inside("a", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert "rate 50Mbit" in rate
    address = str(lab.plan.links_of("sw")[1].end("core").addresses[0].ip)
    core = str(lab.plan.links_of("b")[0].end("core").addresses[0].ip)
    with watch.no_loss("b", core):
        faults.inject(Recreate(node="a"))
    assert faults.entries() == []
    again = programs.first_process(lab, "a")
    assert again != first
    assert start_time(first) is None
    assert not Path(f"/proc/{again}/root/tmp/old").exists()
    assert {node: _settled(watch.routes(node)) for node in before} == {n: _settled(r) for n, r in before.items()}
    assert watch.inside("a", "tc", "qdisc", "show", "dev", "eth0").stdout == rate
    assert watch.reaches("a", "b")
    assert watch.reaches("b", "a")
    assert watch.reaches("a", address), "through the switch too"
    assert watch.runs("a", "clock")


def _settled(lines: list[str]) -> list[str]:
    """Without neighbours that were learnt, which come and go."""
    return [line for line in lines if "lladdr" not in line or "PERMANENT" in line]


def test_recreate_waits_for_other_faults(faults: Faults) -> None:
    """They would vanish with the container, and nobody would know."""
    with (
        faults.active(OneWayCut(link=("core:to-a", "a"))) as entry,
        pytest.raises(FaultError, match=f"fault {entry.id} is at work in node a"),
    ):
        faults.inject(Recreate(node="a"))


def test_recreate_of_a_process(faults: Faults) -> None:
    with pytest.raises(FaultError, match="node b is a plain process"):
        faults.inject(Recreate(node="b"))


@pytest.mark.parametrize("path", ["/tmp", "/run"])  # noqa: S108 - in a container
def test_disk_full(faults: Faults, lab: Lab, watch: Watch, path: str) -> None:
    """The container can write nothing more there, and much again afterwards."""
    write = ["sh", "-c", f"head -c 100000 /dev/zero > {path}/x"]
    with faults.active(DiskFull(node="a", path=path)):
        done = lab.exec("a", write, root=False)
        assert done.returncode != 0
        assert "No space left" in done.stderr
    assert lab.exec("a", write, root=False).returncode == 0
    lab.exec("a", ["rm", f"{path}/x"])


def test_kill_and_pause_leave_the_container(faults: Faults, lab: Lab, watch: Watch) -> None:
    """Its first process, on which its network hangs, is not hit."""
    first = programs.first_process(lab, "a")
    with faults.active(Kill(node="a")):
        assert programs.first_process(lab, "a") == first
        assert not watch.runs("a", "clock")
        assert watch.reaches("b", "a")
    assert watch.runs("a", "clock")
    with faults.active(Pause(node="a")):
        assert watch.state(watch.pid("a", "busy")) == "T"
        assert watch.state(first) == "S"
    assert watch.state(watch.pid("a", "busy")) in "RS"


def test_limits(faults: Faults, watch: Watch) -> None:
    """The container's own control group gets the limit, and its old one again."""
    with watch.busy("a") as pid:
        with faults.active(CpuThrottle(node="a", share="10%")):
            assert watch.cpu_share(pid) <= 0.15
        await_true(lambda: watch.cpu_share(pid, 0.3) > 0.15, "it to get more")
    with faults.active(MemoryLimit(node="a", limit="64MiB")):
        pass
    with pytest.raises(TestbedError):
        faults.inject(MemoryLimit(node="a", limit="1MiB"))
    assert watch.runs("a", "clock")


def test_clock_and_filters(faults: Faults, watch: Watch) -> None:
    """As in a plain node."""
    with faults.active(ClockSkew(node="a", skew="-1h")):
        assert watch.is_off("a", -3600)
    assert watch.is_off("a", 0)
    with faults.active(Partition(groups=[["a"], ["b"]])):
        assert not watch.reaches("b", "a")
    assert watch.reaches("b", "a")
