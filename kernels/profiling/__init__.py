"""Why a kernel is slow: hardware counters by ncu, and a timeline by PyTorch's profiler. Each runs the kernel in a
process of its own, never while something is measured."""
