"""Keys from the seed are the same in every run, and in the form that tor and other programs expect."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from testbed.tor.protocol.keys import (
    Ed25519Key,
    derive,
    hidden_service_files,
    onion_address,
    onion_key,
    onion_public_key,
    relay_files,
    relay_key,
    tagged,
)

LABELS = st.text(max_size=40)
SEEDS = st.integers(0, 2**63)


def test_the_address_of_a_seed_never_changes() -> None:
    """A published experiment names its seed; the addresses must be found again by later versions."""
    address = onion_address(onion_key(1, "shop").public)
    assert address == "qseoit6i3ucrysfdldttlmn2sltzkmdoqayz2ii3kpqnzpzhp5sz54qd.onion"
    assert relay_key(1, "relay1").public.hex() == base64.b64decode("2vo4Lz2M6sSeLa5oahj0dLQok+KVNQMQ0DEsQnfJG74=").hex()


def test_a_known_address_is_made_of_its_key() -> None:
    """That of the Tor Project's site."""
    address = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion"
    assert onion_address(onion_public_key(address)) == address


@pytest.mark.parametrize(
    "wrong",
    [
        "expyuzz4wqqyqhjn.onion",  # version 2
        "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wie.onion",  # version byte
        "3gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion",  # checksum
        "not an address",
        "",
    ],
)
def test_what_is_no_address_is_refused(wrong: str) -> None:
    """Checksum, version and length are checked."""
    with pytest.raises(ValueError, match="onion address"):
        onion_public_key(wrong)


@given(SEEDS, SEEDS, LABELS, LABELS)
def test_seed_and_label_both_count(seed: int, other_seed: int, label: str, other: str) -> None:
    """Two keys are equal exactly when seed and label are; no label can run into the seed."""
    same = (seed, label) == (other_seed, other)
    assert (derive(seed, label, 32) == derive(other_seed, other, 32)) is same


def test_labels_cannot_be_forged_from_a_seed() -> None:
    """Lengths are part of what is hashed: moving a digit from the seed to the label gives another key."""
    assert derive(1, "1x", 32) != derive(11, "x", 32)


@given(st.binary(min_size=32, max_size=32))
def test_the_expanded_key_belongs_to_the_public_one(seed: bytes) -> None:
    """RFC 8032: the clamped half of the hash, times the base point, is the public key."""
    key = Ed25519Key(seed)
    digest = hashlib.sha512(seed).digest()
    assert key.expanded[32:] == digest[32:]
    assert key.expanded[0] % 8 == 0
    assert key.expanded[31] & 0b11000000 == 0b01000000
    assert key.expanded[1:31] == digest[1:31]
    Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    assert key.public == Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def test_files_have_the_form_of_tors_own() -> None:
    """A header of 32 bytes, then the key; the host name ends with a line feed."""
    files = hidden_service_files(onion_key(7, "shop"))
    assert files["hs_ed25519_secret_key"].startswith(b"== ed25519v1-secret: type0 ==\0\0\0")
    assert len(files["hs_ed25519_secret_key"]) == 32 + 64
    assert files["hs_ed25519_public_key"].startswith(b"== ed25519v1-public: type0 ==\0\0\0")
    assert len(files["hs_ed25519_public_key"]) == 32 + 32
    assert files["hostname"].endswith(b".onion\n")
    assert {len(content) for content in relay_files(relay_key(7, "relay1")).values()} == {96, 64}


def test_a_tag_that_does_not_fit_is_refused() -> None:
    """The header has 32 bytes and no more."""
    with pytest.raises(ValueError, match="header"):
        tagged("ed25519v1-of-a-kind-unheard-of", b"")
