"""Commands about this machine: ``doctor`` and ``images``."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from testbed.lab.doctor import Check


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(doctor)
    images = typer.Typer(no_args_is_help=True, help="The container image of nodes.")
    images.command("build")(build_images)
    images.command("show")(show_images)
    images.command("remove")(remove_images)
    app.add_typer(images, name="images")


def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False) -> None:
    """Say what this machine has and lacks.

    With the remedy for each lack. The status is 1 if labs cannot run.
    """
    from testbed.lab.doctor import diagnose

    checks = diagnose()
    lacks = sum(check.state == "lack" for check in checks)
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        _print_checks(checks)
        warnings = sum(check.state == "warn" for check in checks)
        root = "" if os.geteuid() == 0 else "; some things can only be checked as root"
        print(f"\n{lacks} lacking, {warnings} warnings{root}")
    if lacks:
        raise typer.Exit(1)


def build_images(
    force: Annotated[bool, typer.Option("--force", help="Make it anew, with today's packages.")] = False,
) -> None:
    """Make the container image, unless it is up to date."""
    from testbed.runtime import images

    made = images.build(force=force, say=_say)
    print(f"{images.DEFAULT_IMAGE} {'is ready' if made else 'is up to date'}")


def show_images() -> None:
    """Say whether the container image is there and up to date. The status is 1 if it is absent."""
    from testbed.runtime import images

    state = images.state()
    print(f"{images.DEFAULT_IMAGE} is {state}")
    if state == "absent":
        raise typer.Exit(1)


def remove_images() -> None:
    """Remove the images that were made here, with their base.

    Nothing else of Docker's is touched.
    """
    from testbed.runtime import images

    images.remove(_say)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_checks(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"ok": "green", "warn": "yellow", "lack": "bold red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        state = Text(check.state, style=colours[check.state])
        table.add_row(state, Text(check.name, no_wrap=True), Text(check.found))
        if check.remedy:
            table.add_row("", "", Text(f"-> {check.remedy}", style="dim"))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
