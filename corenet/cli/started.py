"""Time since the process started, interpreter start-up included."""

import os
import time


def seconds_since_start() -> float:
    """Seconds since this process was created."""
    try:
        # psutil takes whole seconds for the time of boot; the kernel's own clock and ticks are exact to 10 ms.
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        passed = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        if passed >= 0:
            return passed
    except (OSError, AttributeError, ValueError, IndexError):  # no Linux
        pass
    import psutil

    return max(0.0, time.time() - psutil.Process().create_time())
