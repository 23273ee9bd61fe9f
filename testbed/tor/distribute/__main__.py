"""``python -m testbed.tor.distribute SETTINGS.json``: how a lab runs a distributor. It ends at SIGTERM or SIGINT.

Exit status 2 says that it could not begin; what was wrong is the last line of its output.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed.errors import TestbedError
from testbed.tor.distribute.engine import Distributor
from testbed.tor.distribute.journal import Journal
from testbed.tor.distribute.settings import Settings


def serve(settings: Settings, journal: Journal) -> None:
    """Run a distributor until a signal ends it; TestbedError if it cannot begin."""
    distributor = Distributor(settings, journal)
    distributor.open()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    journal.event("distributor_started", address=distributor.address, mode=settings.mode)
    distributor.run(stop)
    journal.event("distributor_ended")


def _tell(kind: str, node: str, detail: Mapping[str, Any]) -> None:
    words = " ".join(f"{key}={value}" for key, value in detail.items())
    print(f"{kind} {node} {words}".replace("  ", " "), flush=True)


def main(path: Path) -> int:
    """The exit status."""
    try:
        settings = Settings.model_validate_json(path.read_text())
        serve(settings, Journal(Path(settings.folder), _tell))
    except (OSError, ValidationError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    except TestbedError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
