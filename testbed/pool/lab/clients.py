"""Clients that verify every byte and time every pause, in a node of the lab; see ``testbed.pool.web.client``."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

from testbed.errors import ApplyError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.pool.lab import fileserver


class Clients:
    """Connections under way; made once all of them stand. ApplyError if they cannot be opened.

    ``path`` is fetched again and again on each of ``connections``, with a ``pause`` between requests, for ``seconds``
    or until ``finish``; with ``upload``, so many bytes are sent instead. ``trace``: the longest pause of each stretch
    of so many seconds.
    """

    def __init__(
        self,
        lab: Lab,
        node: str,
        address: str,
        *,
        path: str = "/",
        connections: int = 1,
        seconds: float = 60.0,
        pause: float = 0.0,
        upload: int = 0,
        trace: float = 0.0,
    ) -> None:
        self.node = node
        folder = lab.node_folder(node)
        for name, text in fileserver.files().items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        words = ["env", f"PYTHONPATH={folder}", "python3", "-m", f"{fileserver.PACKAGE}.client", address]
        words += ["--path", path, "--connections", str(connections), "--seconds", str(seconds)]
        words += ["--pause", str(pause), "--upload", str(upload), "--trace", str(trace)]
        self._process = subprocess.Popen(
            lab.command(node, words),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise ApplyError(f"the clients ended: {self._process.communicate()[1].strip()}", where=f"node {node}")

    def finish(self) -> dict[str, Any]:
        """Begin no more requests; what became of them, once those under way are through."""
        self._process.send_signal(signal.SIGTERM)
        return self.result()

    def break_off(self) -> dict[str, Any]:
        """End at once, and say what was until now."""
        self._process.send_signal(signal.SIGINT)
        return self.result()

    def result(self, timeout: float = 60) -> dict[str, Any]:
        """What became of them, once they are through. WaitTimeout if they are not in time."""
        try:
            out, said = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise WaitTimeout("the clients to end", timeout, "they are under way", where=f"node {self.node}") from error
        finally:
            self._process.kill()
            self._process.wait()
        if self._process.returncode:
            raise ApplyError(f"the clients failed: {said.strip()}", where=f"node {self.node}")
        found: dict[str, Any] = json.loads(out)
        return found
