"""What samples mean: pure functions. Any process imports it; it imports no torch and does no I/O."""
