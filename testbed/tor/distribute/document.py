"""Reading an instance's descriptor, and making a new one of introduction points from one or several (rend-spec-v3 2).

An introduction point's own keys stay as they are; their certificates are made anew, since they are signed with the
descriptor's signing key. What else the innermost layer says is kept where all instances say the same: without the line
``flow-control`` clients would not use congestion control, without ``create2-formats`` it is no descriptor.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from testbed.tor.distribute.certificate import (
    INTRO_AUTH,
    INTRO_ENC,
    SIGNING_KEY,
    Certificate,
    armoured,
    make_certificate,
    parse_certificate,
    signer_of,
)
from testbed.tor.distribute.layers import LayerKey, open_layers, seal_layers
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.descriptor import parse_outer

MAX_POINTS = 20
"""Introduction points in a descriptor; a client refuses one with more (HS_CONFIG_V3_MAX_INTRO_POINTS)."""
MAX_BYTES = 50_000
"""Length of a descriptor; an HSDir refuses a longer one (HSV3MaxDescriptorSize, which a consensus may change)."""
LIFETIME_HOURS = 54
"""How long the certificate of a signing key is valid, as tor makes it (HS_DESC_CERT_LIFETIME)."""

_PEM = "-----BEGIN {0}-----\n(?P<{1}>.*?)-----END {0}-----"
_SUPERENCRYPTED = re.compile(r"^superencrypted\n(-----BEGIN MESSAGE-----\n.*?-----END MESSAGE-----)", re.M | re.S)
_OUTER_CERT = re.compile(r"^descriptor-signing-key-cert\n" + _PEM.format("ED25519 CERT", "body"), re.M | re.S)
_AUTH = re.compile(r"^auth-key\n" + _PEM.format("ED25519 CERT", "body"), re.M | re.S)
_ENC = re.compile(r"^enc-key-cert\n" + _PEM.format("ED25519 CERT", "body"), re.M | re.S)


@dataclass(frozen=True, slots=True)
class IntroPoint:
    """One introduction point in a descriptor."""

    relay: str
    """Fingerprint (RSA) of the relay, 40 upper-case hexadecimal digits."""
    auth_key: bytes
    """Known to the relay and the client; made by the instance for this point alone, so it tells whose it is."""
    text: str
    """All its lines, without a newline at the end."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a descriptor says to clients."""

    header: tuple[str, ...]
    """Lines of the innermost layer before the introduction points."""
    points: tuple[IntroPoint, ...]
    revision: int
    signing_key: bytes
    blinded_key: bytes

    @property
    def keys(self) -> frozenset[bytes]:
        """The authentication keys of the introduction points."""
        return frozenset(point.auth_key for point in self.points)


@dataclass(frozen=True, slots=True)
class Made:
    """A new descriptor."""

    text: str
    signing_key: bytes
    revision: int
    points: tuple[IntroPoint, ...]

    @property
    def keys(self) -> frozenset[bytes]:
        """The authentication keys of its introduction points."""
        return frozenset(point.auth_key for point in self.points)


def read_descriptor(text: str, identity: bytes) -> Content:
    """Decrypt a descriptor of the service with this public identity key; ValueError if it is damaged or another's."""
    text = text.replace("\r\n", "\n")
    outer = parse_outer(text)
    certificate, message = _OUTER_CERT.search(text), _SUPERENCRYPTED.search(text)
    if certificate is None or message is None:
        raise ValueError("not a version 3 descriptor")
    blinded = signer_of(_unarmoured(certificate.group("body")))
    inner = open_layers(message.group(1), LayerKey.make(identity, blinded, outer.revision))
    header, *points = re.split(r"^(?=introduction-point )", inner.strip("\0\n"), flags=re.MULTILINE)
    return Content(
        header=tuple(header.splitlines()),
        points=tuple(_parse_point(point.rstrip("\n")) for point in points),
        revision=outer.revision,
        signing_key=outer.signing_key,
        blinded_key=blinded,
    )


def make_descriptor(
    header: Sequence[str],
    points: Sequence[IntroPoint],
    *,
    signer: BlindedSigner,
    identity: bytes,
    revision: int,
    now: float,
) -> Made:
    """A descriptor of the service ``identity`` with these introduction points, signed for the period of ``signer``.

    ValueError when it has none, more than clients accept, or is longer than HSDirs accept.
    """
    if not 1 <= len(points) <= MAX_POINTS:
        raise ValueError(f"a descriptor has 1 to {MAX_POINTS} introduction points, not {len(points)}")
    secret = Ed25519PrivateKey.generate()
    signing = secret.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    blocks = [_recertified(point, signing, secret) for point in points]
    inner = "\n".join([*header, *blocks, ""])
    key = LayerKey.make(identity, signer.public, revision)
    expires = int(now // 3600) + LIFETIME_HOURS
    certificate = make_certificate(Certificate(SIGNING_KEY, expires, signing), signer.public, signer.sign)
    body = (
        "hs-descriptor 3\ndescriptor-lifetime 180\n"
        f"descriptor-signing-key-cert\n{armoured('ED25519 CERT', certificate)}\n"
        f"revision-counter {revision}\n"
        f"superencrypted\n{seal_layers(inner, key)}\n"
    )
    signature = secret.sign(b"Tor onion service descriptor sig v3" + body.encode())
    text = f"{body}signature {base64.b64encode(signature).decode().rstrip('=')}\n"
    if len(text) > MAX_BYTES:
        raise ValueError(f"the descriptor has {len(text)} bytes, HSDirs accept {MAX_BYTES}; use fewer points")
    return Made(text, signing, revision, tuple(points))


def common_header(contents: Sequence[Content]) -> tuple[str, ...]:
    """Lines that all have, in the first one's order. (Puzzles of proof of work are each instance's own.)"""
    first, *others = contents
    return tuple(line for line in first.header if all(line in other.header for other in others))


def _parse_point(text: str) -> IntroPoint:
    first = text.split("\n", 1)[0].split(" ")
    certificate = _AUTH.search(text)
    if len(first) != 2 or certificate is None or _ENC.search(text) is None:
        raise ValueError("an introduction point lacks keys")
    auth_key = parse_certificate(_unarmoured(certificate.group("body"))).key
    return IntroPoint(_relay(base64.b64decode(first[1])), auth_key, text)


def _relay(specifiers: bytes) -> str:
    """The RSA identity among link specifiers (tor-spec 5.1.2, type 2)."""
    at = 1
    for _ in range(specifiers[0]):
        kind, length = specifiers[at], specifiers[at + 1]
        if kind == 2 and length == 20:
            return specifiers[at + 2 : at + 22].hex().upper()
        at += 2 + length
    raise ValueError("an introduction point does not say which relay it is")


def _recertified(point: IntroPoint, signing: bytes, secret: Ed25519PrivateKey) -> str:
    text = point.text
    for keyword, pattern, kind in (("auth-key", _AUTH, INTRO_AUTH), ("enc-key-cert", _ENC, INTRO_ENC)):
        found = pattern.search(text)
        assert found is not None, "checked when it was read"
        old = parse_certificate(_unarmoured(found.group("body")))
        new = make_certificate(Certificate(kind, old.expires, old.key, old.key_kind), signing, secret.sign)
        text = f"{text[: found.start()]}{keyword}\n{armoured('ED25519 CERT', new)}{text[found.end() :]}"
    return text


def _unarmoured(body: str) -> bytes:
    return base64.b64decode("".join(body.split()))
