"""The benchmark library: what is measured (operations, kernels) and how (the instrument). It never imports Django."""

HARNESS_VERSION = "1"
"""Part of every fingerprint: raised whenever a change to the instrument may move a number."""
