"""Chutney as the engine of a network: which one it is, what is run, what its torrcs say; and the real one, if at hand.

Set CHUTNEY_PATH for the last part, to one of each kind in turn; it takes two minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import PreflightError, TestbedError
from testbed.lab.preflight import preflight
from testbed.lab.up import attach, up
from testbed.measure.load import run_load
from testbed.plan.load import load_text
from testbed.plan.types import Plan
from testbed.runtime.base import start_time
from testbed.tor.chutney import cli
from testbed.tor.chutney.network import ChutneyNetwork
from testbed.tor.chutney.nodes import bootstrapped, parse, read_nodes, role, service_port

TOPOLOGY = "name: chutney-test\nseed: 3\ntor: {engine: chutney, network: hs-v3-min}\n"
SCRIPT_SAYS = """
Launching chutney using Python 3.11.2
Error: Not enough arguments given.

Usage: chutney {command/test} {networkfile}
Known commands are: configure print_phases start status stop supported wait_for_bootstrap
Known tests are: verify
"""
COMMAND_SAYS = """\
usage: chutney [-h] [--data-dir DATA_DIR] {print_phases,init,configure,status,start,wait_for_bootstrap,stop,verify} ...

positional arguments:
  {print_phases,init,configure,status,start,wait_for_bootstrap,stop,verify}
    init                Save the network.

options:
  -h, --help            show this help message and exit
  --data-dir DATA_DIR   Folder. (overrides CHUTNEY_DATA_DIR)

Environment Variables:
  CHUTNEY_DATA_DIR: Folder. (default=net)
"""
INIT_SAYS = """\
usage: chutney init [-h] [--listen-address LISTEN_ADDRESS] [--disable-ipv6 DISABLE_IPV6] [--dns-conf DNS_CONF] [--tor TOR]
                    (--net {basic,basic-min,bridges+hs-v3,hs-v3} | --net-from-script-path NET_FROM_SCRIPT_PATH | --net-from-data-dir)

options:
  -h, --help            show this help message and exit
  --tor TOR             Path. (overrides CHUTNEY_TOR)
  --net {basic,basic-min,bridges+hs-v3,hs-v3}
                        A network, by name.
  --net-from-script-path NET_FROM_SCRIPT_PATH
                        A network, by path.
"""  # noqa: E501


def program(path: Path, text: str, init: str = "") -> Path:
    """An executable that says ``init`` to ``init`` and ``text`` to anything else."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n[ $1 = init ] && cat <<'END' && exit\n{init}END\ncat <<'END'\n{text}END\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that everybody can enter."""
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o111)
    return tmp_path


def test_the_script_of_a_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by its usage; verbs get the file of the network, wherever that version keeps them."""
    program(folder / "chutney", SCRIPT_SAYS)
    (folder / "lib/chutney/data/networks").mkdir(parents=True)
    (folder / "lib/chutney/data/networks/basic").write_text("")
    monkeypatch.setenv(cli.VARIABLE, str(folder))
    found = cli.find()
    assert (found.kind, sorted(found.networks)) == ("script", ["basic"])
    assert found.begin("basic") == []
    assert found.command("start", "basic") == [
        str(folder / "chutney"), "start", str(folder / "lib/chutney/data/networks/basic")
    ]  # fmt: skip


def test_the_installed_command() -> None:
    """Its ``init`` gets the name; the other verbs go by what that has left."""
    assert cli.names(INIT_SAYS) == ["basic", "basic-min", "bridges+hs-v3", "hs-v3"]
    found = cli.Chutney(Path("/x/chutney"), "command", {name: name for name in cli.names(INIT_SAYS)})
    assert found.begin("hs-v3") == [["/x/chutney", "init", "--net", "hs-v3"]]
    assert found.command("start", "hs-v3") == ["/x/chutney", "start"]


@pytest.mark.parametrize("named", [".", "bin", "bin/chutney"])
def test_the_installed_command_is_told_by_its_usage(folder: Path, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable may name the virtual environment, its folder of programs or the program itself."""
    path = program(folder / "bin/chutney", COMMAND_SAYS, INIT_SAYS)
    monkeypatch.setenv(cli.VARIABLE, str(folder / named))
    assert cli.find() == cli.Chutney(path, "command", {name: name for name in cli.names(INIT_SAYS)})


def test_the_launcher_of_a_newer_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says the same after a line of its own, and is told by PYTHON which Python has what chutney needs."""
    launcher = program(folder / "chutney", f"\nLaunching chutney using Python 3.11.2\n{COMMAND_SAYS}", INIT_SAYS)
    monkeypatch.setenv(cli.VARIABLE, str(folder))
    assert (cli.find().program, cli.find().kind) == (launcher, "command")
    launcher.write_text("#!/bin/sh\necho $PYTHON says: ModuleNotFoundError; exit 1\n")
    monkeypatch.setenv("PYTHON", "/x/python3")
    with pytest.raises(TestbedError, match=r"it says: /x/python3 says: ModuleNotFoundError\n.*install it with pip"):
        cli.find()
    assert cli.environment(Path("/lab/net"))["PYTHON"] == "/x/python3"


def test_none_at_hand(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The variable and the project's address are named, whatever is wrong."""
    monkeypatch.delenv(cli.VARIABLE, raising=False)
    with pytest.raises(TestbedError, match=rf"CHUTNEY_PATH is not set\n.*{cli.HOME}"):
        cli.find()
    monkeypatch.setenv(cli.VARIABLE, str(folder / "nowhere"))
    with pytest.raises(TestbedError, match=rf"there is no program .*nowhere\n.*{cli.HOME}"):
        cli.find()
    monkeypatch.setenv(cli.VARIABLE, str(program(folder / "chutney", "Error: no such thing\n")))
    with pytest.raises(TestbedError, match=rf"is no chutney .* Error: no such thing\n.*{cli.HOME}"):
        cli.find()


@pytest.mark.root
def test_one_that_the_unprivileged_user_cannot_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said at once."""
    inner = folder / "closed"
    inner.mkdir(mode=0o700)
    monkeypatch.setenv(cli.VARIABLE, str(program(inner / "chutney", SCRIPT_SAYS)))
    with pytest.raises(TestbedError, match="user 10001, who runs chutney, may not read"):
        cli.find()
    shell = inner / "sh"
    shell.symlink_to("/bin/sh")
    outer = folder / "chutney"
    outer.write_text(f"#!{shell}\necho '{COMMAND_SAYS}'\n")
    outer.chmod(0o755)
    monkeypatch.setenv(cli.VARIABLE, str(outer))
    with pytest.raises(TestbedError, match=r"user 10001, who runs chutney, may not read .* or its Python"):
        cli.find()


@pytest.mark.root
def test_a_plan_is_refused_before_anything_is_made(
    make_plan: Callable[..., Plan], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that this chutney does not have; the message has those that it has."""
    program(folder / "chutney", SCRIPT_SAYS)
    (folder / "networks").mkdir()
    (folder / "networks/basic").write_text("")
    monkeypatch.setenv(cli.VARIABLE, str(folder))
    _, plan = load_text(TOPOLOGY)
    with pytest.raises(PreflightError, match=r"no network 'hs-v3-min'\n.* has basic"):
        preflight(plan)


FAILING = """\
#!/bin/sh
case $1 in
print_phases) [ -z "$STRAY" ] && printf 'CHUTNEY_CONFIG_PHASES=1\\nCHUTNEY_LAUNCH_PHASES=1\\n' ;;
configure) mkdir -p "$CHUTNEY_DATA_DIR/nodes/000c" && echo "SocksPort 9000" > "$CHUTNEY_DATA_DIR/nodes/000c/torrc" ;;
start) echo "user $(id -u), IPv6 of $(awk '{print $6}' /proc/net/if_inet6): Couldn't launch test000c"; exit 255 ;;
*) echo "Usage: chutney {command/test} {networkfile}"; exit 1 ;;
esac
"""


@pytest.mark.root
@pytest.mark.tor
@pytest.mark.usefixtures("module_state")
def test_a_verb_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that cannot start its network: the error has its last words, and nothing of the lab is left.

    It finds the address ::1, which newer chutneys need, and nothing in its environment that is not meant for it.
    """
    monkeypatch.setenv("STRAY", "1")
    (folder / "networks").mkdir()
    (folder / "networks/hs-v3-min").write_text("")
    (folder / "chutney").write_text(FAILING)
    (folder / "chutney").chmod(0o755)
    monkeypatch.setenv(cli.VARIABLE, str(folder))
    _, plan = load_text(TOPOLOGY)
    said = r"`chutney start` failed for hs-v3-min.*\n.*user 10001, IPv6 of lo: Couldn't launch"
    with pytest.raises(TestbedError, match=said):
        up(plan)
    with pytest.raises(TestbedError, match="there is no lab"):
        attach(plan.name)


def test_settings_of_the_user_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except where a network's things are, and in which phase it is."""
    monkeypatch.setenv("CHUTNEY_START_TIME", "30")
    monkeypatch.setenv("CHUTNEY_DATA_DIR", "/elsewhere")
    variables = cli.environment(Path("/lab/net"), 2)
    assert variables["CHUTNEY_START_TIME"] == "30"
    assert variables["CHUTNEY_DATA_DIR"] == "/lab/net"
    assert variables["CHUTNEY_LAUNCH_PHASE"] == "2"
    assert cli.VARIABLE not in variables


@pytest.mark.parametrize(
    ("torrc", "expected"),
    [
        ("AuthoritativeDirectory 1\nOrPort 5000\nExitRelay 0\n", "authority"),
        ("OrPort 5003\nExitRelay 1\nSocksPort 0", "exit"),
        ("# a comment\nORPort 5003 IPv4Only\nExitRelay 0\n", "relay"),
        ("SocksPort 0\nDnsPort 0\nOrPort 127.0.0.1:5106\nExitRelay 0\nDirPort 7106\n", "relay"),
        ("SocksPort 9008\n", "client"),
        ("SocksPort 127.0.0.1:9007\nSocksPort [::1]:9007\nDnsPort 0\n", "client"),
        ("SocksPort 0\nHiddenServiceDir /x/hidden_service\nHiddenServicePort 5858 127.0.0.1:4747\n", "onion"),
    ],
)
def test_roles(torrc: str, expected: str) -> None:
    """As the torrcs of both chutneys tell them."""
    assert role(parse(torrc)) == expected


def test_nodes_of_a_data_folder(tmp_path: Path) -> None:
    """By the link that chutney keeps; how far each is, by its log."""
    home = tmp_path / "nodes.1" / "000h"
    home.mkdir(parents=True)
    (tmp_path / "nodes").symlink_to("nodes.1")
    (home / "torrc").write_text("HiddenServiceDir x\nHiddenServicePort 5858 127.0.0.1:4747\nAddress 127.0.0.1\n")
    (node,) = read_nodes(tmp_path)
    assert (node.name, node.role, node.paths.control) == ("000h", "onion", home / "control")
    assert service_port(parse(node.paths.torrc.read_text())) == (5858, "127.0.0.1:4747")
    assert bootstrapped(node) == 0
    node.paths.log.write_text("x [notice] Bootstrapped 5% (conn): a\nx [notice] Bootstrapped 75% (enough): b\n")
    assert bootstrapped(node) == 75
    assert read_nodes(tmp_path / "none") == []


class Stages:
    """A progress display that remembers."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[int, int, str]]] = {}

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Note down a state."""
        self.seen.setdefault(stage, []).append((done, total, note))


@pytest.mark.root
@pytest.mark.tor
@pytest.mark.usefixtures("module_state")
@pytest.mark.skipif(cli.VARIABLE not in os.environ, reason="CHUTNEY_PATH is not set: the real chutney is not tried")
def test_the_real_chutney() -> None:
    """A client fetches through chutney's onion service; control ports, documents and roles are there; all ends."""
    stages = Stages()
    _, plan = load_text(TOPOLOGY)
    lab = up(plan, progress=stages)
    tor = attach(lab.name).subsystem("tor")
    assert isinstance(tor, ChutneyNetwork)
    for name in tor.nodes:
        with tor.control(name) as control:
            assert "PROGRESS=100" in control.getinfo("status/bootstrap-phase")
    assert {router.nickname for router in tor.directory().consensus.routers} == {
        f"test{name}" for name in (*tor.authorities, *tor.relays)
    }
    ((node, target),) = tor.targets().items()
    assert [node] == tor.onions
    summary = run_load(
        {client: tor.socks_path(client) for client in tor.clients},
        target.address,
        target.port,
        target.path,
        size=target.size,
        seed=lab.plan.seed,
        count=2,
    )
    assert summary.ok == 2 * len(tor.clients)
    waits = [states for stage, states in stages.seen.items() if "wait_for_bootstrap" in stage]
    assert all(states[-1][0] == states[-1][1] >= 4 for states in waits)
    assert any("%" in note for states in waits for _, _, note in states)
    owners = {os.stat(f"/proc/{pid}").st_uid for pid in lab.pids("chutney")}
    assert owners == {10001}
    pids = lab.pids("chutney")
    assert len(pids) >= len(tor.nodes)
    lab.down()
    assert not [pid for pid, started in pids.items() if start_time(pid) == started]
