"""The command ``testbed``. Each module here registers a group of commands; what is heavy is imported inside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from testbed.cli import lab, machine, run, topology
from testbed.cli.output import print_error
from testbed.errors import TestbedError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""

app = typer.Typer(
    name="testbed",
    help="One YAML file to a private network lab on real binaries: measured and reported.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (topology, lab, run, machine):
    module.register(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A ``TestbedError`` becomes one message on stderr, never a traceback."""
    try:
        app(args=None if argv is None else list(argv), prog_name="testbed")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except TestbedError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0
