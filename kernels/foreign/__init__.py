"""Results that other tools wrote: files read as claims. Pure functions: no torch, no I/O."""
