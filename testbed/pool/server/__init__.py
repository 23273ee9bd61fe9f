"""The servers of a pool: what they serve, how they are made anew, and how that is checked."""
