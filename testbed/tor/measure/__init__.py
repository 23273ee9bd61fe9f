"""What is measured of a Tor network and its onion services."""
