"""python -m kernels: the library without the site.

Exit status: 0: every result ok or unsupported; 1: a result is not ok; 2: the command failed; 128 + N: ended by signal N
(130: SIGINT, 143: SIGTERM); 141: nobody reads the output any more. `judge`: 1 unless the claim is plausible. `calibrate`: 1
if the device was busy. `compare`: 1 if a kernel is slower or not ok; 2 if the runs cannot be compared. `gate`: 0 if it
holds, 1 if it fails, 2 if it cannot tell. `merge`: 0 if the file is written, else 2.
"""

from __future__ import annotations

import sys

from kernels.host import starting

if __name__ == "__main__":
    try:
        with starting.imports():
            from kernels.cli.main import main
    except KeyboardInterrupt:  # the imports take a second
        sys.exit(130)
    sys.exit(main())
