"""``python -m testbed.tor.balance.supervisor SETTINGS.json``: keeps an OnionBalance at work.

OnionBalance does not survive a restart of the tor that it controls: its connection stays closed for ever. So when that
tor goes, OnionBalance is ended, and begun anew once tor is back; likewise when it ends by itself. Each is an event.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from testbed.errors import TestbedError
from testbed.tor.balance.settings import BalancerSettings
from testbed.tor.control import Control
from testbed.tor.distribute.endpoint import try_connect
from testbed.tor.distribute.journal import Journal

PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before OnionBalance is begun again, by how often it has ended in a row."""
STEADY = 30.0
"""Seconds after which it counts as having worked."""
LOG = "onionbalance.log"
_TICK = 0.2


class Supervisor:
    """One OnionBalance and the tor that it controls."""

    def __init__(self, settings: BalancerSettings, path: Path, journal: Journal) -> None:
        self._settings, self._path, self._journal = settings, path, journal
        self._stop = threading.Event()
        self._failures = 0
        self._gaps: list[str] = []

    def stop(self) -> None:
        """End OnionBalance and the supervisor soon."""
        self._stop.set()

    def run(self) -> None:
        """Work until ``stop``."""
        lost_at: float | None = None
        while not self._stop.is_set():
            control = self._reach()
            if control is None:
                break
            if lost_at is not None:
                self._journal.event("control_gap", "", seconds=round(time.monotonic() - lost_at, 3))
            lost_at = self._watch(control)
            control.close()
            if self._failures:
                self._stop.wait(PAUSES[min(self._failures, len(PAUSES)) - 1])

    def _reach(self) -> Control | None:
        """A connection to tor, as soon as it can be had and tor has a consensus; None when it is time to stop."""
        while not self._stop.is_set():
            try:
                control = try_connect("tor", self._settings.control, on_gap=self._gaps.append)
                if control is not None and control.getinfo("status/enough-dir-info") == "1":
                    return control
            except TestbedError:
                control = None
            if control is not None:
                control.close()
            self._stop.wait(_TICK)
        return None

    def _watch(self, control: Control) -> float | None:
        """Run OnionBalance while tor is there and it lasts; when tor was lost, or None if it was not."""
        begun = time.monotonic()
        with (Path(self._settings.folder) / LOG).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "testbed.tor.balance.child", str(self._path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._journal.event("balancer_started", pid=child.pid)
        try:
            while not self._stop.is_set():
                if child.poll() is not None:
                    self._failures = 0 if time.monotonic() - begun > STEADY else self._failures + 1
                    self._journal.event("balancer_ended", status=child.returncode, said=_last_line(log.name))
                    return None
                control.next_event(_TICK)
                if self._gaps:  # it was restarted and is there again already
                    raise TestbedError(self._gaps.pop())
        except TestbedError as error:
            self._journal.event("control_lost", why=error.what)
            self._failures = 0
            return time.monotonic()
        finally:
            _end(child)
        return None


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _last_line(path: str) -> str:
    lines = Path(path).read_text(errors="replace").splitlines()
    return lines[-1] if lines else ""


def main(path: Path) -> int:
    """The exit status."""
    settings = BalancerSettings.model_validate_json(path.read_text())
    supervisor = Supervisor(settings, path, Journal(Path(settings.folder)))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
