"""The command ``testbed``. Each module here registers a group of commands; what is heavy is imported inside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated

import typer

from testbed import __version__
from testbed.cli import data, distributor, fault, lab, link, machine, run, scenario, topology
from testbed.cli.output import print_error
from testbed.errors import TestbedError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""

app = typer.Typer(
    name="testbed",
    help="Private network labs on real binaries, each from one YAML file; measured and reported.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (topology, lab, link, fault, scenario, run, data, distributor, machine):
    module.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"testbed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


_command = cache(lambda: typer.main.get_command(app))  # made once, for a program that runs several of them


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A ``TestbedError`` becomes one message on stderr, never a traceback."""
    try:
        _command()(args=None if argv is None else list(argv), prog_name="testbed")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer ends so, silently, when Ctrl-C reaches it
            print("interrupted", file=sys.stderr)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except TestbedError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0
