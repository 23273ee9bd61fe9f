"""Faults of nodes and programs really take and are really healed, as seen from outside."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fault_world import Watch
from waiting import await_true

from testbed.faults.base import FaultError
from testbed.faults.clock_skew import ClockSkew
from testbed.faults.cpu_throttle import CpuThrottle
from testbed.faults.crash_loop import CrashLoop
from testbed.faults.disk_full import DiskFull
from testbed.faults.faults import Faults
from testbed.faults.kill import Kill
from testbed.faults.memory_limit import MemoryLimit
from testbed.faults.pause import Pause
from testbed.faults.restart import Restart
from testbed.faults.stop import Stop
from testbed.faults.tools import programs
from testbed.lab.lab import Lab
from testbed.plan.types import Service
from testbed.runtime.base import start_time

pytestmark = pytest.mark.root


def test_kill_of_a_program(faults: Faults, watch: Watch) -> None:
    """One program goes at once, the other stays; afterwards it runs again, as another process."""
    before, other = watch.pid("a", "polite"), watch.pid("a", "clock")
    told = watch.lab.node_folder("a") / "told"
    told.unlink(missing_ok=True)
    with faults.active(Kill(node="a", service="polite")):
        assert start_time(before) is None
        assert watch.state(other) in "SR"
        assert watch.reaches("b", "a"), "the node's network stays"
    assert watch.runs("a", "polite")
    assert watch.pid("a", "polite") != before
    assert watch.pid("a", "clock") == other
    assert not told.exists(), "SIGKILL tells nothing"


def test_kill_of_a_node(faults: Faults, lab: Lab, watch: Watch) -> None:
    """Nothing is left, also of what programs have started."""
    with faults.active(Kill(node="a")):
        assert lab.pids("a") == {}
        assert not watch.runs("a", "clock")
    assert watch.runs("a", "clock")
    assert watch.runs("a", "polite")


def test_kill_takes_what_a_program_has_started(faults: Faults, lab: Lab, watch: Watch) -> None:
    """Also grandchildren whose parent is gone."""
    script = "sleep 321 & (sleep 322 & ) ; wait"
    lab.spawn("b", Service(name="family", argv=("sh", "-c", script)))

    def sleepers() -> int:
        return sum(_argument(pid) in ("321", "322") for pid in lab.pids("b"))

    await_true(lambda: sleepers() == 2, "the children")
    entry = faults.inject(Kill(node="b", service="family"))
    assert sleepers() == 0
    faults.heal(entry)
    await_true(lambda: sleepers() == 2, "the new children")
    programs.kill(lab, "b", "family")


def _argument(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1]
    except (OSError, IndexError):
        return ""


def test_stop_tells_the_program(faults: Faults, watch: Watch) -> None:
    """SIGTERM, which the program answers in its own way."""
    told = watch.lab.node_folder("a") / "told"
    told.unlink(missing_ok=True)
    with faults.active(Stop(node="a", service="polite")):
        assert told.read_text() == "told\n"
        assert not watch.runs("a", "polite")
    assert watch.runs("a", "polite")


def test_c15_stop_of_a_deaf_program_fails(faults: Faults, watch: Watch) -> None:
    """C15: a program that does not end is an error that says so; it goes on."""
    with pytest.raises(FaultError, match=r"still there: .*trap") as info:
        faults.inject(Stop(node="e", service="deaf", within="200ms"))
    assert "`within`" in info.value.remedy
    assert watch.runs("e", "deaf")
    assert faults.entries() == []


def test_stop_of_a_paused_program_does_not_come_later(faults: Faults, watch: Watch) -> None:
    """A paused program keeps the signal until it goes on; once the failed stop is healed, it must not end by it."""
    with faults.active(Pause(node="b", service="clock")):
        with pytest.raises(FaultError, match="still there"):
            faults.inject(Stop(node="b", service="clock", within="200ms"))
        assert watch.runs("b", "clock")
    time.sleep(0.3)  # time to end by a signal
    assert watch.runs("b", "clock")


def test_pause(faults: Faults, watch: Watch) -> None:
    """Every process is in state T and does nothing; then it goes on as the same process."""
    pid = watch.pid("a", "clock")
    clock = watch.lab.node_folder("a") / "clock"
    with faults.active(Pause(node="a")):
        assert watch.state(pid) == "T"
        seen = clock.read_text()
        time.sleep(0.2)
        assert clock.read_text() == seen
        assert watch.state(watch.pid("b", "clock")) in "SR"
    await_true(lambda: clock.read_text() != seen, "the program to go on")
    assert watch.pid("a", "clock") == pid
    assert watch.state(pid) in "SR"


def test_pause_leaves_stopped_what_was(faults: Faults, lab: Lab, watch: Watch) -> None:
    """What somebody else had stopped is not continued by healing."""
    process, _ = lab.services("a")["polite"]
    process.signal(signal.SIGSTOP)
    await_true(lambda: watch.state(process.pid) == "T", "the stop")
    with faults.active(Pause(node="a")):
        pass
    assert watch.state(process.pid) == "T"
    assert watch.state(watch.pid("a", "clock")) in "SR"
    process.signal(signal.SIGCONT)


def test_restart(faults: Faults, watch: Watch) -> None:
    """It is over at once, and the program another process."""
    before = watch.pid("a", "polite")
    faults.inject(Restart(node="a", service="polite"))
    assert faults.entries() == []
    assert start_time(before) is None
    assert watch.runs("a", "polite")


def test_restart_kills_what_does_not_listen(faults: Faults, watch: Watch) -> None:
    """After its time it is killed."""
    before = watch.pid("e", "deaf")
    faults.inject(Restart(node="e", within="100ms"))
    assert start_time(before) is None
    assert watch.runs("e", "deaf")


def test_crash_loop(faults: Faults, watch: Watch) -> None:
    """The program dies as often as asked for, and lives in between and afterwards."""
    pids = [watch.pid("a", "polite")]
    entry = faults.inject(CrashLoop(node="a", service="polite", period="500ms", count=2))

    def look() -> bool:
        now = watch.pid("a", "polite")
        if now != pids[-1]:
            pids.append(now)
        return len(pids) == 3

    await_true(look, "two crashes")
    faults.heal(entry)
    assert watch.runs("a", "polite")
    assert len(watch.events(kind="fault", fault="kill", phase="verified", parent=entry.id)) == 2


def test_cpu_throttle(faults: Faults, watch: Watch) -> None:
    """A busy program gets about its share of a processor, and more again afterwards."""
    with watch.busy("d") as pid:
        with faults.active(CpuThrottle(node="d", share="10%")):
            assert watch.cpu_share(pid) <= 0.15
            assert "tb-" in Path(f"/proc/{pid}/cgroup").read_text()
        assert "tb-" not in Path(f"/proc/{pid}/cgroup").read_text()
        await_true(lambda: watch.cpu_share(pid, 0.3) > 0.15, "it to get more")


def test_memory_limit(faults: Faults, lab: Lab, watch: Watch) -> None:
    """The program that asks for more is killed by the kernel; others of the machine are not."""
    process, _ = lab.services("d")["greedy"]
    entry = faults.inject(MemoryLimit(node="d", limit="32MiB"))
    await_true(lambda: _handles(process.pid, signal.SIGUSR1), "its start")
    process.signal(signal.SIGUSR1)
    await_true(lambda: not process.alive(), "the kernel to kill it")
    faults.heal(entry)
    assert not list(Path("/sys/fs/cgroup").glob(f"**/tb-{lab.id}-*"))
    lab.spawn("d", lab.services("d")["greedy"][1])
    again, _ = lab.services("d")["greedy"]
    await_true(lambda: Path(f"/proc/{again.pid}/wchan").exists(), "its start")
    time.sleep(0.2)
    again.signal(signal.SIGUSR1)
    await_true(lambda: _resident(again.pid) > 60 << 20 or not again.alive(), "it to take its memory")
    assert again.alive(), "without a limit it may"
    again.signal(signal.SIGKILL)
    lab.spawn("d", lab.services("d")["greedy"][1])


def _handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal already, which else would end it."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


@pytest.mark.parametrize("skew, seconds", [("+1h", 3600), ("-90s", -90)])
def test_c21_clock_skew(faults: Faults, watch: Watch, skew: str, seconds: float) -> None:
    """C21: only the node's clock is shifted, neither another node's nor the host's; and time-outs keep their length."""

    def host() -> tuple[float, float, float]:
        """What `date` says, and the monotonic clock before and after."""
        begun = time.monotonic()
        said = subprocess.run(["date", "+%s.%N"], capture_output=True, text=True, check=True).stdout
        return begun, float(said), time.monotonic()

    first = host()
    pid = watch.pid("a", "clock")
    with faults.active(ClockSkew(node="a", skew=skew)):
        assert watch.is_off("a", seconds)
        assert watch.is_off("b", 0)
        last = host()
        assert last[0] - first[2] - 0.01 <= last[1] - first[1] <= last[2] - first[0] + 0.01
    assert watch.is_off("a", 0)
    assert watch.pid("a", "clock") == pid, "without a restart"


def test_clock_of_a_program_that_is_started_later(faults: Faults, watch: Watch) -> None:
    """It is shifted as well, and true once the fault is healed; one of another node is left alone."""
    loop = Service(
        name="later", argv=("sh", "-c", "exec python3 -uc 'import time\nwhile 1: print(time.time()); time.sleep(.02)'")
    )

    def off(node: str) -> float:
        log = watch.lab.node_folder(node) / "later.log"
        words = log.read_text().split("\n")[:-1]
        return float(words[-1]) - time.time() if words else 0.0

    with faults.active(ClockSkew(node="a", skew="+1h")):
        for node in "ab":
            watch.lab.spawn(node, loop)
        await_true(lambda: off("a") > 3000, "the shift")
        assert off("b") < 1000
    await_true(lambda: off("a") < 1000, "the true clock")
    for node in "ab":
        watch.lab.services(node)["later"][0].signal(9)


def test_disk_full_of_a_process_is_refused(faults: Faults) -> None:
    """It would fill the host's disk."""
    with pytest.raises(FaultError, match="plain process") as info:
        faults.inject(DiskFull(node="a"))
    assert "container" in info.value.remedy


def test_faults_of_what_does_not_run(faults: Faults) -> None:
    """They make no sense, and say so."""
    with pytest.raises(FaultError, match="nothing runs in node core"):
        faults.inject(Kill(node="core"))
    with pytest.raises(FaultError, match="nothing runs"):
        faults.inject(Pause(node="core"))
    with pytest.raises(FaultError, match="no program runs"):
        faults.inject(Restart(node="core"))
    assert faults.entries() == []
