"""Private Tor networks and onion services: two subsystems, ``tor`` and ``onions``."""
