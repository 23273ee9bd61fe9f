"""Labs come up whole or not at all, several at once, and leave the host as it was."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import ApplyError, PreflightError, TestbedError
from testbed.lab import ownership, snapshot
from testbed.lab.down import down, down_all, reap, running
from testbed.lab.lab import Lab
from testbed.lab.state import Folder, lab_id
from testbed.lab.up import attach, up
from testbed.plan.types import Plan

pytestmark = pytest.mark.root
MakePlan = Callable[..., Plan]

STAR = """\
name: crash
nodes: {%s}
links: [%s]
"""
SLEEPER = "{services: {nap: {command: [sleep, '300']}}}"


def star(count: int) -> str:
    """YAML of a star of ``count`` hosts that each run a program."""
    nodes = ", ".join(f"h{number}: {SLEEPER}" for number in range(count))
    return STAR % (nodes, ", ".join(f"[core, h{number}]" for number in range(count)))


def changed(before: snapshot.Snapshot, *labs: str) -> list[str]:
    """What is different on the host since ``before``, but for what other people's labs and containers changed."""
    return snapshot.difference(before, snapshot.take(), ours=[lab_id(name) for name in labs])


def nothing_left(identity: str) -> bool:
    """Whether neither processes nor namespaces nor state of a lab exist."""
    return not (ownership.processes(identity) or ownership.namespaces(identity) or Folder(identity).exists())


def test_c9_host_is_left_alone(state: Path, make_plan: MakePlan) -> None:
    """C9: all that the host is, is the same after ``down`` as before ``up``."""
    plan = make_plan(
        nodes={"a": {"services": {"nap": {"command": ["sleep", "300"]}}}, "b": None, "s": {"kind": "switch"}},
        links=[{"endpoints": ["a", "core"], "rate": "8mbit"}, ["b", "core"], ["s", "core"]],
    )
    before = snapshot.take()
    lab = up(plan)
    during = changed(before, plan.name)
    assert any("namespaces: new" in line for line in during), "the snapshot must see a lab that is up"
    assert any("processes: new" in line for line in during)
    assert not any(line.startswith(("links", "addresses", "routes", "rules", "sysctls", "nft")) for line in during)
    lab.down()
    assert changed(before, plan.name) == []
    assert nothing_left(lab.id)


def test_c6_name_taken(state: Path, make_plan: MakePlan) -> None:
    """C6, C17: a second lab of the same name is refused, says where the first came from and leaves it whole."""
    plan = make_plan(nodes={"a": None, "b": None}, links=[["a", "b"]])
    first = up(plan, "twice", topology="/somewhere/first.yaml")
    with pytest.raises(TestbedError, match=r"'twice' is up already: started from /somewhere/first.yaml at 20") as info:
        up(plan, "twice")
    assert "testbed down twice" in info.value.remedy
    assert first.exec("a", ["ping", "-c1", "-W2", str(plan.address("b"))]).returncode == 0


def test_c7_parallel(state: Path, make_plan: MakePlan) -> None:
    """C7: labs that start at the same moment are each whole, with the same addresses."""
    plan = make_plan(nodes={f"h{number}": None for number in range(5)}, links=[["core", f"h{n}"] for n in range(5)])
    labs: dict[str, Lab] = {}
    failures: list[BaseException] = []

    def start(name: str) -> None:
        try:
            labs[name] = up(plan, name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(f"lab{number}",)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [record.name for record in running()] == sorted(labs)
    for lab in labs.values():
        assert lab.exec("h0", ["ping", "-c1", "-W2", str(plan.address("h4"))]).returncode == 0
    assert sorted(down_all()) == sorted(labs)


def test_same_name_in_parallel(state: Path, make_plan: MakePlan) -> None:
    """Of two starts of one name exactly one wins, and it is whole."""
    plan = make_plan(nodes={f"h{number}": None for number in range(20)}, links=[["core", f"h{n}"] for n in range(20)])
    results: list[object] = []

    def start() -> None:
        try:
            results.append(up(plan, "race"))
        except TestbedError as error:
            results.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [result for result in results if isinstance(result, Lab)]
    assert len(winners) == 1
    assert any("already" in str(result) for result in results)
    assert winners[0].exec("h0", ["ping", "-c1", "-W2", str(plan.address("h19"))]).returncode == 0


def test_ip_netns_beside_a_lab(state: Path, tmp_path: Path) -> None:
    """A lab goes down also after somebody's ``ip netns add``, which binds /run/netns onto itself, and leaves theirs."""
    file = tmp_path / "star.yaml"
    file.write_text(star(2))
    steps = [
        f"{sys.executable} -m testbed up {file} --name beside",
        "ip netns add tbtest-other",
        f"{sys.executable} -m testbed down beside",
        "ip netns list",
        "ip netns delete tbtest-other",
    ]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(steps)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tbtest-other" in done.stdout
    assert nothing_left(lab_id("beside"))


def test_failure_undoes_everything(state: Path, make_plan: MakePlan) -> None:
    """A program that cannot be started takes the whole lab down again; the error says which and why."""
    plan = make_plan(
        nodes={"a": {"services": {"bad": {"command": ["false"]}}}, "b": None},
        links=[["a", "b"]],
    )
    before = snapshot.take()
    with pytest.raises(ApplyError, match=r"service bad ended.* status 1") as info:
        up(plan, "broken")
    assert info.value.where == "node a"
    assert nothing_left(lab_id("broken"))
    assert changed(before, "broken") == []
    missing = make_plan(nodes={"a": {"services": {"x": {"command": ["no-such-program"]}}}})
    with pytest.raises(PreflightError, match="there is no program 'no-such-program'"):
        up(missing, "broken")
    assert nothing_left(lab_id("broken"))


def test_a_lab_that_did_not_come_up_can_be_kept(state: Path, make_plan: MakePlan) -> None:
    """Its nodes and logs can be looked at, its name is taken, only ``down`` removes it; then nothing of it is left."""
    before = snapshot.take()
    services = {"fine": {"command": ["sleep", "infinity"]}, "broken": {"command": ["sh", "-c", "echo why; exit 3"]}}
    plan = make_plan(nodes={"a": {"services": services}, "b": None}, links=[["a", "b"]])
    with pytest.raises(ApplyError, match="broken") as caught:
        up(plan, "kept", keep=True)
    assert caught.value.__notes__ == ["lab 'kept' is left as it was then, until `testbed down kept`"]
    assert reap() == []
    assert [(record.name, record.status) for record in running()] == [("kept", "failed")]
    lab = attach("kept")
    assert lab.exec("b", ["ping", "-c1", "-W2", str(plan.address("a"))]).returncode == 0
    assert (lab.node_folder("a") / "broken.log").read_text() == "why\n"
    with pytest.raises(TestbedError, match="'kept' is left of a start that failed: started at 20"):
        up(plan, "kept")
    down("kept")
    assert changed(before, "kept") == []
    assert nothing_left(lab.id)


def test_taken_namespace_is_not_touched(state: Path, make_plan: MakePlan) -> None:
    """A failure half-way in the kernel undoes the rest; the message names the node."""
    plan = make_plan(nodes={"a": None, "b": None}, links=[["a", "b"]])
    bad = plan.model_copy(update={"links": (plan.links[0].model_copy(update={"mtu": 70000}),)})
    with pytest.raises(ApplyError, match="the kernel refused link a:eth0--b:eth0"):
        up(bad, "broken")
    assert nothing_left(lab_id("broken"))


def test_c10_down_without_topology(state: Path, tmp_path: Path) -> None:
    """C10: a lab goes down by its name alone, from another process, though its topology file is gone."""
    file = tmp_path / "gone.yaml"
    file.write_text(star(2))
    command("up", str(file), "--name", "orphan")
    file.unlink()
    assert attach("orphan").exec("h0", ["true"]).returncode == 0
    command("down", "orphan")
    assert nothing_left(lab_id("orphan"))
    with pytest.raises(TestbedError, match="there is no lab 'orphan'"):
        down("orphan")


def test_c20_others_are_spared(state: Path, make_plan: MakePlan) -> None:
    """C20: clean-up ends programs by ownership: the same program outside of the lab lives on, daemons inside do not."""
    other = subprocess.Popen(["sleep", "300"])
    try:
        daemon = "sleep 300 & setsid sleep 301 & exec env -i sleep 302"  # the last one has no mark in its environment
        lab = up(make_plan(nodes={"a": {"services": {"d": {"command": ["sh", "-c", daemon]}}}}))
        deadline = time.monotonic() + 10
        while len(ownership.processes(lab.id)) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(ownership.processes(lab.id)) == 3
        lab.down()
        assert nothing_left(lab.id)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_dead_owner_is_reaped(state: Path, tmp_path: Path) -> None:
    """A lab that belongs to a process goes when that process is gone, with the next command."""
    code = (
        "import os, sys; from pathlib import Path; from testbed.plan.load import load_topology;"
        "from testbed.lab.up import up;"
        "up(load_topology(Path(sys.argv[1]))[1], 'owned', owner=os.getpid()); print('up', flush=True); sys.stdin.read()"
    )
    file = tmp_path / "star.yaml"
    file.write_text(star(2))
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout
    assert owner.stdout.readline() == "up\n"
    assert reap() == []
    owner.kill()
    owner.communicate()
    assert reap() == ["owned"]
    assert nothing_left(lab_id("owned"))


def test_c8_kill_9_at_any_moment(state: Path, tmp_path: Path) -> None:
    """C8: ``up`` killed at ten random moments: the next ``up`` works, and ``down --all`` leaves the host as it was."""
    file = tmp_path / "crash.yaml"
    file.write_text(star(30))
    before = snapshot.take()
    duration = _time_of_up(file)
    moments = random.Random(20)
    interrupted = 0
    for _ in range(10):
        starting = subprocess.Popen([sys.executable, "-m", "testbed", "up", str(file)], stderr=subprocess.DEVNULL)
        time.sleep(duration * moments.uniform(0.2, 1.1))  # the moment is what this test draws at random
        starting.send_signal(signal.SIGKILL)
        interrupted += starting.wait() == -signal.SIGKILL
        command("up", str(file), "--name", "other")
        _assert_whole("other")
        command("down", "--all")
        assert changed(before, "crash", "other") == []
    assert interrupted > 0


def _time_of_up(file: Path) -> float:
    start = time.monotonic()
    command("up", str(file))
    seconds = time.monotonic() - start
    command("down", "--all")
    return seconds


def _assert_whole(name: str) -> None:
    lab = attach(name)
    assert lab.exec("h0", ["ping", "-c1", "-W2", str(lab.plan.address("h29"))]).returncode == 0
    assert sum(process.alive() for process in lab.processes()) == 30


def test_interrupt_during_up(state: Path, tmp_path: Path) -> None:
    """Ctrl-C while a lab starts removes what was made, with the exit status of an interrupted command."""
    file = tmp_path / "crash.yaml"
    file.write_text(star(60))
    before = snapshot.take()
    starting = subprocess.Popen([sys.executable, "-m", "testbed", "up", str(file)], stderr=subprocess.PIPE, text=True)
    identity = lab_id("crash")
    deadline = time.monotonic() + 30
    while not ownership.namespaces(identity) and time.monotonic() < deadline:
        time.sleep(0.001)
    starting.send_signal(signal.SIGINT)
    _, errors = starting.communicate(timeout=60)
    assert starting.returncode == 130, errors
    assert "Traceback" not in errors
    assert nothing_left(identity)
    assert changed(before, "crash") == []


def test_commands(state: Path, tmp_path: Path) -> None:
    """ps, exec, logs and their errors, as a user types them."""
    file = tmp_path / "star.yaml"
    file.write_text(star(2).replace("[sleep, '300']", "[sh, -c, 'echo hello; exec sleep 300']"))
    assert command("ps").stdout == "no lab is up\n"
    command("up", str(file), "--name", "one")
    rows = json.loads(command("ps", "--json").stdout)
    assert [(row["name"], row["status"], row["nodes"]) for row in rows] == [("one", "up", 3)]
    assert command("exec", "h0", "--", "ip", "-br", "address", "show", "dev", "eth0").stdout.split()[2] == "10.0.0.1/31"
    assert command("exec", "h1", "--", "sh", "-c", "exit 7", check=False).returncode == 7
    assert command("exec", "h1", "--user", "--", "id", "-u").stdout == "10001\n"
    assert command("logs", "h0").stdout == "hello\n"
    wrong = command("exec", "cores", "--", "true", check=False)
    assert wrong.returncode == 1
    assert "lab 'one' has no node 'cores'" in wrong.stderr
    assert "did you mean 'core'" in wrong.stderr
    file.write_text(file.read_text().replace("echo hello; exec sleep 300", "exit 3"))
    assert "'three' was taken down again" in command("up", str(file), "--name", "three", check=False).stderr
    kept = command("up", str(file), "--name", "two", "--keep", check=False)
    assert "lab 'two' is left as it was then, until `testbed down two`" in kept.stderr
    assert "say which lab with --name" in command("exec", "h0", "--", "true", check=False).stderr
    command("down", "one", "two")
    assert "no lab is up" in command("exec", "h0", "--", "true", check=False).stderr


def test_not_root(state: Path) -> None:
    """Without root nothing is touched, and the message says what to do."""
    file = state / "star.yaml"  # where another user can read it
    file.write_text(star(2))
    code = f"import os; os.setuid(10001); from testbed.cli import main; exit(main(['up', {str(file)!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    if "No module named" in done.stderr:
        pytest.skip("another user may not read this Python environment")
    assert done.returncode != 0
    assert "a lab needs root" in done.stderr
    assert "Traceback" not in done.stderr


def command(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=120,
        env=os.environ,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done
