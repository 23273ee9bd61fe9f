"""Control ports of any tor, and what the command says when something is wrong. Real tors, without a network."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.errors import TestbedError
from testbed.tor.control import ControlError
from testbed.tor.distribute.endpoint import connect, parse_endpoint, try_connect
from testbed.tor.distribute.handover import publish_alone, publish_no_more, publishes
from testbed.tor.protocol.keys import Ed25519Key, hidden_service_files, onion_address

KEY = Ed25519Key(b"k" * 32)
Start = Callable[..., str]


@pytest.fixture
def start_tor(tmp_path: Path) -> Iterator[Start]:
    """Starts tors without network; returns the control port of each, ``127.0.0.1:PORT``."""
    processes = []

    def start(*options: str, name: str = "data") -> str:
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        empty, port_file = folder / "empty", folder / "port"
        empty.write_text("")
        command = ["tor", "-f", str(empty), "--defaults-torrc", str(empty), "--DataDirectory", str(folder / "tor")]
        command += ["--ControlPort", "127.0.0.1:auto", "--ControlPortWriteToFile", str(port_file)]
        command += ["--DisableNetwork", "1", "--SocksPort", "0", "--quiet", *options]
        process = subprocess.Popen(command)
        processes.append(process)
        deadline = time.monotonic() + 20
        while not port_file.exists():
            assert process.poll() is None, "tor has ended"
            assert time.monotonic() < deadline, "tor does not listen"
            time.sleep(0.02)
        return port_file.read_text().strip().removeprefix("PORT=")

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A HiddenServiceDir."""
    folder = tmp_path / "service"
    folder.mkdir(mode=0o700)
    for name, content in hidden_service_files(KEY).items():
        (folder / name).write_bytes(content)
    return folder


def refused_port() -> str:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_endpoints() -> None:
    """A path or host and port; anything else is told."""
    assert parse_endpoint("/run/tor/control") == Path("/run/tor/control")
    assert parse_endpoint("/odd:1234/control") == Path("/odd:1234/control")
    assert parse_endpoint("control") == Path("control")
    assert parse_endpoint("127.0.0.1:9051") == ("127.0.0.1", 9051)
    assert parse_endpoint("[::1]:9051") == ("::1", 9051)
    for wrong in ("host:", "host:port", ":9051", "host:70000"):
        with pytest.raises(TestbedError, match="is no control port\n  write HOST:PORT"):
            parse_endpoint(wrong)


@pytest.mark.tor
def test_authentication(start_tor: Start, tmp_path: Path) -> None:
    """None, cookie as tor says where it is, cookie by name; a wrong one, no cookie, and a password are told apart."""
    with connect("open", start_tor("--CookieAuthentication", "0", name="open")) as control:
        assert control.getinfo("version")
    where = start_tor("--CookieAuthentication", "1", name="cookie")
    with connect("cookie", where) as control:
        assert control.getinfo("version")
    cookie = tmp_path / "cookie" / "tor" / "control_auth_cookie"
    with connect("cookie", where, cookie=str(cookie)) as control:
        assert control.getinfo("version")
    wrong = tmp_path / "wrong"
    wrong.write_bytes(bytes(32))
    with pytest.raises(ControlError, match="cookie: tor does not take the control cookie"):
        connect("cookie", where, cookie=str(wrong))
    wrong.write_bytes(b"short")
    with pytest.raises(ControlError, match="is no control cookie: it has 5 bytes"):
        connect("cookie", where, cookie=str(wrong))
    with pytest.raises(ControlError, match=r"cookie cannot be read: .*No such file"):
        connect("cookie", where, cookie=str(tmp_path / "nowhere"))
    hashed = "16:E600ADC1B52C80BB6022A0E999A7734571A451EB6AE50FED489B72E3DF"
    with pytest.raises(ControlError, match="wants to be told a password"):
        connect("password", start_tor("--HashedControlPassword", hashed, name="password"))


@pytest.mark.tor
def test_a_restarted_tor_has_another_cookie(start_tor: Start, tmp_path: Path) -> None:
    """C19: the new cookie is read; the gap is told."""
    gaps: list[str] = []
    where = start_tor("--CookieAuthentication", "1")
    port = int(where.rpartition(":")[2])
    control = connect("tor", where, on_gap=gaps.append)
    pid = int(control.getinfo("process/pid"))
    before = (tmp_path / "data" / "tor" / "control_auth_cookie").read_bytes()
    control.ask("SIGNAL HALT")
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert try_connect("tor", where) is None
    folder = tmp_path / "data"
    command = ["tor", "-f", str(folder / "empty"), "--defaults-torrc", str(folder / "empty"), "--SocksPort", "0"]
    command += ["--DataDirectory", str(folder / "tor"), "--ControlPort", f"127.0.0.1:{port}", "--DisableNetwork", "1"]
    again = subprocess.Popen([*command, "--CookieAuthentication", "1", "--quiet"])
    try:
        while True:
            try:
                assert control.getinfo("version")
                break
            except TestbedError:
                assert time.monotonic() < deadline + 10
                time.sleep(0.05)
        assert (folder / "tor" / "control_auth_cookie").read_bytes() != before
    finally:
        control.close()
        again.kill()
        again.wait()


@pytest.mark.tor
def test_an_instance_publishes_alone_and_no_more(start_tor: Start, service: Path, tmp_path: Path) -> None:
    """Its services are the same afterwards, with all their options in order."""
    odd = tmp_path / 'odd "name'
    odd.mkdir(mode=0o700)
    options = ["--HiddenServiceDir", str(service), "--HiddenServicePort", f"80 unix:{tmp_path}/web.sock"]
    options += ["--HiddenServiceNumIntroductionPoints", "4", "--PublishHidServDescriptors", "0"]
    with connect("h1", start_tor(*options)) as control:
        before = control.getinfo("config-text")
        assert not publishes(control)
        publish_alone(control)
        assert publishes(control)
        after = control.getinfo("config-text")
        assert [line for line in after.splitlines() if line.startswith("HiddenService")] == [
            line for line in before.splitlines() if line.startswith("HiddenService")
        ]
        publish_no_more(control)
        assert not publishes(control)


def errors(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says on its error output; it must fail."""
    assert main(["distributor", *arguments]) == 1
    return capsys.readouterr().err


def test_mistakes_are_told(service: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that nobody listens on, a missing socket, a wrong key folder, an address that does not belong."""
    state = ["--state", str(tmp_path / "state")]
    port = refused_port()
    said = errors(capsys, "--control", port, "--key", str(service), *state)
    assert f"control port {port}: nobody listens there" in said
    said = errors(capsys, "--control", str(tmp_path / "control"), "--key", str(service), *state)
    assert "there is no such socket" in said
    said = errors(capsys, "--control", port, "--key", str(tmp_path), *state)
    assert "key cannot be read" in said
    other = onion_address(Ed25519Key(b"o" * 32).public)
    said = errors(capsys, "--control", port, "--key", str(service), "--address", other, *state)
    assert f"the key is that of {onion_address(KEY.public)}, not of {other}" in said
    said = errors(capsys, "--control", port, "--control", f"{other}={port}", "--key", str(service), *state)
    assert "some instances have an address of their own and some have not" in said
    said = errors(capsys, "--control", f"nonsense={port}", "--key", str(service), *state)
    assert "not an onion address" in said or "onion address" in said


@pytest.mark.tor
def test_a_tor_without_a_network_is_told(
    start_tor: Start, service: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no consensus to go by."""
    said = errors(capsys, "--control", start_tor(), "--key", str(service), "--state", str(tmp_path / "state"))
    assert re.search(r"refused 'GETINFO dir/status-vote/current/consensus-microdesc'", said)
    wrong = tmp_path / "wrong"
    wrong.write_bytes(bytes(32))
    where = start_tor("--CookieAuthentication", "1", name="cookie")
    said = errors(
        capsys, "--control", where, "--key", str(service), "--cookie", str(wrong), "--state", str(tmp_path / "s")
    )
    assert "does not take the control cookie" in said
