"""The measuring process: the only one that imports torch and kernels. `python -m kernels.child`, started by kernels/parent."""
