"""Problems that came with their kernels: how the files of each format are called, in a process that may run them."""
