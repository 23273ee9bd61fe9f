"""An instance that takes leave of its clients before it ends.

Whoever has its descriptor asks the introduction points in it. These learn that the instance is gone when the end of its
circuits has come to them, relay by relay; until then they acknowledge, and the client waits half a minute for nobody
(see ``clientlog``). After an end by a signal, also by SIGINT, that happens to whoever asks in that moment. An instance
that closes its introduction circuits first, and stays for a second or two, is still there for those who were being
introduced, while everybody else is refused at once and fetches the descriptor anew.
"""

from __future__ import annotations

import contextlib
import re
import time

from testbed.tor.control import Control, ControlError
from testbed.tor.distribute.handover import publish_no_more

_INTRODUCTION = "PURPOSE=HS_SERVICE_INTRO"
_CIRCUIT = re.compile(r"^(?:CIRC|CIRC_MINOR) (\d+) (\w+) ")
_OVER = {"CLOSED", "FAILED"}


def take_leave(control: Control, seconds: float) -> int:
    """Publish no more, and for so long close every introduction circuit; how many there were.

    tor makes them anew once a second (a few times, and then others). Connections that clients have, and those to which
    they are just being led, go on. ControlError if tor ends meanwhile.
    """
    deadline = time.monotonic() + seconds
    publish_no_more(control)
    control.subscribe("CIRC", "CIRC_MINOR")
    closed = sum(_close(control, line.split(" ", 1)[0]) for line in _circuits(control) if _INTRODUCTION in line)
    while (left := deadline - time.monotonic()) > 0:
        event = control.next_event(left)
        if event and _INTRODUCTION in event and (found := _CIRCUIT.match(event)) and found[2] not in _OVER:
            closed += _close(control, found[1])
    return closed


def _circuits(control: Control) -> list[str]:
    return control.getinfo("circuit-status").splitlines()


def _close(control: Control, circuit: str) -> bool:
    with contextlib.suppress(ControlError):  # it has ended meanwhile
        control.ask(f"CLOSECIRCUIT {circuit}")
        return True
    return False
