"""Benchmarks: ``python -m bench NAME``. Figures, not tests: the clock of a shared machine is no verdict."""
