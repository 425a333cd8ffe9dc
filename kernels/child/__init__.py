"""The measuring process: the only one that imports torch and kernels. kernels/parent starts it: `python -m
kernels.child`."""
