"""knot, dnsmasq, bird2 and the packet filter with the configurations made for them, in one small internet.

Three providers in a triangle, a campus with a border router at each; clients, a resolver in each of two providers.
"""

from __future__ import annotations

import json
import socket
import subprocess
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path

import pytest
from waiting import await_true

from testbed.edge.bgp import bird, control
from testbed.edge.dns import authority, resolver
from testbed.edge.filters import agent, packets, requests
from testbed.edge.filters.spec import FilterSpec
from testbed.errors import TestbedError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.measure.probes.dns import dns_query
from testbed.measure.probes.tcp import tcp_connect
from testbed.model.topology import DefaultsSpec
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan, Service

pytestmark = pytest.mark.root

ISPS = {"tel": "61.128", "uni": "123.112", "cer": "202.112"}
BORDERS = {"brt": "tel", "bru": "uni", "bre": "cer"}
ASN = {"cam": 65010, "brt": 65010, "bru": 65010, "bre": 65010, "tel": 65001, "uni": 65002, "cer": 65003}
CAMPUS = IPv4Network("202.112.10.0/24")
WEB, PUBLIC = IPv4Address("202.112.10.80"), IPv4Address("61.128.200.2")
HOST = "www.campus.test"
FILTER = FilterSpec.model_validate(
    {"opening": "20/s", "burst": 10, "held": 5, "syn_proxy": True, "ban": {"after": 3, "lasts": "2s"}}
)


def world() -> Plan:
    build = PlanBuilder("edge-programs", 1, "", DefaultsSpec())
    for router in ASN:
        build.node(router, (router,), kind="router")
    for host in ("web", "ns", "ct", "cu", "rt", "ru"):
        build.node(host, (host,))

    def link(a: str, b: str, net: str, *, routed: bool = True, host: int = 2) -> None:
        build.link(a, b, ("links",), addresses=(f"{net}.1/24", f"{net}.{host}/24"), routed=routed)

    link("cam", "web", "202.112.10", host=80)
    link("cam", "ns", "202.112.11", host=53)
    for number, (border, isp) in enumerate(BORDERS.items()):
        link("cam", border, f"10.0.{number}")
        link(border, isp, f"100.64.{number}", routed=False)
    for number, pair in enumerate((("tel", "uni"), ("tel", "cer"), ("uni", "cer"))):
        link(*pair, f"100.65.{number}", routed=False)
    for host, isp, third in (("ct", "tel", 1), ("rt", "tel", 53), ("cu", "uni", 1), ("ru", "uni", 53)):
        link(isp, host, f"{ISPS[isp]}.{third}", host=2)
    for host, via in {"web": "cam", "ns": "cam", "ct": "tel", "rt": "tel", "cu": "uni", "ru": "uni"}.items():
        build.route(host, "default", via)
    build.loopback("brt", f"{PUBLIC}/32")
    build.route("tel", f"{PUBLIC}/32", "brt")
    build.nft("brt", packets.ruleset("to-tel", {(PUBLIC, 8001): (WEB, 80)}, FILTER))
    for key, value in packets.SYN_PROXY_SYSCTLS.items():
        build.sysctl("brt", key, value)
    return build.build()


def speakers(plan: Plan) -> dict[str, bird.Speaker]:
    found = {}
    for name, asn in ASN.items():
        sessions = []
        for link in plan.links_of(name):
            other = link.peer(name).node
            if other not in ASN:
                continue
            relation: bird.Relation = "peer"
            if ASN[other] == asn:
                relation = "internal"
            elif name in BORDERS:
                relation = "provider"
            elif other in BORDERS:
                relation = "customer"
            addresses = [IPv4Address(str(end.addresses[0].ip)) for end in (link.end(name), link.peer(name))]
            sessions.append(bird.Session(other, *addresses, ASN[other], relation, reflect=name == "cam"))
        own = {"cam": (CAMPUS, IPv4Network("202.112.11.0/24"))} | {
            isp: (IPv4Network(f"{net}.0.0/16"),) for isp, net in ISPS.items()
        }
        identity = IPv4Address(str(plan.address(name)))
        found[name] = bird.Speaker(identity, asn, tuple(sessions), own.get(name, ()))
    return found


def configured(plan: Plan) -> Plan:
    """The plan with every program: configurations follow from addresses that only the plan has."""
    ns = IPv4Address(str(plan.address("ns")))
    views = [
        authority.View((IPv4Network(f"{ISPS['tel']}.0.0/16"),), {HOST: PUBLIC}),
        authority.View((IPv4Network(f"{ISPS['uni']}.0.0/16"),), {HOST: IPv4Address("123.112.200.2")}),
    ]
    files = {"ns": authority.files("ns", ns, {HOST: WEB}, views, ttl=300, ecs=True)}
    services: dict[str, list[Service]] = {"ns": [authority.SERVICE], "rt": [resolver.SERVICE], "ru": [resolver.SERVICE]}
    for name in ("rt", "ru"):
        text = resolver.configuration(ip_address(str(plan.address(name))), ["campus.test"], ns, ecs=name == "ru")
        files[name] = [authority.File(path="resolver.conf", text=text)]
    for name, speaker in speakers(plan).items():
        files[name] = [authority.File(path="bird.conf", text=bird.configuration(speaker))]
        services[name] = [bird.SERVICE]
    key, value = authority.UNPRIVILEGED_PORTS
    nodes = [
        node.model_copy(
            update={
                "files": tuple(files.get(node.name, ())),
                "services": tuple(services.get(node.name, ())),
                "sysctls": {**node.sysctls, key: value},
            }
        )
        for node in plan.nodes
    ]
    return plan.model_copy(update={"nodes": tuple(nodes)})


@pytest.fixture(scope="module")
def lab(module_state: Path) -> Lab:
    started = up(configured(world()))
    control.await_sessions(birds(started))
    await_true(lambda: dns(started, "cu", "ru") == "123.112.200.2", "routes and name servers")
    return started


def birds(lab: Lab) -> dict[str, Path]:
    return {name: lab.node_folder(name) / "bird.ctl" for name in ASN}


def dns(lab: Lab, source: str, server: str, host: str = HOST) -> str | None:
    """What a node is told: the address, or the outcome if there is none."""
    result = dns_query(lab, source, server, host, timeout=2, tries=3)
    return result.addresses[0] if result.addresses else result.outcome


def hops(lab: Lab, source: str) -> list[str]:
    """Addresses that a packet to the web server passes and that write themselves into it (RFC 791, record route)."""
    said = lab.exec(source, ["ping", "-n", "-R", "-c1", "-W2", str(WEB)]).stdout
    return [line.split()[-1] for line in said.splitlines() if line.startswith(("RR:", "\t"))]


def test_a_resolver_gets_the_answer_of_its_own_prefix(lab: Lab) -> None:
    """The published fault: it is the resolver's address that decides, not the client's."""
    assert dns(lab, "ct", "rt") == str(PUBLIC)
    assert dns(lab, "cu", "rt") == str(PUBLIC)
    assert dns(lab, "cam", "ns") == str(WEB)
    assert dns(lab, "ct", "rt", "nothing.campus.test") == "nxdomain"
    assert dns(lab, "ct", "rt", "elsewhere.test") == "refused"


def test_a_resolver_that_tells_of_its_client_gets_the_clients_answer(lab: Lab) -> None:
    """RFC 7871: the same resolver, another answer for each client."""
    assert dns(lab, "cu", "ru") == "123.112.200.2"
    assert dns(lab, "ct", "ru") == str(PUBLIC)


def test_clients_come_in_by_their_own_provider_and_by_another_when_its_link_is_down(lab: Lab) -> None:
    own = str(lab.plan.address("brt"))
    assert any(hop.startswith("100.64.0.") or hop == own for hop in hops(lab, "ct"))
    assert control.routes_via(birds(lab)["tel"], str(WEB))[0] == "to_brt"
    lab.exec("brt", ["ip", "link", "set", "to-tel", "down"], check=True)
    await_true(lambda: bool(hops(lab, "ct")), "packets by another provider")
    assert not any(hop.startswith("100.64.0.") for hop in hops(lab, "ct"))
    assert control.down({"brt": birds(lab)["brt"]}).startswith("brt to_tel: ")
    with pytest.raises(WaitTimeout, match=r"brt to_tel"):
        control.await_sessions({"brt": birds(lab)["brt"]}, timeout=0.2)
    lab.exec("brt", ["ip", "link", "set", "to-tel", "up"], check=True)
    lab.exec("tel", ["ip", "route", "replace", f"{PUBLIC}/32", "via", "100.64.0.1"], check=True)
    control.await_sessions(birds(lab))
    await_true(lambda: any(hop.startswith("100.64.0.") for hop in hops(lab, "ct")), "the way back")


def test_bird_refuses_what_it_does_not_know(lab: Lab) -> None:
    with pytest.raises(TestbedError, match="bird says of 'show nonsense'"):
        control.ask(birds(lab)["cam"], "show nonsense")
    with pytest.raises(TestbedError, match="does not answer"):
        control.ask(Path("/nowhere/bird.ctl"), "show protocols")


def counter(lab: Lab, name: str) -> int:
    said = lab.exec("brt", ["nft", "-j", "list", "counter", "ip", packets.TABLE, name], check=True).stdout
    return int(json.loads(said)["nftables"][-1]["counter"]["packets"])


HALF_OPEN = """
import socket, struct, sys
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
to = socket.inet_aton(sys.argv[1])
for number in range(int(sys.argv[2])):
    source = socket.inet_aton(f"61.128.77.{number % 250 + 1}")
    tcp = struct.pack("!HHIIBBHHH", 1024 + number, 8001, number, 0, 5 << 4, 2, 1024, 0, 0)
    tcp = tcp[:16] + struct.pack("!H", checksum(source + to + struct.pack("!BBH", 0, 6, 20) + tcp)) + tcp[18:]
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, number, 0, 64, 6, 0, source, to)
    raw.sendto(head + tcp, (sys.argv[1], 0))
"""


def web_server(lab: Lab) -> None:
    if "web" in lab.services("web"):
        return
    program = "import socket,time\ns=socket.create_server(('', 80), backlog=512)\ntime.sleep(600)"
    lab.spawn("web", Service(name="web", argv=("python3", "-c", program)))
    await_true(lambda: tcp_connect(lab, "cam", f"{WEB}:80", timeout=1).outcome == "ok", "the web server")


def test_half_open_connections_do_not_reach_the_server(lab: Lab) -> None:
    web_server(lab)
    assert tcp_connect(lab, "ct", f"{PUBLIC}:8001", timeout=2).outcome == "ok"
    assert counter(lab, "dropped_opening") == 0
    lab.exec("ct", ["python3", "-c", HALF_OPEN, str(PUBLIC), "200"], check=True)
    half_open = lab.exec("web", ["ss", "-Hnt", "state", "syn-recv"], check=True).stdout
    assert half_open == ""
    tracked = lab.exec("brt", ["cat", "/proc/sys/net/netfilter/nf_conntrack_count"], check=True).stdout
    assert int(tracked) < 100, "a SYN that was not confirmed left an entry"


def test_a_source_holds_no_more_than_its_share(lab: Lab) -> None:
    web_server(lab)
    before = counter(lab, "dropped_held")
    program = (
        "import socket,sys,time\nheld=[]\n"
        f"for _ in range({FILTER.held + 3}):\n"
        "    c=socket.socket(); c.settimeout(10)\n"
        f"    c.connect(('{PUBLIC}', 8001)); held.append(c)\n"
        "time.sleep(0.5)\n"
    )
    lab.exec("rt", ["python3", "-c", program], check=True)  # the proxy answers everybody, the server only some
    assert counter(lab, "dropped_held") > before


def test_a_source_opens_no_faster_than_its_share(lab: Lab) -> None:
    web_server(lab)
    lab.exec("ct", ["python3", "-c", BURST, str(PUBLIC)], check=True)
    assert counter(lab, "dropped_opening") > 0
    assert tcp_connect(lab, "rt", f"{PUBLIC}:8001", timeout=3).outcome == "ok", "others are not limited"


BURST = """
import socket, sys
for _ in range(100):
    c = socket.socket(); c.setblocking(False); c.connect_ex((sys.argv[1], 8001))
"""


def test_who_makes_bad_requests_is_refused_for_a_while(lab: Lab) -> None:
    web_server(lab)
    folder = lab.node_folder("ns")
    client = str(lab.plan.address("rt"))
    lab.spawn("ns", agent.service(folder, [lab.namespace("brt")], FILTER, requests.SOCKET))
    await_true((folder / requests.SOCKET).exists, "the ban agent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.connect(str(folder / requests.SOCKET))
        for status in (400, 302, 400, 408):
            log.send(f"<190>Nov 30 06:42:22 edge: {client} {status}".encode())
    banned = ["nft", "list", "set", "ip", packets.TABLE, packets.BANNED]
    await_true(lambda: client in lab.exec("brt", banned, check=True).stdout, "the ban")
    await_true(lambda: (folder / "bans.jsonl").read_text().endswith("\n"), "the agent's own note of it")
    assert json.loads((folder / "bans.jsonl").read_text().splitlines()[0])["errors"] == []
    outcome = tcp_connect(lab, "rt", f"{PUBLIC}:8001", timeout=0.3).outcome
    if client in lab.exec("brt", banned, check=True).stdout:  # a stalled machine may have let the ban's time pass
        assert outcome == "timeout"
    assert tcp_connect(lab, "ct", f"{PUBLIC}:8001", timeout=3).outcome == "ok"
    await_true(lambda: tcp_connect(lab, "rt", f"{PUBLIC}:8001", timeout=0.5).outcome == "ok", "the ban's end")


def test_configurations_pass_the_programs_own_checks(tmp_path: Path) -> None:
    """A thousand sites and a view a provider: what knot says of it, which reads all of it before it starts."""
    hosts = {f"s{number}.campus.test": WEB for number in range(1000)}
    view = authority.View((IPv4Network("61.128.0.0/16"),), dict.fromkeys(hosts, PUBLIC))
    for file in authority.files("ns", IPv4Address("127.0.0.1"), hosts, [view]):
        (tmp_path / file.path).write_text(file.text.replace("${dir}", str(tmp_path)))
    done = subprocess.run(
        ["knotc", "-c", str(tmp_path / "knot.conf"), "conf-check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
