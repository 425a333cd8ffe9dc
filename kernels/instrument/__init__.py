"""How a number comes about: clocks, rounds, statistics, correctness, limits."""
