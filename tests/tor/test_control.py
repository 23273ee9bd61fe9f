"""Control connections to a real tor: answers, events, time-outs, and a tor that is restarted."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import TestbedError, WaitTimeout
from testbed.tor.control import Control, ControlError, await_event, try_connect

pytestmark = pytest.mark.tor


class Daemon:
    """A tor without network that listens on a control socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "data" / "control"
        self._empty = folder / "empty"
        self._empty.write_text("")
        (folder / "data").mkdir(mode=0o700)
        self._options = ["--DataDirectory", str(folder / "data"), "--ControlSocket", str(self.socket)]
        self._options += ["--DisableNetwork", "1", "--SocksPort", "0", "--quiet"]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = ["tor", "-f", str(self._empty), "--defaults-torrc", str(self._empty), *self._options]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + 20
        while (control := try_connect("node", self.socket)) is None:
            assert time.monotonic() < deadline, "tor does not listen"
            assert self.process.poll() is None, "tor has ended"
            time.sleep(0.02)
        control.close()

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A tor of the test's own."""
    tmp_path.chmod(0o700)
    daemon = Daemon(tmp_path)
    try:
        yield daemon
    finally:
        daemon.end()


def test_answers(daemon: Daemon) -> None:
    """Values of one line and of many, options, and refusals that name the node and the command."""
    with Control("relay1", daemon.socket) as control:
        assert control.getinfo("version")
        assert control.getinfo("config-text").splitlines()[0].startswith("ControlSocket")
        control.setconf(Nickname="abc", CircuitBuildTimeout=20)
        assert "Nickname abc" in control.getinfo("config-text")
        with pytest.raises(ControlError, match=r"relay1: tor refused 'GETINFO nonsense'"):
            control.getinfo("nonsense")
        assert control.getinfo("version"), "a refusal is not the end of the connection"


def test_events_wait_for_their_reader(daemon: Daemon) -> None:
    """Events that arrive during a command are kept, in order; waiting for one takes no more time than it."""
    with Control("relay1", daemon.socket) as control:
        control.subscribe("CONF_CHANGED")
        control.setconf(Nickname="one")
        control.setconf(Nickname="two")
        first = await_event(control, lambda event: "Nickname=one" in event, "the first change", 5)
        assert first.startswith("CONF_CHANGED")
        await_event(control, lambda event: "Nickname=two" in event, "the second change", 5)
        assert control.drain() == []
        with pytest.raises(WaitTimeout, match=r"relay1: waited 0.2 s for a third; seen: 0 other events"):
            await_event(control, lambda event: True, "a third", 0.2)
        assert control.getinfo("version"), "a time-out of an event loses nothing"


def test_a_tor_that_hangs_is_told_from_one_that_is_gone(daemon: Daemon) -> None:
    """No answer in time is an error that says so; afterwards the connection is made anew."""
    with Control("relay1", daemon.socket, timeout=0.5) as control:
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ControlError, match=r"relay1: tor did not answer 'GETINFO version'"):
                control.getinfo("version")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 10
        while True:
            try:
                assert control.getinfo("version")
                break
            except TestbedError:
                assert time.monotonic() < deadline


def test_c19_reconnects_after_a_restart(daemon: Daemon) -> None:
    """C19: a restarted tor costs a gap, which is told, and not the controller; events go on."""
    gaps: list[str] = []
    with Control("relay1", daemon.socket, on_gap=gaps.append) as control:
        control.subscribe("CONF_CHANGED")
        daemon.end()
        daemon.start()
        assert control.getinfo("version")
        assert len(gaps) == 1
        control.setconf(Nickname="again")
        await_event(control, lambda event: "Nickname=again" in event, "the change", 5)


def test_c19_a_tor_that_stays_away_is_an_error(daemon: Daemon) -> None:
    """The error names the node and the socket; another command may try again."""
    with Control("relay1", daemon.socket) as control:
        daemon.end()
        with pytest.raises(ControlError, match=r"relay1: tor is gone"):
            control.getinfo("version")
        with pytest.raises(ControlError, match=r"relay1: tor is gone"):
            control.getinfo("version")
        daemon.start()
        assert control.getinfo("version")


def test_nobody_there(tmp_path: Path) -> None:
    """No socket is no connection yet."""
    assert try_connect("relay1", tmp_path / "control") is None
