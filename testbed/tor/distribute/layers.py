"""The two encrypted layers of a v3 descriptor (rend-spec-v3 2.5). Pure but for salts and decoy keys.

Only for services without client authorization, whose descriptors every client can read that knows the address.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from testbed.tor.distribute.certificate import armoured

_SALT = 16
_MAC = 32
_KEY = 32
_IV = 16
_PAD = 10_000
"""The middle layer is filled with NUL to a multiple of this."""
_DECOYS = 16
"""Lines of auth-client; without client authorization all of them are made up."""
_SUPER = b"hsdir-superencrypted-data"
_INNER = b"hsdir-encrypted-data"


@dataclass(frozen=True, slots=True)
class LayerKey:
    """What the keys of a descriptor's layers follow from."""

    blinded: bytes
    subcredential: bytes
    revision: int

    @classmethod
    def make(cls, identity: bytes, blinded: bytes, revision: int) -> LayerKey:
        """``identity`` and ``blinded`` are public keys."""
        credential = hashlib.sha3_256(b"credential" + identity).digest()
        return cls(blinded, hashlib.sha3_256(b"subcredential" + credential + blinded).digest(), revision)


def open_layers(message: str, key: LayerKey) -> str:
    """The innermost text of a descriptor, from the armoured block after ``superencrypted``.

    ValueError when it is damaged, belongs to another service or asks for client authorization.
    """
    middle = _decrypt(message, key, _SUPER).rstrip(b"\0").decode()
    encrypted = re.search(r"^encrypted\n(-----BEGIN MESSAGE-----\n.*?-----END MESSAGE-----)", middle, re.M | re.S)
    if encrypted is None:
        raise ValueError("the descriptor's middle layer has no encrypted part")
    try:
        return _decrypt(encrypted.group(1), key, _INNER).decode()
    except ValueError:
        raise ValueError("the introduction points cannot be read: does the service use client authorization?") from None


def seal_layers(inner: str, key: LayerKey) -> str:
    """The reverse of ``open_layers``, with new salts each time."""
    lines = ["desc-auth-type x25519", f"desc-auth-ephemeral-key {_random(32)}"]
    lines += [
        f"auth-client {_random(8).rstrip('=')} {_random(16).rstrip('=')} {_random(16).rstrip('=')}"
        for _ in range(_DECOYS)
    ]
    middle = "\n".join([*lines, "encrypted", _encrypt(inner.encode(), key, _INNER), ""]).encode()
    return _encrypt(middle + bytes(-len(middle) % _PAD), key, _SUPER)


def _random(length: int) -> str:
    return base64.b64encode(os.urandom(length)).decode()


def _decrypt(message: str, key: LayerKey, constant: bytes) -> bytes:
    body = "".join(line for line in message.split() if "-" not in line and "MESSAGE" not in line)
    raw = base64.b64decode(body)
    if len(raw) < _SALT + _MAC:
        raise ValueError("an encrypted layer of the descriptor is too short")
    salt, content, mac = raw[:_SALT], raw[_SALT:-_MAC], raw[-_MAC:]
    secret, iv, mac_key = _keys(key, salt, constant)
    if _authenticate(mac_key, salt, content) != mac:
        raise ValueError("the descriptor cannot be decrypted: it is damaged, or of another service")
    return _aes(secret, iv, content)


def _encrypt(content: bytes, key: LayerKey, constant: bytes) -> str:
    salt = os.urandom(_SALT)
    secret, iv, mac_key = _keys(key, salt, constant)
    hidden = _aes(secret, iv, content)
    return armoured("MESSAGE", salt + hidden + _authenticate(mac_key, salt, hidden))


def _keys(key: LayerKey, salt: bytes, constant: bytes) -> tuple[bytes, bytes, bytes]:
    """[HS-DESC-ENCRYPTION-KEYS] with the blinded key alone as secret data: no client authorization."""
    material = key.blinded + key.subcredential + key.revision.to_bytes(8) + salt + constant
    stream = hashlib.shake_256(material).digest(_KEY + _IV + _MAC)
    return stream[:_KEY], stream[_KEY : _KEY + _IV], stream[_KEY + _IV :]


def _authenticate(mac_key: bytes, salt: bytes, content: bytes) -> bytes:
    lengths = len(mac_key).to_bytes(8), len(salt).to_bytes(8)
    return hashlib.sha3_256(lengths[0] + mac_key + lengths[1] + salt + content).digest()


def _aes(secret: bytes, iv: bytes, content: bytes) -> bytes:
    cipher = Cipher(AES(secret), CTR(iv)).encryptor()
    return bytes(cipher.update(content) + cipher.finalize())
