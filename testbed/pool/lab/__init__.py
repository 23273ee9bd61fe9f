"""Pools on real servers: the dispatcher, the programs, the handle."""
