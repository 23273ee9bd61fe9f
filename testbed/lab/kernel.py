"""Asks the kernel what it can do, by doing it, in a network namespace that nobody else sees.

Run as a program (``python -m testbed.lab.kernel``) it enters a namespace of its own, tries each feature there and
prints the answers as JSON; the namespace ends with it. The caller's namespace is never touched.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.lab.programs import find

_NEW_NET, _NEW_USER = 0x40000000, 0x10000000  # sched.h
_TUNSETIFF, _TAP_WITHOUT_HEADER = 0x400454CA, 0x1002  # linux/if_tun.h

OK = ""
Answers = dict[str, str]
"""Feature to the reason why it is not there, empty where it is."""


def ask(timeout: float = 30) -> Answers:
    """Try the features in a child process. The only answer is ``namespaces`` where no namespace could be had."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "testbed.lab.kernel"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        answers: Answers = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"namespaces": f"the probe did not end within {timeout:g} s"}
    except ValueError:
        return {"namespaces": f"the probe failed: {done.stderr.strip()[-200:]}"}
    return answers


def main() -> None:
    """Enter a namespace, try everything, print the answers."""
    answers: Answers = {"namespaces": _enter()}
    if answers["namespaces"] == OK:
        answers |= _try_all()
    print(json.dumps(answers))


def _enter() -> str:
    """A network namespace of our own; without root in a user namespace of our own, where the system allows that."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_NET if uid == 0 else _NEW_NET | _NEW_USER):
        return os.strerror(ctypes.get_errno())
    if uid != 0:
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        except OSError as error:
            return error.strerror or str(error)
    return OK


def _try_all() -> Answers:
    from pyroute2 import IPRoute

    with IPRoute() as route:
        lo = route.link_lookup(ifname="lo")[0]
        tries: dict[str, Callable[[], Any]] = {
            "veth": lambda: route.link("add", ifname="p0", kind="veth", peer={"ifname": "p1"}),
            "bridge": lambda: route.link("add", ifname="br", kind="bridge"),
            "tbf": lambda: _queue(route, lo, "tbf", rate="1mbit", burst=2000, latency="50ms"),
            "netem": lambda: _queue(route, lo, "netem", delay=1000),
            "tun": _tap,
            "forwarding": lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"),
            "nft": lambda: _nft("type nat hook postrouting priority 100; masquerade;"),
            "synproxy": lambda: _nft("type filter hook forward priority 0; ct state invalid synproxy mss 9 wscale 7;"),
        }
        return {name: _try(action) for name, action in tries.items()}


def _try(action: Callable[[], Any]) -> str:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        action()
    except NetlinkError as error:
        return os.strerror(error.code)
    except OSError as error:
        return error.strerror or str(error)
    return OK


def _queue(route: Any, index: int, kind: str, **settings: Any) -> None:
    route.tc("add", kind, index, handle=0x10000, parent=0xFFFFFFFF, **settings)
    route.tc("del", index=index, handle=0x10000, parent=0xFFFFFFFF)


def _tap() -> None:
    import fcntl
    import struct

    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", b"tap0", _TAP_WITHOUT_HEADER))
    finally:
        os.close(descriptor)


def _nft(chain: str) -> None:
    program = find("nft")
    if program is None:
        raise OSError("there is no program nft")
    rules = f"table ip probe {{ chain c {{ {chain} }}; }}; delete table ip probe"
    done = subprocess.run([program, "-f", "-"], input=rules, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip().splitlines()[0])


if __name__ == "__main__":
    main()
