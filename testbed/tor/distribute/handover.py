"""Letting an instance publish by itself, and stopping that again, through its control port.

In the half of a time period in which a distributor cannot see what clients ask for, instances have to do it themselves.
"""

from __future__ import annotations

from testbed.tor.control import Control


def publish_alone(control: Control) -> None:
    """Make a tor upload the descriptors of its onion services, now and from now on.

    Setting PublishHidServDescriptors alone does nothing for up to two hours. So its services are taken away and given
    back, which takes a second; connections that clients have to them are lost.
    """
    options = _service_options(control)
    control.setconf(PublishHidServDescriptors=1)
    if options:
        control.ask("SETCONF HiddenServiceDir")
        control.ask("SETCONF " + " ".join(f"{name}={_quoted(value)}" for name, value in options))


def publish_no_more(control: Control) -> None:
    """Make a tor keep its descriptors to itself from now on. What it has uploaded stays where it is."""
    control.setconf(PublishHidServDescriptors=0)


def publishes(control: Control) -> bool:
    """Whether a tor uploads descriptors by itself."""
    return dict(_getconf(control, "PublishHidServDescriptors")).get("PublishHidServDescriptors") != "0"


def _service_options(control: Control) -> list[tuple[str, str]]:
    """All options of its services, in the order of its configuration (control-spec 3.3, HiddenServiceOptions)."""
    return [(name, value) for name, value in _getconf(control, "HiddenServiceOptions") if value]


def _getconf(control: Control, name: str) -> list[tuple[str, str]]:
    lines = (line.partition("=") for _, _, line in control.ask(f"GETCONF {name}").content())
    return [(key, value) for key, _, value in lines]


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
