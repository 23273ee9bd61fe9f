"""The report of a run: one HTML file with its figures, made from the run folder alone."""

from __future__ import annotations

from pathlib import Path


def build_report(run_path: Path, output: Path | None = None) -> Path:
    """Write the report of the run at ``run_path`` and return its path; see ``testbed.report.build``."""
    from testbed.report.build import build_report as build

    return build(run_path, output)
