"""What follows from the specifications of Tor alone: keys, time periods, the ring of HSDirs, descriptors. Pure."""
