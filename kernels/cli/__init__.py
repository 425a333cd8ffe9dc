"""python -m kernels: the commands in a terminal."""
