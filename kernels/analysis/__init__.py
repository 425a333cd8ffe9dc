"""Pure functions on samples: statistics, verdicts, limits. No torch, no I/O."""
