"""``python3 -m web``: serve files; see ``server``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .control import Control
from .server import FileServer


def main(arguments: list[str]) -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(description="HTTP file server whose connections can be handed over")
    parser.add_argument("--name", required=True, help="said in the header X-Server")
    parser.add_argument("--root", type=Path, required=True, help="folder of the files")
    parser.add_argument("--listen", action="append", required=True, help="ADDRESS:PORT; may be repeated")
    parser.add_argument("--control", type=Path, required=True, help="path of the control socket")
    parser.add_argument("--uploads", type=Path, help="folder for uploads; without it there are none")
    parser.add_argument("--log", type=Path, help="file of requests, a JSON object a line")
    parser.add_argument("--rate", type=int, default=0, help="most bytes a second to each client; 0: as fast as it goes")
    given = parser.parse_args(arguments)
    server = FileServer(given.name, given.root, given.listen, given.uploads, given.log, given.rate)
    Control(server, given.control)
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
