"""Blinded keys of v3 onion services (rend-spec-v3 appendix A [KEYBLIND]). Pure.

Not constant-time: good for public keys, and for secret ones only where nobody can time it. One blinding or signature
takes a few milliseconds.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_Q = 2**255 - 19
_D = -121665 * pow(121666, -1, _Q) % _Q
_SQRT_MINUS_ONE = pow(2, (_Q - 1) // 4, _Q)
_ORDER = 2**252 + 27742317777372353535851937790883648493
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
    return _encode(_multiply(_decode(public), _factor(public, period, length)))


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


_BASE = _decode((4 * pow(5, -1, _Q) % _Q).to_bytes(32, "little"))


@dataclass(frozen=True, slots=True)
class BlindedSigner:
    """The key pair that a service signs with in one time period."""

    public: bytes
    _scalar: int
    _prefix: bytes

    @classmethod
    def make(cls, expanded: bytes, period: int, length: int) -> BlindedSigner:
        """From the 64-byte secret identity key as tor stores it; ``length`` in minutes."""
        identity = int.from_bytes(expanded[:32], "little")
        factor = _factor(_encode(_multiply(_BASE, identity)), period, length)
        scalar = identity * factor % _ORDER
        prefix = hashlib.sha512(b"Derive temporary signing key hash input" + expanded[32:]).digest()[:32]
        return cls(_encode(_multiply(_BASE, scalar)), scalar, prefix)

    @property
    def secret(self) -> bytes:
        """The 64 bytes of the secret key, as tor has it."""
        return self._scalar.to_bytes(32, "little") + self._prefix

    def sign(self, message: bytes) -> bytes:
        """An ed25519 signature (RFC 8032 section 5.1.6)."""
        nonce = _hash_number(self._prefix + message)
        point = _encode(_multiply(_BASE, nonce))
        answer = (nonce + _hash_number(point + self.public + message) * self._scalar) % _ORDER
        return point + answer.to_bytes(32, "little")


def public_of(expanded: bytes) -> bytes:
    """The public key of a 64-byte secret key as tor stores it."""
    return _encode(_multiply(_BASE, int.from_bytes(expanded[:32], "little")))


def _hash_number(data: bytes) -> int:
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % _ORDER


def _factor(public: bytes, period: int, length: int) -> int:
    factor = bytearray(blinding_factor(public, period, length))
    factor[0] &= 248
    factor[31] &= 63
    factor[31] |= 64
    return int.from_bytes(factor, "little")
