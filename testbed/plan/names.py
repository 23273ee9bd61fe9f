"""Kernel names and hardware addresses that follow from readable names alone."""

from __future__ import annotations

import base64
import hashlib

MAX_IFNAME = 15
"""Longest interface name that the kernel takes (IFNAMSIZ less the closing NUL)."""


def kernel_ifname(readable: str) -> str:
    """``readable`` where it fits, else its first six characters, a tilde and a hash of all of it.

    Two long names with the same beginning get different kernel names, and the same name always gets the same one. The
    tilde, which no readable name has, keeps shortened names apart from those that fit. The hash has 40 bits: among
    1000 interfaces of one node two are alike with a probability of 5e-7, and then the plan says so.
    """
    if len(readable) <= MAX_IFNAME:
        return readable
    digest = hashlib.sha256(readable.encode()).digest()
    return f"{readable[:6]}~{base64.b32encode(digest[:5]).decode().lower()}"


def mac_address(node: str, interface: str) -> str:
    """A locally administered unicast address, the same in every run."""
    digest = hashlib.sha256(f"{node}:{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
