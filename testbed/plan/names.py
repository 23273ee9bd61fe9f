"""Kernel names and hardware addresses that follow from readable names alone."""

from __future__ import annotations

import hashlib

MAX_IFNAME = 15
"""Longest interface name that the kernel takes (IFNAMSIZ less the closing NUL)."""


def kernel_ifname(readable: str) -> str:
    """``readable`` where it fits, else its first eight characters and a hash of all of it.

    Two long names with the same beginning get different kernel names, and the same name always gets the same one.
    """
    if len(readable) <= MAX_IFNAME:
        return readable
    return f"{readable[:8]}-{hashlib.sha256(readable.encode()).hexdigest()[:6]}"


def mac_address(node: str, interface: str) -> str:
    """A locally administered unicast address, the same in every run."""
    digest = hashlib.sha256(f"{node}:{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
