"""When the service must move: sequences of bits, and the scheduler that reads them. Pure."""
