"""Kernels as people have them: which format a file is in, read from its syntax tree and never run."""
