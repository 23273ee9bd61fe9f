"""Real BGP (bird2) for a campus with an autonomous system of its own."""
