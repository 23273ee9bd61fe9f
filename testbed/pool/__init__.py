"""Rotating server pools: what decides when the service moves and to whom. Pure but for ``clock.RealClock``.

The same schedule, state machine and competition run in virtual time and in real time; only the clock, the transport
and the shared store behind them differ.
"""
