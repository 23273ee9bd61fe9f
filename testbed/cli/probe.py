"""The command ``probe``: one measurement in a lab that is up, made now and recorded nowhere."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from testbed.cli import complete
from testbed.cli.lab import LabName, find_lab
from testbed.cli.output import print_json
from testbed.cli.probe_node import AsJson, conntrack, counters, usage
from testbed.errors import TestbedError

Source = Annotated[str, typer.Argument(metavar="NODE", help="The node that asks.", autocompletion=complete.nodes)]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="A node or an address.", autocompletion=complete.nodes)]
Timeout = Annotated[float, typer.Option(min=0.001, help="Seconds to wait for an answer.")]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Measure something in a lab, from inside a node.")
    for command in (ping, tcp, http, throughput, dns, path, availability, counters, conntrack, usage):
        group.command()(command)
    app.add_typer(group, name="probe")


def ping(
    source: Source,
    target: Target,
    count: Annotated[int, typer.Option(min=1, help="How many requests.")] = 5,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between two.")] = 0.2,
    timeout: Timeout = 1.0,
    as_json: AsJson = False,
    name: LabName = None,
) -> None:
    """Round-trip times and losses."""
    from testbed.measure.probes.ping import ping as ask

    series = ask(find_lab(name), source, target, count=count, interval=interval, timeout=timeout)
    if as_json:
        print_json(series)
    else:
        for echo in series.echoes:
            print(f"{echo.number}: {_ms(echo.rtt)}")
        print(f"{series.sent} sent, {series.lost} lost, median {_ms(series.median if series.rtts else None)}")
    _exit(series.lost == 0)


def tcp(
    source: Source,
    target: Annotated[str, typer.Argument(metavar="TARGET:PORT", help="Such as b:80.")],
    timeout: Timeout = 5.0,
    as_json: AsJson = False,
    name: LabName = None,
) -> None:
    """How long a TCP connection takes to be made."""
    from testbed.measure.probes.tcp import tcp_connect

    made = tcp_connect(find_lab(name), source, target, timeout=timeout)
    print_json(made) if as_json else print(_ms(made.seconds) if made.ok else made.outcome)
    _exit(made.ok)


def http(
    source: Source,
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as http://b/file.")],
    follow: Annotated[bool, typer.Option(help="Follow redirects.")] = True,
    address: Annotated[str | None, typer.Option(help="Connect there, whatever host the URL names.")] = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
    name: LabName = None,
) -> None:
    """One HTTP request: its times and its redirects."""
    from testbed.measure.probes.http import http_get

    got = http_get(find_lab(name), source, url, follow=follow, address=address, timeout=timeout)
    if as_json:
        print_json(got)
    else:
        for redirect in got.redirects:
            print(f"{redirect.status} {redirect.url} -> {redirect.location}")
        status = "" if got.status is None else f", status {got.status}, {got.bytes} bytes"
        print(f"{got.outcome}{status}")
        print(f"connected {_ms(got.connect)}, first byte {_ms(got.first_byte)}, last byte {_ms(got.total)}")
    _exit(got.ok)


def throughput(
    source: Source,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The node that receives.", autocompletion=complete.nodes)
    ],
    protocol: Annotated[str, typer.Option(help="`tcp` or `udp`.")] = "tcp",
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to count.")] = 2.0,
    rate: Annotated[str | None, typer.Option(help="The most that is sent, such as 8mbit; UDP: 10mbit.")] = None,
    as_json: AsJson = False,
    name: LabName = None,
) -> None:
    """How much goes through, in bits a second."""
    from testbed.measure.probes.throughput import throughput as send
    from testbed.model.quantities import parse_rate_bps

    if protocol not in ("tcp", "udp"):
        raise TestbedError(f"throughput over {protocol!r}", remedy="choose tcp or udp")
    try:
        rate_bps = None if rate is None else parse_rate_bps(rate)
    except ValueError as error:
        raise TestbedError(f"--rate: {error}", remedy="write --rate 8mbit") from error
    lab = find_lab(name)
    got = send(lab, source, target, protocol="udp" if protocol == "udp" else "tcp", seconds=seconds, rate_bps=rate_bps)
    if as_json:
        print_json(got, bps=got.bps, link_bps=got.link_bps, loss=got.loss)
    elif got.outcome != "ok":
        print(got.outcome)
    else:
        lost = f", {100 * got.loss:.1f} % lost" if protocol == "udp" else ""
        print(f"{got.bps / 1e6:.4g} Mbit/s of payload, {got.link_bps / 1e6:.4g} Mbit/s with all headers{lost}")
    _exit(got.outcome == "ok")


def dns(
    source: Source,
    server: Annotated[str, typer.Argument(metavar="SERVER", help="A node or an address; with another port ns1:5353.")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The name that is asked for.")],
    type: Annotated[str, typer.Option(help="Type of the record.")] = "A",
    timeout: Timeout = 2.0,
    as_json: AsJson = False,
    name: LabName = None,
) -> None:
    """One DNS query."""
    from testbed.measure.probes.dns import dns_query

    got = dns_query(find_lab(name), source, server, question, type=type.upper(), timeout=timeout)
    if as_json:
        print_json(got)
    else:
        for record in got.records:
            print(f"{record.name} {record.ttl} {record.type} {record.data}")
        print(f"{got.outcome} {_ms(got.seconds) if got.seconds else ''}".rstrip())
    _exit(got.outcome == "ok")


def path(
    source: Source,
    target: Target,
    method: Annotated[str, typer.Option(help="`udp` or `icmp`.")] = "udp",
    timeout: Timeout = 1.0,
    as_json: AsJson = False,
    name: LabName = None,
) -> None:
    """Which nodes a packet crosses."""
    from testbed.measure.probes.path import path as trace

    if method not in ("udp", "icmp"):
        raise TestbedError(f"a path by {method!r}", remedy="choose udp or icmp")
    got = trace(find_lab(name), source, target, method="icmp" if method == "icmp" else "udp", timeout=timeout)
    if as_json:
        print_json(got)
    else:
        for hop, node in zip(got.hops, got.nodes, strict=True):
            print(f"{hop.ttl}: {node}" + (f" ({hop.address}) {_ms(hop.rtt)}" if hop.address else ""))
        if not got.reached:
            print("not reached")
    _exit(got.reached)


def availability(
    source: Source,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A node, TARGET:PORT or a URL.")],
    seconds: Annotated[float, typer.Option(min=0.01, help="How long to ask.")] = 10.0,
    period: Annotated[float, typer.Option(min=0.001, help="Seconds between two questions.")] = 0.1,
    timeout: Timeout = 1.0,
    as_json: AsJson = False,
    name: LabName = None,
) -> None:
    """Ask at a fixed period, and tell the outages."""
    from testbed.measure.probes.availability import Availability
    from testbed.plan.text import counted

    watch = Availability(find_lab(name), source, target, period=period, timeout=timeout).start()
    started = time.monotonic()
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        pass
    finally:
        seen = watch.stop()
    outages = [
        {
            "after": max(0.0, outage.first_lost - started),  # the first question may be asked a little before
            "seconds": outage.seconds,
            "shortest": outage.shortest,
            "longest": outage.longest,
            "lost": outage.lost,
            "complete": outage.complete,
        }
        for outage in seen.outages
    ]
    if as_json:
        print_json({"asked": len(seen.attempts), "lost": seen.lost, "outcomes": seen.outcomes, "outages": outages})
    else:
        for outage in outages:
            longest = "not seen whole" if outage["longest"] is None else f"{outage['longest']:.3f}"
            print(
                f"{outage['after']:.3f} s: out for {outage['seconds']:.3f} s "
                f"[{outage['shortest']:.3f}, {longest}], {outage['lost']} lost"
            )
        print(f"{len(seen.attempts)} asked, {seen.lost} lost, {counted(len(outages), 'outage')}")
    _exit(seen.lost == 0)


def _ms(seconds: float | None) -> str:
    return "no answer" if seconds is None else f"{1000 * seconds:.3g} ms"


def _exit(well: bool) -> None:
    """The status is 1 where there was no good answer, so that a shell can tell."""
    if not well:
        raise typer.Exit(1)
