"""Bringing a private Tor network up, cold and warm."""
