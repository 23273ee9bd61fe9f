"""Faults: what can go wrong in a lab on purpose. One file a fault."""
