"""A campus edge with many providers: redirection, and the designs it competes with."""
