"""Descriptors of v3 onion services and tor's events about them, as far as the testbed reads them. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

_CERTIFICATE = re.compile(
    r"^descriptor-signing-key-cert\s+-----BEGIN ED25519 CERT-----\s+(.+?)-----END ED25519 CERT-----",
    re.DOTALL | re.MULTILINE,
)
_REVISION = re.compile(r"^revision-counter (\d+)\s*$", re.MULTILINE)
_CERTIFIED_KEY = slice(7, 39)
"""In a certificate: after version, type, expiry (4 bytes) and key type (cert-spec 2.1)."""


@dataclass(frozen=True, slots=True)
class Outer:
    """The part of a descriptor that is not encrypted (rend-spec-v3 [DESC-OUTER])."""

    signing_key: bytes
    """Made anew by every start of a service, so it tells which instance a descriptor is from."""
    revision: int
    """HSDirs take a descriptor only with a higher one than they have."""


def parse_outer(text: str) -> Outer:
    """The outer layer of a descriptor; ValueError when it is none."""
    certificate, revision = _CERTIFICATE.search(text), _REVISION.search(text)
    if certificate is None or revision is None:
        raise ValueError("not a version 3 descriptor")
    raw = base64.b64decode("".join(certificate.group(1).split()))
    return Outer(raw[_CERTIFIED_KEY], int(revision.group(1)))


@dataclass(frozen=True, slots=True)
class DescriptorEvent:
    """An HS_DESC event (control-spec 4.1.25)."""

    action: str
    """UPLOAD (begins), UPLOADED, REQUESTED, RECEIVED, FAILED and so on."""
    address: str
    """Without ``.onion``."""
    fingerprint: str
    """Of the HSDir; empty where there is none."""
    nickname: str
    descriptor: str
    """Of UPLOAD: the blinded key in base64 without padding; empty where tor does not say."""
    reason: str
    """Of FAILED."""


def parse_event(text: str) -> DescriptorEvent | None:
    """The event in the text after the status code; None for other events."""
    words = text.split("\n", 1)[0].split()
    if len(words) < 5 or words[0] != "HS_DESC":
        return None
    named = dict(word.split("=", 1) for word in words[5:] if "=" in word)
    fingerprint, nickname = _server(words[4])
    described = len(words) > 5 and "=" not in words[5]
    return DescriptorEvent(
        action=words[1],
        address=words[2],
        fingerprint=fingerprint,
        nickname=nickname,
        descriptor=words[5].rstrip("=") if described else "",
        reason=named.get("REASON", ""),
    )


def parse_content_event(text: str) -> tuple[str, str] | None:
    """(fingerprint of the HSDir, descriptor) of an HS_DESC_CONTENT event; the descriptor is empty if there was none."""
    head, _, body = text.partition("\n")
    words = head.split()
    if len(words) < 4 or words[0] != "HS_DESC_CONTENT":
        return None
    return _server(words[3])[0], body.strip("\n")


def _server(text: str) -> tuple[str, str]:
    """A relay's long name, ``$FINGERPRINT~nickname``."""
    if not text.startswith("$"):
        return "", ""
    fingerprint, _, nickname = text[1:].replace("=", "~").partition("~")
    return fingerprint, nickname
