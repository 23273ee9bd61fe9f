"""testbed: one YAML file to a private network lab on real binaries, measured and reported."""

__version__ = "0.1.0"
