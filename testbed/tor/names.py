"""Names of things that more than one part of the Tor subsystem and its reports have to know."""

JOINT = "+"
"""Between the names of instances whose introduction points are in one descriptor."""
