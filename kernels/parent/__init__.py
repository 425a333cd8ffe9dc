"""The parent of the measuring process: it owns seeds, order, statistics and verdicts. It never imports torch."""
