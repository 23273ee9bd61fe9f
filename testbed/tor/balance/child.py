"""``python -m testbed.tor.balance.child SETTINGS.json``: the real OnionBalance 0.2.4 with other constants.

Changed from outside, before it begins; none of its code is copied:

* its timers (``hs_v3.params``);
* the number of HSDirs a replica, which it takes for a constant where tor goes by the consensus;
* the length of time periods and of shared-random runs, which it knows for voting intervals of an hour and of 20 s only;
* the key of its revision counters, see ``revision``;
* the ring of HSDirs, past whose end it goes on with the first one twice, takes that for having been all round, and
  publishes nothing then. Of thousands that are seldom the last ones; of a dozen they often are;
* the list of microdescriptors, of which stem 1.8 loses one: it drops the newline at the end of what tor says, the last
  one then has another digest than the consensus gives, and OnionBalance does not know that relay. Among thousands that
  does not matter; here half of all networks would have an HSDir that never gets a descriptor.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed.tor.balance.revision import tor_revision
from testbed.tor.balance.settings import BalancerSettings, Timers
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.timeperiod import ROUNDS

KEY_HEADER = 32
"""Bytes before the key in tor's key files."""


def write_configuration(settings: BalancerSettings) -> Path:
    """OnionBalance's own configuration file."""
    path = Path(settings.folder) / "onionbalance.yaml"
    instances = [{"address": address} for address in settings.instances]
    path.write_text(yaml.safe_dump({"services": [{"key": settings.key, "instances": instances}]}))
    return path


def set_constants(timers: Timers, spread: int) -> None:
    """Change OnionBalance's parameters."""
    from onionbalance.hs_v3 import params

    params.INITIAL_CALLBACK_DELAY = timers.start
    params.FETCH_DESCRIPTOR_FREQUENCY = timers.fetch
    params.PUBLISH_DESCRIPTOR_CHECK_FREQUENCY = timers.check
    params.FRONTEND_DESCRIPTOR_LIFETIME = timers.lifetime
    params.INSTANCE_DESCRIPTOR_TOO_OLD = timers.too_old
    params.HSDIR_SPREAD_STORE = spread


def set_periods() -> None:
    """Make OnionBalance take the voting interval from the consensus, as tor does (its freshness)."""
    from onionbalance.hs_v3.consensus import Consensus
    from stem.util import datetime_to_unix

    def interval(self: Any) -> int:
        return int(datetime_to_unix(self.consensus.fresh_until) - datetime_to_unix(self.consensus.valid_after))

    def run_start(self: Any) -> int:
        valid_after = int(datetime_to_unix(self.consensus.valid_after))
        return valid_after - valid_after // interval(self) % ROUNDS * interval(self)

    Consensus._get_srv_phase_duration = lambda self: ROUNDS // 2 * interval(self) // 60
    Consensus.get_time_period_length = lambda self: ROUNDS * interval(self) // 60
    Consensus.get_start_time_of_current_srv_run = run_start
    Consensus.get_start_time_of_previous_srv_run = lambda self: run_start(self) - ROUNDS * interval(self)


def set_revisions(secret: bytes) -> None:
    """Make OnionBalance number descriptors as a tor with this secret key would."""
    from onionbalance.hs_v3.descriptor import OBDescriptor
    from onionbalance.hs_v3.hashring import get_srv_and_time_period
    from onionbalance.hs_v3.onionbalance import my_onionbalance

    def revision(self: Any, identity: Any, first: bool) -> int:
        consensus = my_onionbalance.consensus
        _, period = get_srv_and_time_period(first)
        signer = BlindedSigner.make(secret, period, consensus.get_time_period_length())
        begun = (
            consensus.get_start_time_of_previous_srv_run() if first else consensus.get_start_time_of_current_srv_run()
        )
        return tor_revision(signer, int(time.time()) - begun + 1)

    OBDescriptor._get_revision_counter = revision


def set_microdescriptors() -> None:
    """Make stem read the last microdescriptor whole."""
    import stem.control
    from stem.descriptor import microdescriptor

    def all_of_them(self: Any) -> Iterator[Any]:
        content = self.get_info("md/all", get_bytes=True)
        yield from microdescriptor._parse_file(io.BytesIO(content.rstrip(b"\n") + b"\n"))

    stem.control.Controller.get_microdescriptors = all_of_them


class Round(list[bytes]):
    """A list that goes on with its first item after its last one."""

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place % len(self))


def set_ring() -> None:
    """Have OnionBalance go past the end of the ring of HSDirs (rend-spec-v3 2.2.3) without stopping there.

    Its function sorts the ring's places and then goes along them by number; that sorting is all that is changed.
    """
    from onionbalance.hs_v3 import hashring

    hashring.sorted = lambda places: Round(sorted(places))


def main(path: Path) -> int:
    """Run OnionBalance; it ends by SIGTERM or when it gives up."""
    settings = BalancerSettings.model_validate_json(path.read_text())
    set_constants(settings.timers, settings.spread)
    set_periods()
    set_microdescriptors()
    set_ring()
    set_revisions(Path(settings.key).read_bytes()[KEY_HEADER:])
    from onionbalance.hs_v3 import manager

    arguments = argparse.Namespace(
        config=str(write_configuration(settings)),
        ip="127.0.0.1",
        port=0,
        socket=settings.control,
        verbosity="info",
        is_testnet=False,
        hs_version="v3",
    )
    return int(manager.main(arguments) or 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
