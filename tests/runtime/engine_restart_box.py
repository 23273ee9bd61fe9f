"""Run by test_engine_restart.py in mount, network and pid namespaces that end with it: an engine of its own, a lab with
a container, and restarts of that engine under it. Prints what it has seen, one step a line."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATE = Path("/run/labs")
IMAGE = "box/node:1"
TOOLS = ("sh", "sleep", "date", "env", "cat")
TOPOLOGY = {
    "name": "box",
    "nodes": {
        "a": {
            "runtime": "container",
            "image": IMAGE,
            "services": {"beat": {"command": ["sh", "-c", "while :; do date +%s.%N > ${dir}/beat; sleep 0.05; done"]}},
        },
        "b": None,
    },
    "links": [{"endpoints": ["a", "core"], "delay": "5ms"}, ["b", "core"]],
}


def private_folders() -> None:
    """Nothing that the machine's own engine uses is in reach."""
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    for folder in ("/run", "/var/lib/docker", "/var/log"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder], check=True)
    os.environ.pop("DOCKER_HOST", None)
    os.environ["TESTBED_STATE"] = str(STATE)


def engine(*arguments: str) -> bool:
    """Run the script that starts the engine; whether it says that one answers."""
    return (
        subprocess.run([str(ROOT / "setup/engine.sh"), *arguments], stdin=subprocess.DEVNULL, check=False).returncode
        == 0
    )


def make_image() -> None:
    """A few programs and the libraries that they need: small, so that the test is quick."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        paths = [path for name in TOOLS if (path := shutil.which(name))]
        linked = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=True).stdout
        for path in sorted({*paths, *re.findall(r"(/\S+\.so\S*) \(", linked)}):
            tar.add(path)
        tar.add("/bin/sh")
    subprocess.run(["docker", "import", "-", IMAGE], input=archive.getvalue(), check=True, stdout=subprocess.DEVNULL)


def wait(what: str, condition: Callable[[], bool], seconds: float = 30) -> None:
    """Until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"failed: waited {seconds} s for {what}")
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has taken note of counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def main() -> None:
    """All of it."""
    private_folders()
    assert engine(), "the engine does not start"
    make_image()

    from testbed.errors import TestbedError
    from testbed.lab import links, ownership
    from testbed.lab.doctor import Check, _engine
    from testbed.lab.up import up
    from testbed.model.topology import Topology
    from testbed.plan.expand import expand
    from testbed.plan.types import Service
    from testbed.runtime.container import _first_process

    STATE.mkdir(mode=0o711)
    plan, problems = expand(Topology.model_validate(TOPOLOGY))
    assert not problems, problems
    lab = up(plan)
    (beat,) = [process for process in lab.processes() if process.node == "a"]
    first = _first_process(lab.place("a"))
    print("step up", flush=True)

    @contextmanager
    def packets():  # type: ignore[no-untyped-def]
        """Echo requests meanwhile, none of which may be lost."""
        command = lab.command("b", ["ping", "-n", "-i0.05", str(plan.address("a"))])
        ping = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        yield
        ping.send_signal(signal.SIGINT)
        output = ping.communicate(timeout=30)[0]
        sent, received = map(int, re.findall(r"(\d+) packets transmitted, (\d+) received", output)[0])
        assert sent - received <= 1 < received, output.splitlines()[-3:]  # the last may still be under way

    def restart(how: signal.Signals) -> None:
        daemon = int(Path("/run/docker.pid").read_text())
        with packets():
            os.kill(daemon, how)
            wait("the engine's end", lambda: gone(daemon) and not engine("--check"))
            with pytest.raises(TestbedError, match="Docker engine"):
                lab.exec("a", ["cat", "/proc/self/status"])
            before = (lab.node_folder("a") / "beat").read_text()
            wait("the program's going on", lambda: (lab.node_folder("a") / "beat").read_text() != before)
            assert engine(), "the engine does not start again"
        assert int(Path("/run/docker.pid").read_text()) != daemon
        assert beat.alive()
        assert _first_process(lab.place("a")) == first
        assert [missing for link in plan.links for end in (link.a, link.b) for missing in links.missing(lab, end)] == []
        assert lab.exec("a", ["cat", "/proc/self/status"], check=True).stdout
        assert lab.spawn("a", Service(name=f"more{how}", argv=("sleep", "1000"))).alive()

    restart(signal.SIGTERM)
    print("step graceful: program, packets and links go on; exec and new programs work", flush=True)
    restart(signal.SIGKILL)
    print("step kill: the same", flush=True)
    checks = [check for check in _engine() if check.name == "containers and the engine"]
    assert checks == [Check("containers and the engine", "ok", "containers outlive a restart of the engine")], checks
    lab.down()
    assert not ownership.processes(lab.id)
    listed = subprocess.run(["docker", "ps", "-aq"], capture_output=True, text=True, check=True).stdout
    assert listed == "", listed
    print("step down: nothing is left", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
