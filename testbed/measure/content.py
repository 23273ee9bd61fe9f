"""The file that a service under test serves: the same bytes for the same size and seed, and nothing to compress."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

_BLOCK = 1 << 20


def content_blocks(size: int, seed: int = 0) -> Iterator[bytes]:
    """``content`` in pieces of at most 1 MiB, for files that should not stand in memory."""
    for start in range(0, size, _BLOCK):
        name = f"testbed content {seed} {start // _BLOCK}"
        yield hashlib.shake_256(name.encode()).digest(min(_BLOCK, size - start))


def content(size: int, seed: int = 0) -> bytes:
    """``size`` pseudo-random bytes: SHAKE-256 (FIPS 202) of seed and block number."""
    return b"".join(content_blocks(size, seed))


@lru_cache(maxsize=64)
def content_digest(size: int, seed: int = 0) -> str:
    """SHA-256 of ``content``, hexadecimal."""
    digest = hashlib.sha256()
    for block in content_blocks(size, seed):
        digest.update(block)
    return digest.hexdigest()
