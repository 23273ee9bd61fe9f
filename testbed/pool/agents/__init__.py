"""How servers agree on who serves: their states, the competition, the shared store; in virtual and in real time."""
