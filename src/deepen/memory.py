"""How this process keeps memory it has freed, and how much it needs.

A step allocates and frees the same few buffers again and again. The C library gives large ones back to
the system each time and gets them back as pages that must be zeroed one by one, which can cost as much
as the arithmetic. Kept, they are simply used again; what is kept is bounded.
"""

import ctypes
import gc
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path

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


def never_look_at_again() -> None:
    """Take all objects there are out of the garbage collector's sight: looking at them takes 0.1 s.

    For a process that has loaded what it needs and now answers. What it makes from here on is collected.
    """
    gc.collect()
    gc.freeze()


def peak_resident_bytes(work: Callable[[], object]) -> int | None:
    """How far the process grows at most beyond what it has now; None where the system does not tell.

    Not ru_maxrss: a new process inherits that from the one that started it.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, which was while importing
        before = _status("VmRSS")
    except OSError:
        return None
    work()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
