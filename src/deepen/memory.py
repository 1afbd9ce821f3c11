"""How this process keeps memory it has freed.

A step allocates and frees the same few buffers again and again. The C library gives large ones back to
the system each time and gets them back as pages that must be zeroed one by one, which can cost as much
as the arithmetic. Kept, they are simply used again; what is kept is bounded.
"""

import ctypes
import platform
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of options in malloc.h
LARGEST_KEPT = 32 * 2**20  # one allocation; the C library allows no more
MOST_KEPT = 512 * 2**20


@cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for the next step; says whether it does (glibc only)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    option = ctypes.CDLL(None).mallopt
    return bool(option(MMAP_THRESHOLD, LARGEST_KEPT) and option(TRIM_THRESHOLD, MOST_KEPT))
