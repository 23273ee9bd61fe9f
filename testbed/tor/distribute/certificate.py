"""Ed25519 certificates as descriptors have them (cert-spec 2). Pure."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

SIGNING_KEY = 8
"""Type of the certificate of a descriptor's signing key, signed by the blinded key."""
INTRO_AUTH = 9
"""Type of that of an introduction point's authentication key."""
INTRO_ENC = 11
"""Type of that of an introduction point's encryption key."""

_FIXED = 40
"""Bytes before the extensions: version, type, expiry, type of the key, the key, number of extensions."""
_SIGNATURE = 64
_SIGNED_WITH = b"\x00\x20\x04\x00"
"""Head of the extension that names the signer: length 32, type 4, no flags."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is certified, and for how long."""

    kind: int
    expires: int
    """Hours since the epoch."""
    key: bytes
    key_kind: int = 1


def parse_certificate(raw: bytes) -> Certificate:
    """ValueError for what is no version 1 certificate. The signature is not checked."""
    if len(raw) < _FIXED + _SIGNATURE or raw[0] != 1:
        raise ValueError("not a version 1 ed25519 certificate")
    return Certificate(kind=raw[1], expires=int.from_bytes(raw[2:6]), key=raw[7:39], key_kind=raw[6])


def signer_of(raw: bytes) -> bytes:
    """The key that a certificate says it is signed with; ValueError if it does not say."""
    at = _FIXED
    for _ in range(raw[39]):
        length, kind = int.from_bytes(raw[at : at + 2]), raw[at + 2]
        if kind == 4 and length == 32:
            return raw[at + 4 : at + 36]
        at += 4 + length
    raise ValueError("the certificate does not say whose signature it has")


def make_certificate(certificate: Certificate, signer: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """A certificate signed by the key ``signer``."""
    head = bytes([1, certificate.kind]) + certificate.expires.to_bytes(4) + bytes([certificate.key_kind])
    body = head + certificate.key + b"\x01" + _SIGNED_WITH + signer
    return body + sign(body)


def armoured(label: str, content: bytes) -> str:
    """PEM as tor writes it, without a newline at the end."""
    lines = textwrap.wrap(base64.b64encode(content).decode(), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])
