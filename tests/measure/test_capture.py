"""Captures in nodes: the files are what pcapng says, hold what was sent, and end whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_world import Recorded, lab_of
from waiting import await_true

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.measure import pcapng
from testbed.measure.bpf import compile_filter
from testbed.measure.capture import Capture, parse_place
from testbed.measure.probes.ping import ping
from testbed.net.namespace import inside

LIBPCAP = pytest.mark.skipif(not shutil.which("tcpdump"), reason="tcpdump, whose library compiles filters, is absent")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts and a router."""
    with lab_of(nodes={"a": None, "b": None, "r": {"kind": "router"}}, links=[["a", "r"], ["r", "b"]]) as made:
        yield made


def _flood(lab: Lab, count: int, size: int) -> None:
    """Datagrams from ``a`` to a port of ``b`` where nobody listens."""
    with inside(lab.namespace("a"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        for _ in range(count):
            sender.sendto(bytes(size), (str(lab.plan.address("b")), 9))


def test_blocks_are_read_as_written(tmp_path: Path) -> None:
    """Written by hand, read by us; and where the tools are installed, by tcpdump and capinfos."""
    frame = bytes.fromhex("020000000002020000000001080045000021000000004011") + bytes(27)
    interface = pcapng.Interface("a:eth0", "the lab", "02:00:00:00:00:01", 65535, "udp")
    now = 1_700_000_000_123_456_789
    blocks = [
        pcapng.section("testbed", "Linux", "a comment"),
        pcapng.interface(interface),
        pcapng.packet(0, now, frame, 1500, outgoing=True),
        pcapng.packet(0, now + 1, frame[:-1], 50, outgoing=False),
        pcapng.statistics(0, now, now + 10, 7, 5, 2),
    ]
    assert all(len(block) % 4 == 0 for block in blocks)
    path = tmp_path / "x.pcapng"
    path.write_bytes(b"".join(blocks))
    found = pcapng.read(path)
    assert (found.interfaces, found.comment, found.whole) == ([interface], "a comment", True)
    first, second = found.packets
    assert first == pcapng.Packet(0, now, frame, 1500, True)
    assert (second.time_ns, second.data, second.length, second.outgoing) == (now + 1, frame[:-1], 50, False)
    assert (found.received, found.dropped) == ({0: 7}, {0: 5})
    if shutil.which("tcpdump"):
        said = subprocess.run(
            ["tcpdump", "-nn", "-tt", "--nano", "-r", str(path)], capture_output=True, text=True, check=True
        )
        assert said.stdout.startswith("1700000000.123456789 IP ")
        assert len(said.stdout.splitlines()) == 2
    if shutil.which("capinfos"):
        said = subprocess.run(["capinfos", "-M", str(path)], capture_output=True, text=True, check=True)
        for part in ("pcapng", "a comment", "Name = a:eth0", "Time precision = nanoseconds", "Filter string = udp"):
            assert part in said.stdout
        assert "Number of packets:   2" in said.stdout


def test_files_that_are_cut_or_no_captures(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    whole = pcapng.section("testbed", "Linux") + pcapng.interface(pcapng.Interface("a:eth0"))
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert len(pcapng.read(path).interfaces) == 0
    path.write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="not a pcapng file"):
        pcapng.read(path)


def test_places() -> None:
    assert parse_place("a:eth0") == ("a", "eth0")
    assert parse_place("a") == ("a", None)
    for wrong in ("", ":eth0", "a:"):
        with pytest.raises(TestbedError, match="no place to capture"):
            parse_place(wrong)


@pytest.mark.root
def test_capture(lab: Lab, tmp_path: Path) -> None:
    """Both directions of a ping, with the times that the sender saw and the readable name."""
    recorded, file = Recorded(), tmp_path / "a.pcapng"
    before = time.time_ns()
    with Capture(lab, "a", "eth0", file=file, recorder=recorded) as capture:
        assert capture.running()
        assert ping(lab, "a", "b", count=3, interval=0.01, timeout=5).lost == 0
    after = time.time_ns()
    result = capture.stop()
    assert (result.files, result.packets, result.error) == ((file,), 6, "")
    assert (result.received, result.dropped) == ({"a:eth0": 6}, {"a:eth0": 0})
    found = pcapng.read(file)
    assert found.whole
    assert [interface.name for interface in found.interfaces] == ["a:eth0"]
    assert found.interfaces[0].mac == lab.plan.links_of("a")[0].end("a").mac
    assert [packet.outgoing for packet in found.packets] == [True, False] * 3
    assert all(packet.length == len(packet.data) == 14 + 20 + 8 + 56 for packet in found.packets)
    times = [packet.time_ns for packet in found.packets]
    assert before < times[0]
    assert times == sorted(times)
    assert times[-1] < after
    assert found.dropped == {0: 0}
    ((kind, node, detail),) = recorded.events
    assert (kind, node, detail["packets"], detail["files"]) == ("capture", "a", 6, ["a.pcapng"])
    if shutil.which("tcpdump"):
        said = subprocess.run(["tcpdump", "-nn", "-r", str(file)], capture_output=True, text=True, check=True).stdout
        assert said.count("ICMP echo request") == 3


@pytest.mark.root
def test_all_interfaces_of_a_node_cut_short(lab: Lab, tmp_path: Path) -> None:
    with Capture(lab, "r", file=tmp_path / "r.pcapng", snaplen=34) as capture:
        ping(lab, "a", "b", count=1, timeout=5)
    capture.stop()
    found = pcapng.read(tmp_path / "r.pcapng")
    assert [interface.name for interface in found.interfaces] == ["r:to-a", "r:to-b"]
    assert sorted((packet.interface, packet.outgoing) for packet in found.packets) == [
        (0, False),
        (0, True),
        (1, False),
        (1, True),
    ]
    assert all((len(packet.data), packet.length) == (34, 98) for packet in found.packets)


@LIBPCAP
@pytest.mark.root
def test_filter(lab: Lab, tmp_path: Path) -> None:
    with Capture(lab, "a", file=tmp_path / "a.pcapng", filter="udp and dst port 9") as capture:
        ping(lab, "a", "b", count=2, interval=0, timeout=5)
        _flood(lab, 3, 10)
    assert capture.stop().packets == 3
    assert pcapng.read(tmp_path / "a.pcapng").interfaces[0].filter == "udp and dst port 9"


@LIBPCAP
def test_a_wrong_filter() -> None:
    with pytest.raises(TestbedError, match=r"filter 'udp and and': .*syntax error"):
        compile_filter("udp and and")


@pytest.mark.root
def test_bounded_in_size_and_number(lab: Lab, tmp_path: Path) -> None:
    """The newest packets stay, in files of at most the size, each of them readable alone."""
    with Capture(lab, "a", file=tmp_path / "a.pcapng", file_bytes=20_000, files=3) as capture:
        _flood(lab, 100, 1000)
        ping(lab, "a", "b", count=1, timeout=5, size=1111)
    result = capture.stop()
    assert sorted(tmp_path.iterdir()) == list(result.files)
    assert len(result.files) == 3
    assert result.removed >= 2
    assert all(path.stat().st_size <= 20_000 + 500 for path in result.files)  # the statistics come on top
    contents = [pcapng.read(path) for path in result.files]
    assert all(content.whole and content.interfaces for content in contents)
    assert contents[-1].packets[-1].length == 14 + 28 + 1111
    assert result.packets >= 102


@pytest.mark.root
def test_an_interface_that_goes_and_is_made_anew(tmp_path: Path) -> None:
    """The capture goes on when there is a device of that name again."""
    file = tmp_path / "b.pcapng"
    with lab_of(name=f"anew-{os.getpid()}", nodes={"a": None, "b": None}, links=[["a", "b"]]) as lab:
        capture = Capture(lab, "b", "eth0", file=file).start()
        ping(lab, "a", "b", count=1, timeout=5)
        lab.exec("b", ["ip", "link", "del", "eth0"], check=True)
        lab.exec("b", ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other"], check=True)
        for name in ("eth0", "other"):
            lab.exec("b", ["ip", "link", "set", name, "up"], check=True)
        with inside(lab.namespace("b"), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as raw:
            raw.bind(("other", 0))

            def seen() -> bool:
                raw.send(bytes(12) + b"\x88\xb5" + bytes(763))
                return any(packet.length == 777 for packet in pcapng.read(file).packets)

            await_true(seen, "a packet of the new device")
        result = capture.stop()
    assert result.interrupted["b:eth0"] >= 1
    assert [packet.length for packet in pcapng.read(file).packets[:2]] == [98, 98]


@pytest.mark.root
def test_a_time_and_the_standard_output(lab: Lab) -> None:
    """With ``-`` a capture can be piped into a program; here it ends by itself."""
    code = (
        "import sys; from testbed.lab.up import attach; from testbed.measure.capture import Capture\n"
        f"capture = Capture(attach({lab.name!r}), 'a', file='-', seconds=0.5).start()\n"
        "print('now', file=sys.stderr, flush=True); capture.wait(30); capture.stop()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None
    assert child.stderr.readline() == b"now\n"
    ping(lab, "a", "b", count=1, timeout=5)
    data = child.communicate(timeout=30)[0]
    assert data[:4] == pcapng.SECTION.to_bytes(4, sys.byteorder)
    assert len(data) > 200


@pytest.mark.root
def test_what_is_refused_at_once(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no interface 'eth7'"):
        Capture(lab, "a", "eth7", file=tmp_path / "x")
    with pytest.raises(TestbedError, match="leave nothing"):
        Capture(lab, "a", file=tmp_path / "x", files=0)
    with pytest.raises(TestbedError, match="cannot capture: No such file"):
        Capture(lab, "a", file=tmp_path / "none" / "x.pcapng").start()
    with pytest.raises(TestbedError, match="cannot capture: No space left"):
        Capture(lab, "a", file="/dev/full").start()
    assert Capture(lab, "a", file=tmp_path / "x").stop().error == "never started"


@pytest.mark.root
def test_it_is_none_of_the_nodes_processes(lab: Lab, tmp_path: Path) -> None:
    with Capture(lab, "a", file=tmp_path / "a.pcapng"):
        assert lab.pids("a") == {}


@pytest.mark.root
def test_it_ends_with_the_one_who_started_it(lab: Lab, tmp_path: Path) -> None:
    """Killed in cold blood: the capture ends by itself and its file is whole."""
    file = tmp_path / "a.pcapng"
    code = (
        "import sys, time; from testbed.lab.up import attach; from testbed.measure.capture import Capture\n"
        f"capture = Capture(attach({lab.name!r}), 'a', file={str(file)!r}).start()\n"
        "print(capture._child.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert ping(lab, "a", "b", count=1, timeout=5).lost == 0
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    await_true(lambda: not os.path.exists(f"/proc/{pid}/exe") or _zombie(pid), "the capture's end")
    assert len(pcapng.read(file).packets) == 2
    assert pcapng.read(file).received == {0: 2}


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.root
def test_it_ends_with_the_lab(tmp_path: Path) -> None:
    """``down`` ends it, nothing keeps the namespace, and what was captured is there."""
    with lab_of(name=f"short-{os.getpid()}", nodes={"a": None, "b": None}, links=[["a", "b"]]) as lab:
        capture = Capture(lab, "a", file=tmp_path / "a.pcapng").start()
        ping(lab, "a", "b", count=1, timeout=5)
        await_true(lambda: len(pcapng.read(tmp_path / "a.pcapng").packets) == 2, "two packets in the file")
        lab.down()
        assert not capture.running()
        capture.wait(1)
        result = capture.stop()
    assert (result.files, result.error) == ((tmp_path / "a.pcapng",), "it was ended from outside")
    assert len(pcapng.read(tmp_path / "a.pcapng").packets) == 2
