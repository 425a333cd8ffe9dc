"""The processes of an isolated measurement: cells, each with one kernel, and the trusted one, with inputs and
references. kernels/parent starts them: `python -m kernels.isolated cell`, `python -m kernels.isolated trusted`."""
