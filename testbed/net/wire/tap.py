"""Persistent TAP devices: made and opened in a namespace, read and written anywhere.

The functions act on the namespace of the calling thread (see ``testbed.net.namespace.enter``). A TAP outlives whoever
has it open; without a reader it has no carrier, and what is sent into it is dropped. Addresses and routes stay.
Kernel interface: linux/if_tun.h, Documentation/networking/tuntap.rst.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from pathlib import Path

from testbed.errors import ApplyError
from testbed.net.netlink import Netlink, Request

_TUNSETIFF, _TUNSETPERSIST, _TUNSETOFFLOAD, _TUNSETCARRIER = 0x400454CA, 0x400454CB, 0x400454D0, 0x400454E2
_TAP, _NO_PI, _VNET_HDR = 0x2, 0x1000, 0x4000
_SIOCGIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8913, 0x1, 0x40
_RTM_SETLINK, _REQUEST, _ACK = 19, 0x1, 0x4
_SENT_DROPPED = 11
"""Column of /proc/net/dev behind the name."""
_CSUM, _TSO4, _TSO6, _TSO_ECN = 1, 2, 4, 8
VNET_HEADER = 10
"""Bytes of struct virtio_net_hdr before each frame: it tells which checksum and which segmentation are still to do."""
LONGEST_FRAME = VNET_HEADER + 14 + 4 + 65535
QUEUE = 2000
"""Frames that may wait in the device for the core to read them: 20 ms at 100 000 frames a second."""

_SYS_PIDFD_GETFD = 438  # the same on every architecture
_libc = ctypes.CDLL(None, use_errno=True)


def create(ifname: str) -> None:
    """Make a persistent TAP, down and without addresses. ApplyError if the name is taken or the kernel cannot."""
    fd = _attach(ifname, "make")
    try:
        fcntl.ioctl(fd, _TUNSETPERSIST, 1)
    finally:
        os.close(fd)


def open_tap(ifname: str, deadline: float = 0) -> int:
    """A descriptor, not blocking, of an existing persistent TAP. ApplyError if there is none, or if it is in use and
    still is at ``deadline`` (monotonic): the kernel closes the files of a process a little after its death."""
    if not exists(ifname):
        raise ApplyError(f"there is no interface {ifname}")
    while True:
        try:
            return _attach(ifname, "open")
        except ApplyError as error:
            in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EBUSY
            if not in_use or time.monotonic() > deadline:
                raise
        time.sleep(0.001)


def exists(ifname: str) -> bool:
    """Whether the calling thread's namespace has an interface of that name."""
    return bool(_libc.if_nametoindex(ifname.encode()))


def _attach(ifname: str, doing: str) -> int:
    try:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ApplyError(f"cannot open /dev/net/tun: {error.strerror}", remedy=_remedy(error)) from error
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", ifname.encode(), _TAP | _NO_PI | _VNET_HDR))
    except OSError as error:
        os.close(fd)
        raise ApplyError(f"cannot {doing} the TAP {ifname}: {error.strerror}", remedy=_remedy(error)) from error
    return fd


def _remedy(error: OSError) -> str:
    remedies = {
        errno.ENOENT: "this machine has no TUN driver: `modprobe tun`, or give the container /dev/net/tun",
        errno.EPERM: "run as root",
        errno.EACCES: "run as root",
        errno.EBUSY: "another process has it open, or an interface of another kind has that name",
        errno.EINVAL: "an interface of another kind has that name",
    }
    return remedies.get(error.errno or 0, "")


def set_joined(fd: int, joined: bool) -> None:
    """Whether the kernel may hand over runs of TCP segments as one frame, with checksums still to be computed. May
    wait for the kernel's network configuration lock."""
    fcntl.ioctl(fd, _TUNSETOFFLOAD, _CSUM | _TSO4 | _TSO6 | _TSO_ECN if joined else 0)


def set_carrier(fd: int, on: bool) -> None:
    """Plug or pull the cable, as the interface sees it. May wait for the kernel's network configuration lock."""
    fcntl.ioctl(fd, _TUNSETCARRIER, struct.pack("i", on))


def is_ready(ifname: str) -> bool:
    """Whether the interface sends what it is given, once ``settle`` has been called. The kernel takes note of a carrier
    a little later than it comes, and drops everything until then. True also for an interface that is set down: that is
    somebody's will."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH22x", ifname.encode(), 0))
    flags = struct.unpack_from("=H", answer, 16)[0]
    return not flags & _IFF_UP or bool(flags & _IFF_RUNNING)


def dropped(ifname: str) -> int:
    """Frames that an interface of this namespace could not send. ApplyError if there is none of that name."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == ifname:
            return int(numbers.split()[_SENT_DROPPED])
    raise ApplyError(f"there is no interface {ifname}")


def settle() -> None:
    """Wait until what the kernel is configuring in this namespace is done. It shows a carrier before it lets packets
    through, both under the lock that this request for no change at all takes too."""
    netlink = Netlink()
    try:
        request = struct.pack("=IHHII", 32, _RTM_SETLINK, _REQUEST | _ACK, 0, 0) + struct.pack("=BxHiII", 0, 0, 1, 0, 0)
        netlink.apply("a namespace", [Request("no change", bytearray(request))])
    finally:
        netlink.close()


def borrow(pidfd: int, number: int) -> int:
    """A copy of descriptor ``number`` of another process (pidfd_getfd(2)); close it soon: a copy keeps the carrier."""
    fd: int = _libc.syscall(_SYS_PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd
