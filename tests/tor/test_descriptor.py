"""Descriptors, tor's events about them, and what an instance's uploads came to."""

from __future__ import annotations

import base64

import pytest

from testbed.tor.onion.publication import Publication, descriptor_name
from testbed.tor.protocol.descriptor import parse_content_event, parse_event, parse_outer
from testbed.tor.protocol.hsdir import Responsible

ADDRESS = "a" * 56
A, B = "A" * 40, "B" * 40
CURRENT, NEXT = "cur" + "c" * 40, "nex" + "n" * 40


def descriptor(key: bytes, revision: int) -> str:
    """The outer layer of a descriptor, as far as it is read."""
    body = base64.b64encode(b"\1\x08" + bytes(4) + b"\1" + key + b"\1" + bytes(36) + bytes(64)).decode()
    lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
    return (
        "hs-descriptor 3\ndescriptor-lifetime 180\ndescriptor-signing-key-cert\n"
        f"-----BEGIN ED25519 CERT-----\n{lines}\n-----END ED25519 CERT-----\n"
        f"revision-counter {revision}\nsuperencrypted\n-----BEGIN MESSAGE-----\nAAAA\n-----END MESSAGE-----\n"
        "signature AAAA\n"
    )


def upload(fingerprint: str, which: str) -> str:
    """The event of an upload's beginning."""
    return f"HS_DESC UPLOAD {ADDRESS} UNKNOWN ${fingerprint}~relay1 {which} HSDIR_INDEX=0123"


def answered(fingerprint: str, reason: str = "") -> str:
    """The event of its end."""
    if reason:
        return f"HS_DESC FAILED {ADDRESS} UNKNOWN ${fingerprint}~relay1 REASON={reason}"
    return f"HS_DESC UPLOADED {ADDRESS} UNKNOWN ${fingerprint}~relay1"


def test_the_outer_layer() -> None:
    """Signing key and revision counter."""
    outer = parse_outer(descriptor(b"s" * 32, 42))
    assert (outer.signing_key, outer.revision) == (b"s" * 32, 42)
    assert parse_outer(descriptor(b"s" * 32, 42).replace("\n", "\r\n")).revision == 42
    with pytest.raises(ValueError, match="descriptor"):
        parse_outer("hs-descriptor 3\n")


def test_events() -> None:
    """Each kind, with and without what is optional."""
    event = parse_event(upload(A, CURRENT))
    assert event is not None
    assert (event.action, event.fingerprint, event.nickname, event.descriptor) == ("UPLOAD", A, "relay1", CURRENT)
    event = parse_event(answered(B, "UPLOAD_REJECTED"))
    assert event is not None
    assert (event.action, event.fingerprint, event.reason, event.descriptor) == ("FAILED", B, "UPLOAD_REJECTED", "")
    event = parse_event(f"HS_DESC CREATED {ADDRESS} UNKNOWN UNKNOWN {CURRENT}")
    assert event is not None
    assert event.fingerprint == ""
    assert parse_event("STATUS_CLIENT NOTICE BOOTSTRAP PROGRESS=100") is None
    assert parse_event("") is None


def test_content_events() -> None:
    """The descriptor comes after the head; there may be none."""
    text = descriptor(b"s" * 32, 1)
    assert parse_content_event(f"HS_DESC_CONTENT {ADDRESS} {CURRENT} ${A}~relay1\n{text}") == (A, text.strip("\n"))
    assert parse_content_event(f"HS_DESC_CONTENT {ADDRESS} {CURRENT} ${A}~relay1\n") == (A, "")
    assert parse_content_event(answered(A)) is None


def test_all_is_answered() -> None:
    """An instance is settled when every upload has an answer, of whichever kind."""
    publication = Publication("shop1", ADDRESS, CURRENT)
    assert not publication.settled(), "nothing has been uploaded yet"
    for event in (upload(A, CURRENT), upload(B, CURRENT), upload(B, NEXT)):
        publication.feed(event)
    assert publication.unanswered() == {A, B}
    publication.feed(answered(A))
    publication.feed(answered(B))
    assert not publication.settled()
    assert publication.acknowledged() == {A}, "the one answer of B may be about either descriptor"
    publication.feed(answered(B))
    assert publication.settled()
    assert publication.acknowledged() == {A, B}
    assert publication.refused() == {}


def test_refusals_are_told_apart() -> None:
    """A refusal counts for certain only if there are more than the other descriptor can have had."""
    publication = Publication("shop1", ADDRESS, CURRENT)
    for event in (upload(A, CURRENT), upload(B, CURRENT), upload(B, NEXT)):
        publication.feed(event)
    publication.feed(answered(A, "UPLOAD_REJECTED"))
    publication.feed(answered(B))
    publication.feed(answered(B, "UPLOAD_REJECTED"))
    assert publication.settled()
    assert publication.acknowledged() == set()
    assert publication.refused() == {A: "UPLOAD_REJECTED"}


def test_only_the_other_descriptor_is_out() -> None:
    """An instance is not ready by the descriptor that clients do not fetch."""
    publication = Publication("shop1", ADDRESS, CURRENT)
    publication.feed(upload(A, NEXT))
    publication.feed(answered(A))
    assert not publication.settled()
    assert publication.acknowledged() == set()


def test_other_services_do_not_count() -> None:
    """Events of another address are passed over."""
    publication = Publication("shop1", "b" * 56, CURRENT)
    assert publication.feed(upload(A, CURRENT)) is None
    assert not publication.begun


def test_descriptors_are_named_by_their_blinded_key() -> None:
    """Base64 without padding, as tor has it in its events."""
    assert descriptor_name(Responsible(1, b"\xff" * 32, ())) == "/" * 42 + "8"
