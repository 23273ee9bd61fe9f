"""Making a server anew: end everything in it, give it fresh files, check them, start it, see that it answers."""

from __future__ import annotations

import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import WaitTimeout
from testbed.faults.tools import programs
from testbed.net import namespace
from testbed.plan.types import Service
from testbed.pool.server import manifest
from testbed.pool.server.serving import probe_of, program_of
from testbed.runtime.base import Process

if TYPE_CHECKING:
    from testbed.pool.daemon.world import World

START_LIMIT = 20.0
"""Seconds for the server's program to answer."""
PRISTINE, IMAGE = "pristine", "image.json"
"""In the pool's folder: fresh files and their manifest by server, and the manifest of the image or programs."""
KEPT = (".log", ".jsonl")
"""What a server has written and is not thrown away with it, by the end of its name."""


class Maker(ABC):
    """One server. ``renew`` takes real time and must not be called twice at once."""

    def __init__(self, pool: World, server: str) -> None:
        self.pool, self.server = pool, server
        self.lab = pool.lab
        self.place = pool.lab.place(server)
        self.address = str(pool.service.address)
        self.program: Service = program_of(server, pool.spec, self.address)
        self.process: Process | None = None
        self._probe = probe_of(pool.spec, self.address)
        self._files, _ = manifest.load(pool.folder / PRISTINE / f"{server}.json")
        self._image, self._image_id = manifest.load(pool.folder / IMAGE)
        self.steps: dict[str, float] = {}
        """Seconds that each step of the last renewal took."""

    def renew(self) -> list[str]:
        """Make it anew; what is wrong with it then, in words, empty if it answers and all is as it must be.

        A server with wrong files is not started. Raises TestbedError where something did not work.
        """
        self.process = None
        self.steps = {}
        with self._step("destroy"):
            self.destroy()
        with self._step("files"):
            self._empty_folder()
            self._fill_folder()
            wrong = manifest.differences(self._files, self.place.folder)
        if wrong:
            return wrong
        with self._step("create"):
            self.process = self.create()
        with self._step("check"):
            wrong = self.check_image()
        if wrong:
            self.destroy()
            self.process = None
            return wrong
        with self._step("answer"):
            self._await_answer()
        return []

    def alive(self) -> bool:
        """Whether the server's program runs."""
        return self.process is not None and self.process.alive()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.steps[name] = round(time.monotonic() - start, 4)

    @abstractmethod
    def destroy(self) -> None:
        """End everything that runs in the server."""

    @abstractmethod
    def create(self) -> Process:
        """Start it."""

    @abstractmethod
    def check_image(self) -> list[str]:
        """What is wrong beside the files in its folder."""

    def _empty_folder(self) -> None:
        """Throw away what the server has, but its logs, which are what was measured."""
        kept = self.pool.folder / "kept" / f"{self.server}-{time.monotonic_ns()}"
        for entry in list(os.scandir(self.place.folder)):
            if entry.is_file(follow_symlinks=False) and entry.name.endswith(KEPT):
                kept.mkdir(parents=True, exist_ok=True)
                os.rename(entry.path, kept / entry.name)
            elif entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)

    def _fill_folder(self) -> None:
        source = self.pool.folder / PRISTINE / self.server
        for folder, folders, files in os.walk(source):
            target = self.place.folder / Path(folder).relative_to(source)
            for name in folders:
                _alike(os.path.join(folder, name), target / name, os.mkdir)
            for name in files:
                _alike(os.path.join(folder, name), target / name, lambda path, of=f"{folder}/{name}": _copy(of, path))

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while not namespace.inside(self.lab.namespace(self.server), self._probe):
            if not self.alive() or time.monotonic() > deadline:
                seen = self.process.log_tail() if self.process else "nothing"
                raise WaitTimeout("the server to answer", START_LIMIT, seen, where=f"node {self.server}")
            time.sleep(0.002)


class ProcessMaker(Maker):
    """A server whose programs are processes on the host's files. What is checked of these is the program itself."""

    def destroy(self) -> None:
        """Kill all, and again what was started meanwhile."""
        programs.kill(self.lab, self.server, None)

    def create(self) -> Process:
        """As any program of a node."""
        return self.lab.spawn(self.server, self.program)

    def check_image(self) -> list[str]:
        """The program's file is what it was when the pool was started."""
        return [f"/{text}" for text in manifest.differences_of(self._image, Path("/"))]


def program_paths(program: Service) -> list[str]:
    """Files that a program on the host consists of, as far as they are checked, as paths below the root."""
    found = shutil.which(program.argv[0], path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return [os.path.realpath(found)[1:]] if found else []


def _copy(source: str, target: Path) -> None:
    shutil.copyfile(source, target, follow_symlinks=False)


def _alike(source: str, target: Path, make: object) -> None:
    """Make something with the mode and owner of ``source``."""
    assert callable(make)
    make(target)
    status = os.lstat(source)
    os.chown(target, status.st_uid, status.st_gid)
    os.chmod(target, status.st_mode & 0o7777)
