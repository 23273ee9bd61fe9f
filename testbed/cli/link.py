"""The command that shows and changes a link of a running lab."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from testbed.cli.lab import LabName, find_lab
from testbed.errors import TestbedError

_PROPERTIES = {"delay": "delay_us", "jitter": "jitter_us", "rate": "rate_bps"}
"""Names in the topology language of properties that the plan calls otherwise."""


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(link)


def link(
    a: Annotated[str, typer.Argument(metavar="A", help="One end: NODE or NODE:INTERFACE.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other end.")],
    delay: Annotated[str | None, typer.Option(help="One-way delay, such as 80ms.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Half width of the delay's variation.")] = None,
    loss: Annotated[str | None, typer.Option(help="Share of packets lost, such as 0.5%.")] = None,
    loss_burst: Annotated[float | None, typer.Option(help="Mean length of a burst of losses, packets.")] = None,
    duplicate: Annotated[str | None, typer.Option(help="Share of packets sent twice.")] = None,
    corrupt: Annotated[str | None, typer.Option(help="Share of packets with a flipped bit.")] = None,
    reorder: Annotated[bool | None, typer.Option(help="Whether jitter may change the order.")] = None,
    rate: Annotated[str | None, typer.Option(help="Rate limit, such as 8mbit; `none` takes it away.")] = None,
    one_way: Annotated[bool, typer.Option("--one-way", help="Only from the first end to the second.")] = False,
    up: Annotated[bool | None, typer.Option("--up/--down", help="Plug or pull the cable.")] = None,
    name: LabName = None,
) -> None:
    """Show a link, or change it while it carries traffic.

    What is not given stays as it is. Changes are read back.
    """
    from testbed.lab import links
    from testbed.plan.types import Impairment

    lab = find_lab(name)
    found = links.find(lab, a, b)
    changes = _parsed(
        delay=delay, jitter=jitter, loss=loss, loss_burst=loss_burst, duplicate=duplicate, corrupt=corrupt,
        reorder=reorder, rate=rate,
    )  # fmt: skip
    if one_way and not changes:
        raise TestbedError("--one-way changes nothing by itself", remedy="add --delay, --loss or the like")
    if changes:
        forward, backward = links.impairment(lab, found)
        first_to_second = found.a == links.end_at(found, a)
        wanted_forward = wanted_backward = None
        if first_to_second or not one_way:
            wanted_forward = Impairment(**{**forward.model_dump(), **changes})
        if not first_to_second or not one_way:
            wanted_backward = Impairment(**{**backward.model_dump(), **changes})
        for one in (wanted_forward, wanted_backward):
            if one is not None and one.jitter_us > one.delay_us:
                raise TestbedError("a jitter of more than the delay would need negative delays", remedy="add --delay")
        links.change(lab, found, wanted_forward, wanted_backward)
    if up is not None:
        for end in (found.a, found.b):
            links.set_admin_state(lab, end, up=up)
    _show(lab, found)


def _parsed(**options: Any) -> dict[str, Any]:
    """What was given, in the plan's names and units. TestbedError says which option is wrong."""
    from pydantic import ValidationError

    from testbed.model.topology import ImpairmentSpec

    remove_rate = options.get("rate") == "none"
    given = {key: value for key, value in options.items() if value is not None and not (key == "rate" and remove_rate)}
    try:
        spec = ImpairmentSpec.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise TestbedError(f"{option}: {first['msg'].removeprefix('Value error, ')}") from None
    found = {_PROPERTIES.get(key, key): getattr(spec, key) for key in given}
    return {**found, "rate_bps": None} if remove_rate else found


def _show(lab: Any, found: Any) -> None:
    from testbed.lab import links
    from testbed.plan.text import impairment_text

    forward, backward = links.impairment(lab, found)
    for start, end, what in ((found.a, found.b, forward), (found.b, found.a, backward)):
        device = links.device(lab, start)
        state = "up" if device.up and device.carrier else "no carrier" if device.up else "down"
        print(
            f"{start.node}:{start.interface} -> {end.node}:{end.interface}  {state}  {impairment_text(what) or 'plain'}"
        )
