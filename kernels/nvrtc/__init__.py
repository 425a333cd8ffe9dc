"""CUDA C++ kernels: what a .cu file declares, NVRTC that compiles it, and the callable that launches it."""
