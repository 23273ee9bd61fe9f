"""Authority keys and certificates from the seed."""

from __future__ import annotations

import hashlib
from datetime import datetime

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from stem.descriptor.networkstatus import KeyCertificate

from testbed.tor.protocol.authority import certificate, fingerprint, make_authority, public_der, rsa_key

NOW = 1_700_000_000.0


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["a", "b"]))
def test_rsa_keys_are_sound(seed: int, label: str) -> None:
    """The library itself checks a key when it is loaded; it has the length that was asked for."""
    key = rsa_key(seed, label)
    assert key.key_size == 1024
    numbers = key.private_numbers()
    assert numbers.p != numbers.q
    assert numbers.p * numbers.q == numbers.public_numbers.n
    assert rsa_key(seed, label).private_numbers() == numbers


def test_longer_keys_can_be_made() -> None:
    """The length is a parameter."""
    assert rsa_key(1, "long", bits=2048).key_size == 2048


def test_all_but_the_dates_follows_from_the_seed() -> None:
    """Fingerprints are the same a year later."""
    first, second = make_authority(1, "auth1", NOW), make_authority(1, "auth1", NOW + 3e7)
    assert (first.identity, first.v3_identity) == (second.identity, second.v3_identity)
    assert first.certificate != second.certificate
    assert make_authority(2, "auth1", NOW).identity != first.identity
    assert make_authority(1, "auth2", NOW).v3_identity != first.v3_identity


def test_the_certificate_is_one() -> None:
    """As another implementation reads it, with both signatures checked here."""
    identity, signing = rsa_key(3, "identity"), rsa_key(3, "signing")
    text = certificate(identity, signing, NOW)
    parsed = KeyCertificate(text, validate=True)
    assert parsed.version == 3
    assert parsed.fingerprint == fingerprint(identity)
    assert parsed.published == datetime(2023, 11, 14, 21, 13, 20)
    assert parsed.expires > datetime(2024, 11, 1)
    body = text[: text.index("dir-key-certification\n") + len("dir-key-certification\n")]
    assert _recovered(identity, parsed.certification).endswith(hashlib.sha1(body.encode()).digest())  # noqa: S324
    assert _recovered(signing, parsed.crosscert).endswith(hashlib.sha1(public_der(identity)).digest())  # noqa: S324


def test_the_files_are_what_tor_reads() -> None:
    """The signing key is the one that the certificate is about."""
    authority = make_authority(1, "auth1", NOW)
    assert set(authority.files) == {
        "keys/secret_id_key",
        "keys/authority_signing_key",
        "keys/authority_certificate",
    }
    signing = load_pem_private_key(authority.files["keys/authority_signing_key"], None)
    parsed = KeyCertificate(authority.certificate.decode(), validate=True)
    pem = parsed.signing_key.replace("\n", "")
    assert public_der(signing) == _der(pem)  # type: ignore[arg-type]


def test_a_damaged_certificate_does_not_verify() -> None:
    """The check above can fail."""
    identity, signing = rsa_key(3, "identity"), rsa_key(3, "signing")
    text = certificate(identity, signing, NOW)
    parsed = KeyCertificate(text, validate=True)
    with pytest.raises(AssertionError):
        assert _recovered(signing, parsed.certification).startswith(b"\0\1\xff")


def _recovered(key, armoured: str) -> bytes:  # type: ignore[no-untyped-def]
    """What a signature was made of: the padded digest."""
    import base64

    raw = base64.b64decode("".join(line for line in armoured.splitlines() if not line.startswith("-")))
    numbers = key.private_numbers().public_numbers
    return pow(int.from_bytes(raw), numbers.e, numbers.n).to_bytes(key.key_size // 8)


def _der(pem: str) -> bytes:
    import base64

    return base64.b64decode(
        pem.removeprefix("-----BEGIN RSA PUBLIC KEY-----").removesuffix("-----END RSA PUBLIC KEY-----")
    )
