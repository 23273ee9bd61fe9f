"""The torrc of every role: options as data, and the text that tor reads. Pure.

Every option beyond the obvious has its reason beside it; times in them were measured with tor 0.4.9.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.tor.protocol.timeperiod import initial_interval, next_vote

Options = Sequence[tuple[str, str]]
"""(option, value) in the order of the file; an option may come more than once."""

OR_PORT = 9001
DIR_PORT = 7000
OFFSET = "TestingV3AuthVotingStartOffset"
"""The option by which a vote is moved."""
COUNT_PRIVATE = "CountPrivateBandwidth"
"""Whether a tor counts, and limits, what it carries between private addresses; a testing network has it on."""
RATES = frozenset(("bandwidthrate", "bandwidthburst", "relaybandwidthrate", "relaybandwidthburst"))
"""Options, in lower case, without effect between private addresses unless ``COUNT_PRIVATE`` is 1."""
HTTP_PORT = 80
"""The port of an onion service that clients ask for."""

FIXED_OPTIONS = frozenset(
    option.lower()
    for option in (
        "Address", "AuthoritativeDirectory", "ControlPort", "ControlSocket", "CookieAuthentication", "DataDirectory",
        "DirAuthority", "DirPort", "DisableNetwork", "HiddenServiceDir", "HiddenServicePort", "Nickname", "ORPort",
        "PublishHidServDescriptors", "RunAsDaemon", "SocksPort", "TestingTorNetwork",
        "TestingV3AuthInitialVotingInterval", "TestingV3AuthVotingStartOffset", "User", "V3AuthVotingInterval",
        "V3AuthoritativeDirectory",
    )
)  # fmt: skip
"""What a topology may not set, in lower case: the lab itself depends on these."""

_OPTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Paths:
    """Where one node's tor keeps its things; the same in a container and outside."""

    node: Path
    """The node's folder."""

    @property
    def torrc(self) -> Path:
        """The configuration file."""
        return self.node / "torrc"

    @property
    def empty(self) -> Path:
        """An empty file, for what tor insists on reading; it refuses /dev/null."""
        return self.node / "empty"

    @property
    def log(self) -> Path:
        """What tor writes to its standard output."""
        return self.node / "tor.log"

    @property
    def data(self) -> Path:
        """DataDirectory."""
        return self.node / "tor"

    @property
    def control(self) -> Path:
        """Control socket. It has to lie in a folder that only tor's user may enter."""
        return self.data / "control"

    @property
    def socks(self) -> Path:
        """SOCKS socket of a client."""
        return self.data / "socks"

    @property
    def hidden_service(self) -> Path:
        """HiddenServiceDir of an instance."""
        return self.data / "service"

    @property
    def web(self) -> Path:
        """Socket of an instance's web server."""
        return self.node / "web.sock"


@dataclass(frozen=True, slots=True)
class Voting:
    """How authorities vote. All times in seconds."""

    interval: int
    """Between consensuses; decides the time periods of onion services, see ``timeperiod``."""
    initial_interval: int
    """Between votes while there is no consensus yet. tor wants it to divide 30 minutes."""
    offset: int
    """Consensuses become valid so long after the beginning of each interval."""
    hsdir_spread: int
    """HSDirs a replica of a descriptor goes to (consensus parameter hsdir_spread_store)."""

    def moved_to(self, valid_after: int) -> Voting:
        """The same with a first consensus that is valid from ``valid_after`` on (seconds since the epoch)."""
        return replace(self, offset=valid_after % self.initial_interval)

    def next_vote(self, valid_after: int) -> int:
        """When the consensus after one that is valid from ``valid_after`` on becomes valid, seconds since the epoch."""
        return next_vote(valid_after, self.interval, self.offset)


def far_vote(interval: int, now: float, hsdir_spread: int) -> Voting:
    """A schedule whose first vote is as far away as tor allows: 4 to 29 minutes."""
    return Voting(interval, initial_interval(interval), 0, hsdir_spread).moved_to(int(now) - 60)


def common(paths: Paths, authorities: Iterable[str]) -> list[tuple[str, str]]:
    """Options of every role. ``authorities`` are values of DirAuthority."""
    return [
        ("TestingTorNetwork", "1"),
        ("DataDirectory", str(paths.data)),
        ("RunAsDaemon", "0"),
        ("Log", "notice stdout"),
        ("SafeLogging", "0"),
        ("LogTimeGranularity", "1"),
        ("ControlSocket", str(paths.control)),
        ("CookieAuthentication", "0"),
        ("ShutdownWaitLength", "0"),
        ("PathsNeededToBuildCircuits", "0.67"),
        # a small network has too few nodes for vanguards: tor looks for them for 12 s, in vain
        ("VanguardsLiteEnabled", "0"),
        # with the learned or the default time-out (60 s) one lost circuit holds up a start for most of a minute
        ("LearnCircuitBuildTimeout", "0"),
        ("CircuitBuildTimeout", "10"),
        # the real databases cost 0.4 to 1.6 s of start and 70 MB a process, and know no private address
        ("GeoIPFile", str(paths.empty)),
        ("GeoIPv6File", str(paths.empty)),
        # relays have no measured bandwidth, and go by what they say that they have carried: nothing, or, from one that
        # was slow to start and had carried others' uploads by then, something. That one alone then had a weight and was
        # everybody's guard. This keeps them from counting what they carry between private addresses
        (COUNT_PRIVATE, "0"),
        # sets of circuits to exits that share one stream: nothing that goes to an onion service uses them, and clients
        # made ten circuits each in advance with them, rather than four
        ("ConfluxEnabled", "0"),
        *(("DirAuthority", line) for line in authorities),
    ]


def of_network(role: str, nickname: str, address: str, paths: Paths, voting: Voting) -> list[tuple[str, str]]:
    """Options of a node of the network beside the common ones."""
    if role == "client":
        return [("SocksPort", f"unix:{paths.socks}")]
    options = relay(nickname, address, exit_relay=role == "exit")
    return options + authority(address, voting) if role == "authority" else options


def dir_authority(nickname: str, address: str, identity: str, v3_identity: str) -> str:
    """The value of a DirAuthority option: what every node has to know of an authority."""
    return f"{nickname} orport={OR_PORT} no-v2 v3ident={v3_identity} {address}:{DIR_PORT} {identity}"


def relay(nickname: str, address: str, *, exit_relay: bool = False) -> list[tuple[str, str]]:
    """Options of a relay, of an exit, and of an authority in its part as a relay."""
    options = [
        ("Nickname", nickname),
        ("Address", address),
        ("ORPort", f"{address}:{OR_PORT}"),
        ("SocksPort", "0"),
        ("AssumeReachable", "1"),
        ("ServerDNSDetectHijacking", "0"),
        ("ServerDNSAllowBrokenConfig", "1"),
        ("ServerDNSTestAddresses", ""),
        ("ContactInfo", "testbed"),
        # a relay needs no circuits of its own; making them in advance cost a sixth of the network's processor time
        ("__DisablePredictedCircuits", "1"),
    ]
    if exit_relay:
        return [*options, ("ExitRelay", "1"), ("ExitPolicyRejectPrivate", "0"), ("ExitPolicy", "accept *:*")]
    return [*options, ("ExitRelay", "0"), ("ExitPolicy", "reject *:*")]


def authority(address: str, voting: Voting) -> list[tuple[str, str]]:
    """Options of an authority beside those of ``relay``.

    The first vote is put far away; once all descriptors are there, ``TestingV3AuthVotingStartOffset`` is set anew
    through the control socket, and tor plans its vote again (dirauth_sched_recalculate_timing).
    Flags are voted for everybody, except Exit: with that on relays whose policy rejects all, tor finds no exits.
    """
    return [
        ("AuthoritativeDirectory", "1"),
        ("V3AuthoritativeDirectory", "1"),
        ("DirPort", f"{address}:{DIR_PORT}"),
        ("TestingV3AuthInitialVotingInterval", str(voting.initial_interval)),
        ("TestingV3AuthInitialVoteDelay", "2"),
        ("TestingV3AuthInitialDistDelay", "2"),
        (OFFSET, str(voting.offset)),
        ("V3AuthVotingInterval", str(voting.interval)),
        ("V3AuthVoteDelay", "2"),
        ("V3AuthDistDelay", "2"),
        ("V3AuthNIntervalsValid", "3"),
        ("TestingDirAuthVoteHSDir", "*"),
        ("TestingDirAuthVoteGuard", "*"),
        ("TestingMinExitFlagThreshold", "0"),
        ("AuthDirTestReachability", "0"),
        ("ConsensusParams", f"hsdir_spread_store={voting.hsdir_spread}"),
    ]


def instance(paths: Paths, *, held: bool) -> list[tuple[str, str]]:
    """Options of one instance of an onion service. ``held``: it has no network until it is released."""
    options = [
        ("SocksPort", "0"),
        ("HiddenServiceDir", str(paths.hidden_service)),
        ("HiddenServicePort", f"{HTTP_PORT} unix:{paths.web}"),
    ]
    return [*options, ("DisableNetwork", "1")] if held else options


def with_extra(options: Options, extra: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """``options`` with a user's own; an option of the user's replaces ours of the same name, in any case of letters."""
    replaced = {option.lower() for option in extra}
    kept = [(option, value) for option, value in options if option.lower() not in replaced]
    return [*kept, *((option, value) for option, values in extra.items() for value in values)]


def render(options: Options) -> str:
    """The file. ValueError for what cannot be said in one line or is no name of an option."""
    for option, value in options:
        reason = option_problem(option, value)
        if reason:
            raise ValueError(f"{option!r}: {reason}")
    return "".join(f"{option} {value}".rstrip() + "\n" for option, value in options)


def option_problem(option: str, value: str) -> str:
    """Why this is no line of a torrc; empty when it is one."""
    if not _OPTION.fullmatch(option):
        return "an option is letters, digits and underscores"
    if any(ord(character) < 32 and character != "\t" for character in value) or "\x7f" in value:
        return "the value has a control character or more than one line"
    if value.rstrip().endswith("\\"):
        return "the value ends with a backslash, which joins it to the next line"
    return ""
