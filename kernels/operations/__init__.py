"""One folder per operation; one file per kernel beside it."""
