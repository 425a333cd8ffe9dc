"""Searches for the settings of a kernel that are best on a card, with the instrument that measures everything else."""
