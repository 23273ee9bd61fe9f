"""What a lab leaves on disk while it exists, and who may touch it: one folder and one lock a lab.

The folder is made first and removed last, so that whatever happens in between is found again by the next command.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from testbed.errors import TestbedError
from testbed.lab.spread import spread
from testbed.net.impair import EngineName
from testbed.runtime.base import start_time

DEFAULT_STATE = "/var/lib/testbed"
Status = Literal["starting", "up", "failed", "stopping"]
"""``failed``: it did not come up, and was left to be looked at."""


def state_root() -> Path:
    """The state folder: ``$TESTBED_STATE`` or /var/lib/testbed."""
    return Path(os.environ.get("TESTBED_STATE", DEFAULT_STATE))


def lab_id(name: str) -> str:
    """Eight hexadecimal digits that stand for a lab on this machine; two state folders never share one."""
    root = os.path.realpath(state_root())
    key = name if root == DEFAULT_STATE else f"{root}\0{name}"
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def boot_id() -> str:
    """Names the running kernel's boot: what was up in another boot is gone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Record:
    """The facts about a lab that its plan does not have."""

    id: str
    name: str
    topology: str
    """Where it was started from; for messages only."""
    status: Status
    boot: str
    started: float
    """Wall clock, seconds since the epoch."""
    impair: EngineName | None = None
    """What impairs links; None: no link has needed it so far."""
    runtime: str | None = None
    """Runtime of all nodes where the user overrode the topology."""
    owner_pid: int | None = None
    """Process whose end makes the lab reapable; None: the lab stays until ``down``."""
    owner_started: int | None = None
    warm: bool = False
    """Whether subsystems may start with what an earlier start of the same plan has left for that."""

    def alive(self) -> bool:
        """Whether the lab is there and wanted: not a leftover of another boot, a dead owner or an interrupted start."""
        if self.status not in ("up", "failed") or self.boot != boot_id():
            return False
        return self.owner_pid is None or start_time(self.owner_pid) == self.owner_started


class Folder:
    """The folder of one lab."""

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.path = state_root() / "labs" / identity

    @property
    def plan(self) -> Path:
        """The plan as JSON."""
        return self.path / "plan.json"

    @property
    def events(self) -> Path:
        """One JSON object a line, as they happened."""
        return self.path / "events.jsonl"

    @property
    def processes(self) -> Path:
        """One JSON object a started program."""
        return self.path / "processes.jsonl"

    def node(self, name: str) -> Path:
        """A node's own folder."""
        return self.path / "nodes" / name

    def exists(self) -> bool:
        """Whether the lab has any state."""
        return self.path.exists()

    def create(self) -> None:
        """Make the folder. Others may pass through it (programs run unprivileged) but not list it."""
        self.path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o711)
        nodes = self.path / "nodes"
        nodes.mkdir(mode=0o711)
        spread(nodes)

    def read(self) -> Record | None:
        """The record; None where an interrupted start did not come to write one."""
        try:
            return Record(**json.loads((self.path / "lab.json").read_text()))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None

    def write(self, record: Record) -> None:
        """Replace the record in one step."""
        write_atomically(self.path / "lab.json", json.dumps(asdict(record), indent=1))

    def set_status(self, status: Status) -> None:
        """Change the status alone."""
        record = self.read()
        if record:
            self.write(replace(record, status=status))

    def remove(self) -> None:
        """Remove all state."""
        shutil.rmtree(self.path, ignore_errors=False) if self.path.exists() else None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one.

    It is not forced to the disk: what it tells of lives no longer than the machine is up, and a file that a power loss
    has spoilt counts as one that was never written.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.write_text(text)
    fresh.replace(path)


@contextmanager
def locked(identity: str, name: str, *, timeout: float = 60) -> Iterator[None]:
    """Hold a lab's lock, which the kernel releases when the holder dies.

    Raises TestbedError when another process still starts or stops the lab after ``timeout`` seconds.
    """
    folder = state_root() / "locks"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / identity, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise TestbedError(f"no access to {folder}", remedy="run as root") from error

    def refusal(holder: str) -> TestbedError:
        message = f"lab {name!r} is being started or stopped by process {holder}"
        return TestbedError(message, remedy="wait for it, or end that process")

    with lock_held(descriptor, timeout, refusal):
        yield


@contextmanager
def lock_held(descriptor: int, timeout: float, refusal: Callable[[str], TestbedError]) -> Iterator[None]:
    """Hold the lock of an open file, and close the file afterwards.

    Raises ``refusal`` of the pid that holds it when ``timeout`` seconds have passed.
    """
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise refusal(os.pread(descriptor, 20, 0).decode().strip() or "unknown") from None
                time.sleep(0.01)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(identity: str) -> bool:
    """Whether a living process is starting or stopping the lab at this moment."""
    try:
        descriptor = os.open(state_root() / "locks" / identity, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def all_labs() -> list[Folder]:
    """Folders of all labs that have state here, whatever their status."""
    root = state_root() / "labs"
    try:
        return [Folder(entry.name) for entry in sorted(root.iterdir(), key=lambda entry: entry.name)]
    except (FileNotFoundError, PermissionError):
        return []
