"""Keys made from the topology's seed, in tor's own file formats, so that a lab is the same in every run.

Onion addresses and the places of relays on the hash ring of HSDirs follow from these keys alone: a seed fixes both.
What tor makes for itself at every start (RSA identities and onion keys of relays, signing keys, link keys) changes.
None of this is secret: whoever knows the topology knows the keys. They are for private networks only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_CONTEXT = b"testbed tor key v1"


def derive(seed: int, label: str, length: int) -> bytes:
    """``length`` bytes that depend on ``seed`` and ``label`` and nothing else: SHAKE-256 (FIPS 202) of both."""
    name = label.encode()
    number = str(seed).encode()
    message = b"".join(len(part).to_bytes(4, "big") + part for part in (_CONTEXT, number, name))
    return hashlib.shake_256(message).digest(length)


@dataclass(frozen=True, slots=True)
class Ed25519Key:
    """An ed25519 key pair: the 32-byte seed that makes it, and what follows from it (RFC 8032 section 5.1.5)."""

    seed: bytes

    @classmethod
    def derive(cls, seed: int, label: str) -> Ed25519Key:
        """The key of ``label`` in a topology with this seed."""
        return cls(derive(seed, label, 32))

    @property
    def expanded(self) -> bytes:
        """The 64-byte secret key as tor stores it: clamped scalar and the prefix for nonces."""
        digest = bytearray(hashlib.sha512(self.seed).digest())
        digest[0] &= 248
        digest[31] &= 63
        digest[31] |= 64
        return bytes(digest)

    @property
    def public(self) -> bytes:
        """The 32-byte public key."""
        key = Ed25519PrivateKey.from_private_bytes(self.seed).public_key()
        return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def tagged(kind: str, content: bytes) -> bytes:
    """A key file of tor: a 32-byte header ``== KIND: type0 ==`` padded with NUL, then the key."""
    header = f"== {kind}: type0 ==".encode()
    if len(header) > 32:
        raise ValueError(f"{kind!r} does not fit into the header of a key file")
    return header.ljust(32, b"\0") + content


def onion_key(seed: int, service: str) -> Ed25519Key:
    """The identity key of an onion service; all its instances share it."""
    return Ed25519Key.derive(seed, f"onion service {service}")


def relay_key(seed: int, node: str) -> Ed25519Key:
    """The ed25519 master identity of a relay or an authority."""
    return Ed25519Key.derive(seed, f"relay identity {node}")


def onion_address(public: bytes) -> str:
    """The address of a v3 service, with ``.onion`` (rend-spec-v3, [ONIONADDRESS])."""
    version = b"\x03"
    checksum = hashlib.sha3_256(b".onion checksum" + public + version).digest()[:2]
    return base64.b32encode(public + checksum + version).decode().lower() + ".onion"


def onion_public_key(address: str) -> bytes:
    """The public key in a v3 address; ValueError if it is not one."""
    label = address.removesuffix(".onion").upper()
    try:
        raw = base64.b32decode(label)
    except ValueError as error:
        raise ValueError(f"{address!r} is not an onion address: {error}") from error
    if len(raw) != 35 or onion_address(raw[:32]).removesuffix(".onion") != label.lower():
        raise ValueError(f"{address!r} is not a version 3 onion address: wrong length, version or checksum")
    return raw[:32]


def hidden_service_files(key: Ed25519Key) -> Mapping[str, bytes]:
    """The three files of a HiddenServiceDir, by name."""
    public = key.public
    return {
        "hs_ed25519_secret_key": tagged("ed25519v1-secret", key.expanded),
        "hs_ed25519_public_key": tagged("ed25519v1-public", public),
        "hostname": onion_address(public).encode() + b"\n",
    }


def relay_files(key: Ed25519Key) -> Mapping[str, bytes]:
    """What a relay needs in its DataDirectory to take ``key`` as its ed25519 master identity."""
    return {
        "keys/ed25519_master_id_secret_key": tagged("ed25519v1-secret", key.expanded),
        "keys/ed25519_master_id_public_key": tagged("ed25519v1-public", key.public),
    }
