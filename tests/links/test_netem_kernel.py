"""netem on interfaces, beyond what all engines share: what is read back, what is not ours, what is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from link_engines import LinkEngine, in_namespace
from link_traffic import Flow
from link_world import IFNAME, ImpairedLink, impaired_link

from testbed.errors import ApplyError
from testbed.net import netem, readback, requests
from testbed.net.netlink import Netlink
from testbed.plan.types import Impairment

pytestmark = [pytest.mark.root, pytest.mark.parametrize("engine", ["netem"], indirect=True)]

EVERYTHING = Impairment(
    delay_us=123_456,
    jitter_us=12_345,
    loss=0.0123,
    loss_burst=3.5,
    duplicate=0.045,
    corrupt=0.0067,
    rate_bps=12_345_678,
)


@pytest.fixture
def link(engine: LinkEngine) -> Iterator[ImpairedLink]:
    """A plain veth link whose ends netem may impair."""
    with impaired_link(engine) as made:
        yield made


def at_a(link: ImpairedLink, work: Callable[[Netlink, int], Any]) -> Any:
    """Run ``work`` with a socket in node a and the index of the interface there."""
    return in_namespace(link.namespaces["a"], lambda netlink: work(netlink, readback.devices(netlink)[IFNAME].index))


def impair(link: ImpairedLink, impairment: Impairment) -> None:
    at_a(link, lambda netlink, index: netem.impair(netlink, "node a", index, IFNAME, impairment, 1500))


def verify(link: ImpairedLink, impairment: Impairment) -> None:
    at_a(
        link,
        lambda netlink, index: netem.verify("node a", netem.read_one(netlink, index), IFNAME, impairment, 1500),
    )


def remove(link: ImpairedLink) -> None:
    at_a(link, lambda netlink, index: netem.remove(netlink, "node a", index, IFNAME))


def tc(link: ImpairedLink, *words: str) -> list[dict[str, Any]]:
    """Run tc in node a; what it shows, if it shows something."""
    shown = link.run("a", ["tc", "-json", *words]).stdout
    return list(json.loads(shown)) if shown.strip() else []


def test_tc_agrees(link: ImpairedLink) -> None:
    """tc, an independent decoder, shows what was asked for."""
    impair(link, EVERYTHING)
    shown = {item["handle"]: item for item in tc(link, "qdisc", "show", "dev", IFNAME)}
    options = shown["7b01:"]["options"]
    assert options["delay"] == pytest.approx({"delay": 0.123456, "jitter": 0.012345, "correlation": 0}, abs=2e-6)
    end = 1 / 3.5
    assert options["loss-gemodel"]["p"] == pytest.approx(end * 0.0123 / (1 - 0.0123), rel=1e-6)
    assert options["loss-gemodel"]["r"] == pytest.approx(end, rel=1e-6)
    # as tc shows them: share lost after a burst has begun, share lost between bursts
    assert (options["loss-gemodel"]["1-h"], options["loss-gemodel"]["1-k"]) == (1, 0)
    assert options["duplicate"]["duplicate"] == pytest.approx(0.045, rel=1e-6)
    assert options["corrupt"]["corrupt"] == pytest.approx(0.0067, rel=1e-6)
    assert shown["7b02:"]["options"]["rate"] == 12_345_678 // 8
    assert shown["7b01:"]["parent"] == "7b00:1"
    assert shown["7b02:"]["parent"] == "7b01:1"


@pytest.mark.parametrize(
    "field", ["delay_us", "jitter_us", "loss", "loss_burst", "duplicate", "corrupt", "reorder", "rate_bps"]
)
def test_any_difference_is_found(link: ImpairedLink, field: str) -> None:
    """C15, C17: after another setting of one property, the readback of the first names an error."""
    impair(link, EVERYTHING)
    verify(link, EVERYTHING)
    other = {"loss": 0.02, "loss_burst": 2.0, "reorder": True, "duplicate": 0.0, "corrupt": 0.1}.get(field)
    changed = EVERYTHING.model_copy(update={field: getattr(EVERYTHING, field) + 1 if other is None else other})
    if field == "rate_bps":
        changed = changed.model_copy(update={"rate_bps": 12_345_678 + 8})
    impair(link, changed)
    with pytest.raises(ApplyError):
        verify(link, EVERYTHING)
    impair(link, EVERYTHING)
    verify(link, EVERYTHING)


def test_what_others_change_is_found(link: ImpairedLink) -> None:
    impair(link, EVERYTHING)
    tc(link, "qdisc", "change", "dev", IFNAME, "parent", "7b00:1", "handle", "7b01:", "netem", "delay", "1ms")
    with pytest.raises(ApplyError, match="delay_ns of eth0 reads 1000000 after 123456000"):
        verify(link, EVERYTHING)
    tc(link, "qdisc", "del", "dev", IFNAME, "root")
    with pytest.raises(ApplyError, match="not in force"):
        verify(link, EVERYTHING)


def test_c11_a_foreign_qdisc_is_left_alone(link: ImpairedLink) -> None:
    """C11: one at the place of ours makes ours refuse; removal passes it by."""
    tc(link, "qdisc", "add", "dev", IFNAME, "root", "handle", "1:", "netem", "delay", "7ms")
    before = tc(link, "qdisc", "show", "dev", IFNAME)
    with pytest.raises(ApplyError, match=r"not ours: netem 1:"):
        impair(link, EVERYTHING)
    remove(link)
    assert tc(link, "qdisc", "show", "dev", IFNAME) == before


def test_c11_removal_takes_only_ours(link: ImpairedLink) -> None:
    """C11: filters of somebody else at the same interface stay, and so does what another interface has."""
    tc(link, "qdisc", "add", "dev", IFNAME, "clsact")
    tc(link, "qdisc", "add", "dev", "lo", "root", "handle", "7b00:", "pfifo", "limit", "7")
    impair(link, EVERYTHING)
    remove(link)
    left = [(item["kind"], item["dev"]) for item in tc(link, "qdisc", "show")]
    assert ("clsact", IFNAME) in left
    assert ("pfifo", "lo") in left
    assert not {("netem", IFNAME), ("tbf", IFNAME)} & set(left)


def test_removal_loses_nothing(link: ImpairedLink) -> None:
    impair(link, Impairment(delay_us=200_000, rate_bps=50_000_000))
    with Flow(link) as flow:
        flow.send(300)
        remove(link)
        flow.send(100)
        arrivals = flow.arrivals()
    assert [arrival.number for arrival in arrivals] == list(range(400))


def test_the_queue_of_a_rate_alone_is_not_lost(link: ImpairedLink) -> None:
    """The link's token bucket, with packets waiting in it, becomes part of the impairment."""
    rate = 400_000
    at_a(link, lambda netlink, index: netlink.apply("node a", [requests.tbf(index, rate, 1500, IFNAME)]))
    with Flow(link) as flow:
        flow.send(7, size=1000)  # the last ones wait for 100 ms
        impair(link, Impairment(delay_us=5000, rate_bps=rate))
        flow.send(4, size=1000)
        arrivals = flow.arrivals()
    assert [arrival.number for arrival in arrivals] == list(range(11))


def test_limit_does_not_shrink_under_packets(link: ImpairedLink) -> None:
    """A shorter delay needs a shorter queue; but while the longer one is full, new packets must not be refused."""
    long, short = Impairment(delay_us=1_000_000), Impairment(delay_us=1000)
    impair(link, long)
    impair(link, short)
    shown = {item["handle"]: item for item in tc(link, "qdisc", "show", "dev", IFNAME)}
    assert shown["7b01:"]["options"]["limit"] == netem.limit(long) > netem.limit(short)
    verify(link, short)


def test_trial_leaves_nothing(link: ImpairedLink) -> None:
    """The trial of the kernel does not touch the namespace that it is asked in."""
    before = tc(link, "qdisc", "show")
    at_a(link, lambda _netlink, _index: netem.kernel_lack())
    assert tc(link, "qdisc", "show") == before
