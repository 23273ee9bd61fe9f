"""Containers of a real engine."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.errors import ApplyError
from testbed.lab.ownership import namespace_path
from testbed.plan.types import Node, Service
from testbed.runtime import engine
from testbed.runtime.base import Place
from testbed.runtime.container import ContainerRuntime, container_name
from testbed.runtime.images import DEFAULT_IMAGE

pytestmark = [pytest.mark.root, pytest.mark.engine]

LAB = f"7e57{os.getpid() % 0x10000:04x}"

MakePlace = Callable[..., Place]


@pytest.fixture
def runtime() -> Iterator[ContainerRuntime]:
    runtime = ContainerRuntime()
    yield runtime
    runtime.remove(LAB)
    assert containers() == []


@pytest.fixture
def place() -> Iterator[MakePlace]:
    folder = Path(tempfile.mkdtemp(prefix="tbtest-", dir="/var/tmp"))
    folder.chmod(0o711)

    def make(name: str = "n", **node: object) -> Place:
        own = folder / name
        own.mkdir(mode=0o700)
        os.chown(own, 10001, 10001)
        made = Node.model_validate({"name": name, "runtime": "container", **node})
        return Place(LAB, made, own, namespace_path(LAB, name))

    yield make
    shutil.rmtree(folder)


def containers() -> list[str]:
    found = engine.get(f"/containers/json?all=1&filters=%7B%22label%22%3A%5B%22testbed.lab%3D{LAB}%22%5D%7D")
    return sorted(name.lstrip("/") for item in found for name in item["Names"])


def run(runtime: ContainerRuntime, place: Place, *argv: str, root: bool = False) -> subprocess.CompletedProcess[str]:
    command = runtime.command(place, argv, root=root, terminal=False)
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def await_file(path: Path, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_container_is_hardened(runtime: ContainerRuntime, place: MakePlace) -> None:
    here = place(memory_bytes=64 * 2**20, pids=30)
    pid = runtime.create([here])["n"]
    for process in (pid, runtime.spawn(here, Service(name="s", argv=("sleep", "1000"))).pid):
        status = status_of(process)
        assert status["Uid"].split() == ["10001"] * 4
        assert status["Gid"].split() == ["10001"] * 4
        assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
    assert run(runtime, here, "touch", "/etc/x").stderr.endswith("Read-only file system\n")
    for folder in ("/tmp", "/run", "/var/tmp", str(here.folder)):  # noqa: S108 - of the container
        assert run(runtime, here, "touch", f"{folder}/x").returncode == 0, folder
    assert (here.folder / "x").stat().st_uid == 10001
    assert "noexec" in run(runtime, here, "grep", " /tmp ", "/proc/mounts").stdout
    links = run(runtime, here, "ip", "-oneline", "link").stdout.splitlines()
    assert [line.split()[1] for line in links] == ["lo:"]
    settings = engine.get(f"/containers/{container_name(LAB, 'n')}/json")
    assert settings["HostConfig"]["Memory"] == 64 * 2**20
    assert settings["HostConfig"]["PidsLimit"] == 30
    assert settings["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert settings["Config"]["Hostname"] == "n"
    assert settings["Config"]["Labels"]["testbed.node"] == "n"


def test_command_as_root_may_administer_the_network(runtime: ContainerRuntime, place: MakePlace) -> None:
    here = place()
    runtime.create([here])
    assert run(runtime, here, "ip", "link", "set", "lo", "mtu", "1400").returncode == 2  # not as the user
    assert run(runtime, here, "ip", "link", "set", "lo", "mtu", "1400", root=True).returncode == 0
    assert run(runtime, here, "sh", "-c", "exit 7").returncode == 7


def test_spawned_service(runtime: ContainerRuntime, place: MakePlace) -> None:
    here = place()
    runtime.create([here])
    odd = "a b'c\"d$(id)`id`;*\\"
    script = 'echo "$1" "$MARK" "$HOME" "$TESTBED_LAB"; pwd; touch done; exec sleep 1000'
    service = Service(name="odd", argv=("sh", "-c", script, "-", odd), env={"MARK": "x y"})
    process = runtime.spawn(here, service)
    assert process.alive()
    while not (words := Path(f"/proc/{process.pid}/cmdline").read_bytes()):
        time.sleep(0.001)  # empty for a moment while the shell becomes `sleep`
    assert words.split(b"\0")[0] in (b"sh", b"sleep")
    assert b"TESTBED_LAB=" + LAB.encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    await_file(here.folder / "done")
    process.signal(15)
    process.wait_gone(10)
    assert process.log == here.folder / "odd.log"
    assert process.log_tail().splitlines() == [f"{odd} x y {here.folder} {LAB}", str(here.folder)]


def test_folder_in_argv(runtime: ContainerRuntime, place: MakePlace) -> None:
    here = place()
    runtime.create([here])
    runtime.spawn(here, Service(name="s", argv=("mkdir", "${dir}/made")))
    await_file(here.folder / "made")
    assert run(runtime, here, "ls", str(here.folder)).stdout == "made\ns.log\n"


def test_service_that_cannot_run(runtime: ContainerRuntime, place: MakePlace) -> None:
    here = place()
    runtime.create([here])
    with pytest.raises(ApplyError, match=r"node n: service gone ended at once with status 127(.|\n)*no-such-program"):
        runtime.spawn(here, Service(name="gone", argv=("no-such-program",)))
    # One that ends soon has been started; whether that is noticed at once is a matter of chance.
    with suppress(ApplyError):
        runtime.spawn(here, Service(name="bad", argv=("sh", "-c", "echo broken; exit 3"))).wait_gone(10)
    assert (here.folder / "bad.log").read_text() == "broken\n"
    runtime.spawn(here, Service(name="quick", argv=("true",))).wait_gone(10)


def test_several_at_once_and_removal_by_label(runtime: ContainerRuntime, place: MakePlace) -> None:
    places = [place(f"n{number}") for number in range(4)]
    pids = runtime.create(places)
    assert sorted(pids) == ["n0", "n1", "n2", "n3"]
    assert len(set(pids.values())) == 4
    client = engine.connect()
    client.api.remove_container(container_name(LAB, "n1"), force=True)  # gone already
    client.api.kill(container_name(LAB, "n2"))  # dead
    client.close()
    ContainerRuntime().remove(LAB)  # another process, which has made none of them
    assert containers() == []
    ContainerRuntime().remove(LAB)


def test_failure_names_the_node_and_leaves_nothing(runtime: ContainerRuntime, place: MakePlace) -> None:
    places = [place("good"), place("bad", image="testbed/no-such-image:0")]
    with pytest.raises(ApplyError, match="node bad: there is no container image testbed/no-such-image:0"):
        runtime.create(places)
    assert containers() == []


def test_same_name_twice(runtime: ContainerRuntime, place: MakePlace) -> None:
    here = place()
    first = runtime.create([here])
    with pytest.raises(ApplyError, match=f"already in use by container|{container_name(LAB, 'n')}"):
        runtime.create([here])
    assert Path(f"/proc/{first['n']}").exists()


@pytest.fixture
def broken_image() -> Iterator[Callable[[str], str]]:
    """Builds an image like ours in which ``sleep`` is the given script."""
    client = engine.connect()
    tags = []

    def make(script: str) -> str:
        tag = f"testbed/broken-{len(tags)}:test"
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, text in (
                ("Dockerfile", f"FROM {DEFAULT_IMAGE}\nRUN rm /usr/bin/sleep\nCOPY sleep /usr/bin/sleep\n"),
                ("sleep", script),
            ):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(text), 0o755
                tar.addfile(entry, io.BytesIO(text.encode()))
        archive.seek(0)
        client.images.build(fileobj=archive, custom_context=True, tag=tag, network_mode="none", rm=True, forcerm=True)
        tags.append(tag)
        return tag

    yield make
    for tag in tags:
        client.images.remove(tag, force=True)
    client.close()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "#!/bin/sh\necho I cannot sleep\nexit 5\n",
            "the container ended with status 5; .*\nI cannot sleep",
        ),
        ("#!/no/such/interpreter\n", "node dead: (.|\n)*no such file or directory"),
    ],
)
def test_container_that_dies_at_start(
    runtime: ContainerRuntime, place: MakePlace, broken_image: Callable[[str], str], script: str, words: str
) -> None:
    here = place("dead", image=broken_image(script))

    def create_and_use() -> None:
        pid = runtime.create([here])["dead"]  # the engine may look before the process has ended
        deadline = time.monotonic() + 20
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        runtime.spawn(here, Service(name="s", argv=("true",)))

    with pytest.raises(ApplyError, match=words):
        create_and_use()


def test_command_in_a_container_that_is_gone(runtime: ContainerRuntime, place: MakePlace) -> None:
    here = place()
    with pytest.raises(ApplyError, match=f"node n: its container {container_name(LAB, 'n')} is gone"):
        runtime.command(here, ["true"], root=True, terminal=False)
