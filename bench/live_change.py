"""One property of a running link changed and read back: how long does it take?"""

from __future__ import annotations

import time

from bench.figure import Figure

CHANGES = 200
TOPOLOGY = """\
name: live-change
nodes: {a: , b: }
links:
  - {endpoints: [a, b], delay: 5ms, rate: 100mbit}
"""


def measure(name: str) -> Figure:
    """Milliseconds from the call to the answer that the change is in force."""
    from testbed.lab import links
    from testbed.lab.up import up
    from testbed.plan.load import load_text

    _, plan = load_text(TOPOLOGY)
    lab = up(plan)
    try:
        link = links.find(lab, "a", "b")
        forward, _ = links.impairment(lab, link)
        values = []
        for number in range(CHANGES):
            wanted = forward.model_copy(update={"delay_us": 5000 + number % 2 * 1000 + 1000})
            start = time.perf_counter()
            links.change(lab, link, wanted)
            values.append((time.perf_counter() - start) * 1000)
    finally:
        lab.down()
    return Figure(name, "ms", 5.0, tuple(values))
