"""One MTU for the whole link (case C16), whichever engine carries it."""

from __future__ import annotations

import pytest
from link_engines import LinkEngine
from link_world import impaired_link

from testbed.plan.types import Impairment

pytestmark = pytest.mark.root


@pytest.mark.parametrize("mtu", [1400, 9000])
def test_c16_a_packet_of_the_mtu_passes_and_no_larger_one(engine: LinkEngine, mtu: int) -> None:
    """Also where frames are cut to single packets, as for loss."""
    headers = 28
    impairment = Impairment(delay_us=2000, loss=1e-6, rate_bps=50_000_000)
    with impaired_link(engine, forward=impairment, backward=impairment, mtu=mtu) as link:
        for source, target in (("a", "b"), ("b", "a")):
            ping = ["ping", "-n", "-c", "1", "-M", "do", link.address(target), "-s"]
            fits = link.run(source, [*ping, str(mtu - headers), "-W", "5"], check=False)
            assert fits.returncode == 0, fits.stdout
            too_long = link.run(source, [*ping, str(mtu - headers + 1), "-W", "0.2"], check=False)
            assert too_long.returncode != 0, too_long.stdout
