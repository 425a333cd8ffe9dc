// <math.h>: what a kernel may use of it, NVRTC and usual.h give.
#pragma once
