"""Blinded keys of v3 onion services: the public half of rend-spec-v3 appendix A [KEYBLIND]. Pure.

Not constant-time; made for public keys only. One blinding takes a few milliseconds.
"""

from __future__ import annotations

import hashlib

_Q = 2**255 - 19
_D = -121665 * pow(121666, -1, _Q) % _Q
_SQRT_MINUS_ONE = pow(2, (_Q - 1) // 4, _Q)
_BASE_POINT = (
    b"(15112221349535400772501151409588531511454012693041857206046113283949847762202, "
    b"46316835694926478169428394003475163141307993866256225615783033603165251855960)"
)
_Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T of a point of the twisted Edwards curve (RFC 8032 section 5.1.4)."""


def blinding_factor(public: bytes, period: int, length: int) -> bytes:
    """The hash by which a key is blinded for a time period; ``length`` in minutes. Not clamped yet."""
    nonce = b"key-blind" + period.to_bytes(8) + length.to_bytes(8)
    return hashlib.sha3_256(b"Derive temporary signing key\0" + public + _BASE_POINT + nonce).digest()


def blinded_key(public: bytes, period: int, length: int) -> bytes:
    """The public key that a service signs its descriptors with in a time period."""
    factor = bytearray(blinding_factor(public, period, length))
    factor[0] &= 248
    factor[31] &= 63
    factor[31] |= 64
    return _encode(_multiply(_decode(public), int.from_bytes(factor, "little")))


def _decode(encoded: bytes) -> _Point:
    """RFC 8032 section 5.1.3."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _Q) % _Q
    x = pow(square, (_Q + 3) // 8, _Q)
    if (x * x - square) % _Q:
        x = x * _SQRT_MINUS_ONE % _Q
    if (x * x - square) % _Q or len(encoded) != 32 or y >= _Q:
        raise ValueError("not a point of the curve")
    if x % 2 != sign:
        x = _Q - x
    return x, y, 1, x * y % _Q


def _encode(point: _Point) -> bytes:
    x, y, z, _ = point
    inverse = pow(z, -1, _Q)
    x, y = x * inverse % _Q, y * inverse % _Q
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _add(p: _Point, q: _Point) -> _Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _Q, (p[1] + p[0]) * (q[1] + q[0]) % _Q
    c, d = 2 * p[3] * q[3] * _D % _Q, 2 * p[2] * q[2] % _Q
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _Q, g * h % _Q, f * g % _Q, e * h % _Q


def _multiply(point: _Point, scalar: int) -> _Point:
    result: _Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result
