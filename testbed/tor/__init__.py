"""Private Tor networks and onion services: two subsystems, ``tor`` and ``onions``."""

from testbed.tor.subsystem import OnionsSubsystem, TorSubsystem

tor = TorSubsystem()
onions = OnionsSubsystem()
