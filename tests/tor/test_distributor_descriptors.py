"""Descriptors read and made anew, checked with stem; keys, counters, clocks and halves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from stem.client.datatype import LinkByFingerprint, LinkByIPv4
from stem.descriptor.hidden_service import HiddenServiceDescriptorV3, InnerLayer, IntroductionPointV3

from testbed.errors import TestbedError
from testbed.tor.balance.revision import tor_revision
from testbed.tor.directory import Directory
from testbed.tor.distribute.counters import LARGEST, Counters
from testbed.tor.distribute.document import MAX_BYTES, Content, common_header, make_descriptor, read_descriptor
from testbed.tor.distribute.instance import established
from testbed.tor.distribute.settings import read_address, read_key
from testbed.tor.distribute.where import check_clock, other_half, run_starts
from testbed.tor.onion.owners import whose
from testbed.tor.protocol.blinding import BlindedSigner, blinded_key, blinding_factor, public_of
from testbed.tor.protocol.hsdir import Consensus, Responsible, Ring
from testbed.tor.protocol.keys import Ed25519Key, hidden_service_files, onion_address

KEY = Ed25519Key(b"k" * 32)
PERIOD, LENGTH = 20_000, 1440
SIGNER = BlindedSigner.make(KEY.expanded, PERIOD, LENGTH)
HEADER = ("create2-formats 2", "flow-control 1-2 31")


def foreign(points: int, key: Ed25519Key = KEY, revision: int = 7) -> str:
    """A descriptor that stem has made."""
    made = [
        IntroductionPointV3.create_for_link_specifiers(
            [LinkByIPv4("1.2.3.4", 9001), LinkByFingerprint(number.to_bytes(20, "big"))]
        )
        for number in range(1, points + 1)
    ]
    return str(
        HiddenServiceDescriptorV3.create(
            blinding_nonce=blinding_factor(key.public, PERIOD, LENGTH),
            identity_key=Ed25519PrivateKey.from_private_bytes(key.seed),
            inner_layer=InnerLayer.create(introduction_points=made),
            revision_counter=revision,
        )
    )


def anew(content: Content, revision: int = 8, header: tuple[str, ...] = HEADER) -> str:
    """The same introduction points in a descriptor of ours."""
    return make_descriptor(
        header, content.points, signer=SIGNER, identity=KEY.public, revision=revision, now=time.time()
    ).text


@settings(deadline=None, max_examples=20)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**40), st.integers(1, 2**20), st.binary(max_size=200))
def test_blinded_signatures(seed: bytes, period: int, length: int, message: bytes) -> None:
    """The secret half of a blinded key belongs to its public half, by another implementation's verification."""
    key = Ed25519Key(seed)
    signer = BlindedSigner.make(key.expanded, period, length)
    assert public_of(key.expanded) == key.public
    assert signer.public == blinded_key(key.public, period, length) == public_of(signer.secret)
    Ed25519PublicKey.from_public_bytes(signer.public).verify(signer.sign(message), message)


def test_what_another_has_made_is_read() -> None:
    """Relays, keys and all else that is needed to make it anew."""
    content = read_descriptor(foreign(3), KEY.public)
    assert [point.relay for point in content.points] == [f"{number:040X}" for number in (1, 2, 3)]
    assert len(content.keys) == 3
    assert (content.revision, content.blinded_key, content.header) == (7, SIGNER.public, ("create2-formats 2",))


@pytest.mark.parametrize("points", [1, 3, 20])
def test_what_we_make_is_valid(points: int) -> None:
    """stem checks every signature and decrypts it; keys and points are the same, counter and signing key are new."""
    content = read_descriptor(foreign(points), KEY.public)
    text = anew(content)
    theirs = HiddenServiceDescriptorV3.from_str(text, validate=True)
    inner = theirs.decrypt(onion_address(KEY.public))
    assert theirs.revision_counter == 8
    assert [point.auth_key_cert.key for point in inner.introduction_points] == [p.auth_key for p in content.points]
    for point in inner.introduction_points:
        assert point.auth_key_cert.extensions[0].data == theirs.signing_cert.key
        assert point.enc_key_cert.extensions[0].data == theirs.signing_cert.key
    assert "flow-control 1-2 31" in str(inner), "congestion control is not lost"
    ours = read_descriptor(text.replace("\n", "\r\n"), KEY.public)
    assert (ours.header, ours.keys) == (HEADER, content.keys)
    assert ours.signing_key != content.signing_key
    assert len(text) < MAX_BYTES


def test_each_is_another() -> None:
    """Two descriptors of the same points share neither signing key nor ciphertext."""
    content = read_descriptor(foreign(2), KEY.public)
    one, two = anew(content), anew(content)
    assert read_descriptor(one, KEY.public).signing_key != read_descriptor(two, KEY.public).signing_key
    assert one.split("superencrypted")[1] != two.split("superencrypted")[1]


def test_what_cannot_be_made() -> None:
    """Nothing without points, nothing with more than clients take, nothing longer than HSDirs take."""
    content = read_descriptor(foreign(20), KEY.public)

    def make(points: int, header: tuple[str, ...] = HEADER) -> None:
        chosen = (content.points * 2)[:points]
        make_descriptor(header, chosen, signer=SIGNER, identity=KEY.public, revision=1, now=0)

    with pytest.raises(ValueError, match="1 to 20 introduction points, not 0"):
        make(0)
    with pytest.raises(ValueError, match="1 to 20 introduction points, not 21"):
        make(21)
    with pytest.raises(ValueError, match="HSDirs accept 50000"):
        make(20, ("create2-formats 2", "x " + "y" * 20_000))


def test_what_cannot_be_read() -> None:
    """Another service's, a damaged one, something else."""
    text = foreign(1)
    with pytest.raises(ValueError, match="cannot be decrypted: it is damaged, or of another service"):
        read_descriptor(text, Ed25519Key(b"o" * 32).public)
    at = text.index("BEGIN MESSAGE") + 60
    damaged = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    with pytest.raises(ValueError, match="decrypted"):
        read_descriptor(damaged, KEY.public)
    with pytest.raises(ValueError, match="descriptor"):
        read_descriptor("hs-descriptor 3\n", KEY.public)


def test_header_lines_that_all_have() -> None:
    """What instances do not agree on is left out."""
    base = read_descriptor(foreign(1), KEY.public)
    one = Content((*HEADER, "pow-params v1 a"), base.points, 1, b"", b"")
    two = Content(("flow-control 1-2 31", "create2-formats 2", "pow-params v1 b"), base.points, 1, b"", b"")
    assert common_header([one]) == (*HEADER, "pow-params v1 a")
    assert common_header([one, two]) == HEADER


def test_whose_it_is() -> None:
    """By signing key as the instance made it, by introduction points when made anew, of several in their order."""
    mine, theirs = (read_descriptor(foreign(2), KEY.public) for _ in range(2))
    mixed = Content(HEADER, theirs.points[:1] + mine.points, 1, b"", b"")
    owners = {mine.signing_key: "h1"} | dict.fromkeys(mine.keys, "h1") | dict.fromkeys(theirs.keys, "h2")
    address = onion_address(KEY.public)
    assert whose(anew(mine), address, owners) == ("h1",)
    assert whose(anew(mixed), address, owners) == ("h2", "h1")
    assert whose(anew(mine), address, {}) == ()
    assert whose(anew(mine), onion_address(Ed25519Key(b"o" * 32).public), owners) == ()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(1, 2**40)), max_size=30))
def test_counters_only_grow(steps: list[tuple[str, int | None]]) -> None:
    """Whatever was used or seen, also before a restart: the next is higher. Keys do not mind each other."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counters.json"
        highest = {"a": 0, "b": 0}
        for key, seen in steps:
            counters = Counters(path)
            if seen is not None:
                counters.saw(key.encode(), seen)
                highest[key] = max(highest[key], seen)
            value = counters.next(key.encode())
            assert value > highest[key]
            highest[key] = value


def test_counters_come_to_an_end(tmp_path: Path) -> None:
    """Nothing above 64 bits; a file that is damaged is an error and not a beginning from nothing."""
    counters = Counters(tmp_path / "counters.json")
    counters.saw(b"a", LARGEST)
    with pytest.raises(TestbedError, match="no revision counter is left"):
        counters.next(b"a")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(TestbedError, match="counters cannot be read"):
        Counters(tmp_path / "broken.json")


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5000), st.integers(1, 5000))
def test_tors_counter_keeps_order(one: int, other: int) -> None:
    """Later is higher. (That it is tor's own is tested with a real one.)"""
    assert (tor_revision(SIGNER, one) < tor_revision(SIGNER, other)) == (one < other)
    with pytest.raises(ValueError, match="one second"):
        tor_revision(SIGNER, 0)


def test_keys_from_a_folder(tmp_path: Path) -> None:
    """The key as tor stores it; an address that is another's is named, wherever it stands."""
    for name, content in hidden_service_files(KEY).items():
        (tmp_path / name).write_bytes(content)
    address, other = onion_address(KEY.public), onion_address(Ed25519Key(b"o" * 32).public)
    secret = read_key(tmp_path, address)
    assert (secret.public, secret.expanded, secret.address) == (KEY.public, KEY.expanded, address)
    assert read_key(tmp_path, address.removesuffix(".onion")) == secret
    with pytest.raises(TestbedError, match=f"the key is that of {address}, not of {other}, which is asked for"):
        read_key(tmp_path, other)
    (tmp_path / "hostname").write_text(other + "\n")
    with pytest.raises(TestbedError, match=f"not of {other}, which is in .*hostname"):
        read_key(tmp_path)
    (tmp_path / "hs_ed25519_secret_key").write_bytes(b"x" * 96)
    with pytest.raises(TestbedError, match="not a secret key"):
        read_key(tmp_path)
    with pytest.raises(TestbedError, match=r"cannot be read: No such file.*\n  give the HiddenServiceDir"):
        read_key(tmp_path / "nowhere")
    with pytest.raises(TestbedError, match="not a version 3 onion address"):
        read_address("a" * 56 + ".onion")


def directory(valid_after: int, interval: int = 3600) -> Directory:
    """A consensus without relays."""

    def utc(moment: int) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))

    text = f"valid-after {utc(valid_after)}\nfresh-until {utc(valid_after + interval)}\n"
    return Directory(text + f"valid-until {utc(valid_after + 3 * interval)}\n", "", b"")


NOON = 1_796_040_000 - 1_796_040_000 % 86_400 + 12 * 3600


def test_clocks() -> None:
    """What tor itself would take for a live consensus is fine, a day more is not."""
    begun = directory(NOON)
    for now in (NOON, NOON + 3 * 3600, NOON - 23 * 3600, NOON + 26 * 3600):
        check_clock(begun, now)
    for now in (NOON - 25 * 3600, NOON + 28 * 3600):
        with pytest.raises(TestbedError, match=r"consensus: the clock says .* but the consensus is valid from"):
            check_clock(begun, now)


def test_the_other_half_is_refused_with_its_end() -> None:
    """From noon on clients ask for the next descriptor, until midnight; a minute before the instances must know."""
    nothing = Responsible(0, b"", ())
    morning, afternoon = (Ring(nothing, nothing, clients_fetch_current=current) for current in (True, False))
    assert other_half(directory(NOON - 3600), morning, NOON - 100) is None
    assert other_half(directory(NOON - 3600), morning, NOON - 50) is not None
    assert other_half(directory(NOON - 3600), morning, NOON + 50) is not None, "that consensus is late"
    assert other_half(directory(NOON + 11 * 3600), afternoon, NOON + 13 * 3600) is not None, "that one too"
    error = other_half(directory(NOON), afternoon, NOON + 50)
    midnight = time.strftime("%Y-%m-%d 00:00:00 UTC", time.gmtime(NOON + 12 * 3600))
    assert error is not None
    assert f"until {midnight} clients ask for each instance's next descriptor" in str(error)
    assert "publish: hybrid" in str(error)


def test_runs_of_the_shared_random_protocol() -> None:
    """24 rounds each; a consensus that is valid from some minutes past the hour shifts both."""
    consensus = Consensus(NOON + 600, NOON + 4200, {}, None, None, ())
    assert run_starts(consensus) == (NOON + 600 - 12 * 3600 - 86_400, NOON + 600 - 12 * 3600)


def test_introduction_circuits() -> None:
    """Only established ones of this service count, by the last relay."""
    a, b = "A" * 40, "B" * 40
    lines = (
        f"1 BUILT ${b}~x,${a}~y BUILD_FLAGS=IS_INTERNAL PURPOSE=HS_SERVICE_INTRO HS_STATE=HSSI_ESTABLISHED "
        f"REND_QUERY=mine TIME_CREATED=2026-11-30T00:00:00\n"
        f"2 BUILT ${a}~y PURPOSE=HS_SERVICE_INTRO HS_STATE=HSSI_ESTABLISHED REND_QUERY=mine\n"
        f"3 BUILT ${b}~x PURPOSE=HS_SERVICE_INTRO HS_STATE=HSSI_CONNECTING REND_QUERY=mine\n"
        f"4 BUILT ${b}~x PURPOSE=HS_SERVICE_INTRO HS_STATE=HSSI_ESTABLISHED REND_QUERY=other\n"
        f"5 BUILT ${b}~x PURPOSE=HS_SERVICE_REND HS_STATE=HSSR_JOINED REND_QUERY=mine\n"
    )
    assert established(lines, "mine") == {a: 2}
    assert established("", "mine") == {}
