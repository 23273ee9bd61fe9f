"""Intruders, detectors, and what both cost: the pool's security measured instead of computed."""
