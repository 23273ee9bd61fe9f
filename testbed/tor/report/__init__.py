"""Report sections of the same-key onion experiment."""

from __future__ import annotations

from testbed.tor.report.sections import sections, summary_table

__all__ = ["sections", "summary_table"]
