"""Network namespaces: make, adopt, enter and remove them, without leaving the calling thread's own.

A namespace is kept by a bind mount of its ``ns/net`` file in a folder of our own. Not in ``/run/netns``: the first
``ip netns add`` of anybody binds that folder onto itself, and what was mounted in it before cannot be unmounted then.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

NETNS_FOLDER = Path("/run/testbed/netns")

_CLONE_NEWNET = 0x40000000
_MS_BIND = 4096
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


def _check(result: int, doing: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


def _bind(source: Path, target: Path) -> None:
    target.touch(mode=0o444, exist_ok=False)
    try:
        _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND, None), f"mount {target}")
    except OSError:
        target.unlink(missing_ok=True)
        raise


def in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread of its own, which may change its namespace, and return or raise what it does.

    Ctrl-C meanwhile is raised once the thread has ended, so that what it makes is not made behind a clean-up's back.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)
        finally:
            over.set()

    with interrupts_held_back():
        threading.Thread(target=run, name="namespace-worker").start()
        over.wait()
    if failure:
        raise failure[0]
    return outcome[0]


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Ctrl-C during the block is handled after it. An exception can come between any two steps, so none may come."""
    pressed = threading.Event()
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield  # nobody interrupts other threads; and one that is None could not be put back
        return
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed.is_set():
            signal.raise_signal(signal.SIGINT)


def unshare() -> None:
    """Move the calling thread into a new, empty network namespace."""
    _check(_libc.unshare(_CLONE_NEWNET), "unshare a network namespace")


def enter(namespace: Path) -> None:
    """Move the calling thread into ``namespace``; meant for threads that end there."""
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(fd, _CLONE_NEWNET), f"enter {namespace}")
    finally:
        os.close(fd)


def inside(namespace: Path, work: Callable[[], T]) -> T:
    """Run ``work`` inside ``namespace`` and return what it returns. Sockets that it opens stay there."""

    def run() -> T:
        enter(namespace)
        return work()

    return in_thread(run)


def keep_current(target: Path) -> None:
    """Give the calling thread's namespace the name ``target``. OSError if that exists."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _bind(Path("/proc/thread-self/ns/net"), target)


def adopt(pid: int, target: Path) -> None:
    """Give the namespace of process ``pid`` the name ``target``, which outlives the process."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _bind(Path(f"/proc/{pid}/ns/net"), target)


def remove(target: Path) -> None:
    """Take the name away; the kernel destroys the namespace once nothing else holds it. Missing is fine."""
    while _libc.umount2(os.fsencode(target), _MNT_DETACH) == 0:
        pass  # mounted more than once only if someone else did so; the name must not survive that
    target.unlink(missing_ok=True)
