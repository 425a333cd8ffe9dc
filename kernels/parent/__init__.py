"""The process beside the measuring one: it owns seeds, order, statistics and verdicts. It never imports torch."""
