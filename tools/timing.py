"""Wall times, for the benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def timed(step: Callable[[], None], sync: Callable[[], None], repeats: int, warm: int = 2) -> float:
    """Median seconds of one call, synchronised on both sides."""
    for _ in range(warm):
        step()
    sync()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        sync()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
