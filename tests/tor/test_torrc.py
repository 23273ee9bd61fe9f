"""torrcs: what is in them, what a topology may add, and that tor takes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TopologyError
from testbed.plan.load import load_text
from testbed.tor import torrc
from testbed.tor.protocol.authority import make_authority
from testbed.tor.torrc import FIXED_OPTIONS, OFFSET, Paths, far_vote, option_problem, render, with_extra

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
NOW = 1_767_225_600.0
AUTHORITY = torrc.dir_authority("auth1", "10.0.0.1", "A" * 40, "B" * 40)


def options_of(role: str, paths: Paths) -> list[tuple[str, str]]:
    """The options of one role as bring-up puts them together."""
    common = torrc.common(paths, [AUTHORITY])
    if role == "instance":
        return common + torrc.instance(paths, held=True)
    return common + torrc.of_network(role, "node1", "10.0.0.1", paths, far_vote(3600, NOW, 3))


@given(st.lists(st.tuples(NAMES, st.text()), max_size=8))
def test_nothing_can_be_smuggled_in(options: list[tuple[str, str]]) -> None:
    """Every option is one line of the file, and the file has no other; otherwise there is no file."""
    try:
        text = render(options)
    except ValueError:
        assert any(option_problem(option, value) for option, value in options)
        return
    lines = text.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(options)
    assert len(text.splitlines()) <= len(options) or any(
        "\x85" in v or "\u2028" in v or "\u2029" in v for _, v in options
    )
    for line, (option, value) in zip(lines, options, strict=True):
        assert line == f"{option} {value}".rstrip()


@pytest.mark.parametrize("value", ["1\nControlPort 9051", "1\r", "a\x00b", "path\\", "path\\ "])
def test_values_of_more_than_one_line_are_refused(value: str) -> None:
    """Line feeds, other control characters, and the backslash that continues a line."""
    with pytest.raises(ValueError, match="Nickname"):
        render([("Nickname", value)])


def test_a_users_option_replaces_ours() -> None:
    """In any case of letters, at the end, and repeated if it is a list."""
    ours = [("CircuitBuildTimeout", "10"), ("SafeLogging", "0")]
    merged = with_extra(ours, {"circuitbuildtimeout": ("30",), "MapAddress": ("a b", "c d")})
    assert merged == [
        ("SafeLogging", "0"),
        ("circuitbuildtimeout", "30"),
        ("MapAddress", "a b"),
        ("MapAddress", "c d"),
    ]


@pytest.mark.parametrize("option", ["DataDirectory", "controlsocket", "V3AuthVotingInterval", "DirAuthority"])
def test_what_the_lab_depends_on_cannot_be_set(option: str) -> None:
    """With line and column, before anything is touched."""
    text = f"name: x\ntor:\n  torrc:\n    {option}: '1'\n"
    with pytest.raises(TopologyError, match=rf"topology:4:5: {option} is set by the testbed itself"):
        load_text(text)


def test_options_that_are_none_are_refused() -> None:
    """As a name, and as a value."""
    with pytest.raises(TopologyError) as caught:
        load_text('name: x\ntor: {torrc: {"Log x": "1", BandwidthRate: "1\\nControlPort 9051"}}\n')
    assert "letters, digits and underscores" in str(caught.value)
    assert "more than one line" in str(caught.value)


def test_rates_can_be_set_where_they_have_an_effect() -> None:
    """That is, when tors count what they carry between private addresses."""
    load_text('name: x\ntor: {torrc: {bandwidthrate: "1 MB", countprivatebandwidth: "1"}}\n')


def test_fixed_options_are_options() -> None:
    """All that we set for ourselves and that matters is protected, and written in lower case."""
    assert all(option == option.lower() for option in FIXED_OPTIONS)
    paths = Paths(Path("/n"))
    ours = {
        option.lower() for role in ("authority", "relay", "client", "instance") for option, _ in options_of(role, paths)
    }
    for option in ("datadirectory", "controlsocket", "dirauthority", "hiddenservicedir", OFFSET.lower()):
        assert option in ours
        assert option in FIXED_OPTIONS


@given(st.sampled_from([300, 360, 900, 1440, 1800, 3600, 7200, 5340]), st.floats(0, 1e10), st.integers(0, 10**10))
def test_the_vote_is_far_and_can_be_moved_anywhere(interval: int, now: float, valid_after: int) -> None:
    """tor's conditions on the schedule hold, and the first vote is minutes away."""
    voting = far_vote(interval, now, 3)
    assert 1800 % voting.initial_interval == 0
    assert voting.offset <= min(voting.initial_interval, interval)
    away = (voting.offset - int(now)) % voting.initial_interval
    assert away == voting.initial_interval - 60 >= 180
    assert valid_after % voting.initial_interval == voting.moved_to(valid_after).offset


@pytest.mark.tor
@pytest.mark.parametrize("role", ["authority", "relay", "exit", "client", "instance"])
def test_tor_takes_it(role: str, tmp_path: Path) -> None:
    """``tor --verify-config`` of each role's torrc."""
    if shutil.which("tor") is None:
        pytest.skip("there is no tor")
    paths = Paths(tmp_path)
    tmp_path.chmod(0o700)
    paths.empty.write_text("")
    paths.data.mkdir(mode=0o700)
    authority = make_authority(1, "node1", NOW)
    (paths.data / "keys").mkdir(mode=0o700)
    for name, content in authority.files.items():
        (paths.data / name).write_bytes(content)
    paths.torrc.write_text(render(options_of(role, paths)))
    command = ["tor", "--verify-config", "-f", str(paths.torrc), "--defaults-torrc", str(paths.empty)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout
    assert "Configuration was valid" in done.stdout
