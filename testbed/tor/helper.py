"""A program of a lab that stands beside its nodes: it has no network, and works through unix sockets alone.

It carries the lab's mark, so it ends with the lab; what it says in its ``events.jsonl`` is made events of the lab.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import testbed
from testbed.errors import ApplyError, TestbedError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.lab.state import state_root
from testbed.runtime.base import LAB_VARIABLE, Process, log_tail, start_time
from testbed.tor.distribute.journal import EVENTS, STATUS, read_json

_TICK = 0.1
_END = 5.0
"""Seconds for the program to end by itself after SIGTERM."""


class Helper:
    """One program, by the folder that it works in. Several handles may exist for it, in several processes."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.name = name
        self.folder = lab.folder / "publish" / name
        self._lab = lab

    @property
    def log(self) -> Path:
        """Its output."""
        return self.folder / "output.log"

    def fresh(self, keep: tuple[str, ...] = ()) -> Path:
        """Its folder, empty but for the files in ``keep``."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path.name not in keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return self.folder

    def start(self, module: str, settings: str, **detail: Any) -> None:
        """Start ``python -m module SETTINGS.json``; its events become the lab's, with ``detail``."""
        path = self.folder / "settings.json"
        path.write_text(settings)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(Path(testbed.__file__).parents[1]),
            "TESTBED_STATE": str(state_root()),
            LAB_VARIABLE: self._lab.id,
        }
        with self.log.open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", module, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        started = start_time(child.pid)
        process = Process("", self.name, child.pid, -1 if started is None else started, self.log, child)
        (self.folder / "process.json").write_text(json.dumps({"pid": process.pid, "started": process.started}))
        self._lab.event("helper_started", program=module, pid=child.pid, **detail)
        threading.Thread(target=self._follow, args=(process, detail), name=f"follow-{self.name}", daemon=True).start()

    def process(self) -> Process | None:
        """The program, if it runs."""
        facts = read_json(self.folder / "process.json")
        if not facts:
            return None
        process = Process("", self.name, facts["pid"], facts["started"], self.log)
        return process if process.alive() else None

    def require(self) -> None:
        """ApplyError with its last words if it does not run."""
        if self.process() is None:
            raise ApplyError(f"{self.name} ended; its last words:\n{log_tail(self.log, 6)}")

    def status(self) -> dict[str, Any]:
        """What it last wrote as its state."""
        return read_json(self.folder / STATUS)

    def stop(self) -> bool:
        """End it, with all that it started; whether it ran."""
        process = self.process()
        if process is None:
            return False
        process.signal(signal.SIGTERM)
        try:
            process.wait_gone(_END)
        except WaitTimeout:
            if start_time(process.pid) == process.started:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait_gone(_END)
        return True

    def _follow(self, process: Process, detail: dict[str, Any]) -> None:
        """Pass its events on until it has ended."""
        read = 0
        over = False
        while not over:
            over = not process.alive()
            try:
                with (self.folder / EVENTS).open("rb") as file:
                    file.seek(read)
                    while (line := file.readline()).endswith(b"\n"):
                        read += len(line)
                        self._pass_on(json.loads(line), detail)
            except FileNotFoundError:
                pass
            except (OSError, TestbedError):
                return
            if not over:
                time.sleep(_TICK)

    def _pass_on(self, event: dict[str, Any], detail: dict[str, Any]) -> None:
        kind, node = event.pop("kind"), event.pop("node")
        moment = event.pop("t")
        event.pop("wall", None)
        self._lab.event(kind, node, **{**event, **detail, "happened": moment})
