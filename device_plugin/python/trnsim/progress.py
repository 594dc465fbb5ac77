"""Shows on the terminal that a script waits for the simulator. Only under `trnsim run`, which sets TRNSIM_PROGRESS."""

from __future__ import annotations

import threading
import time

_PATIENCE_S = 2.0
_POLL_S = 0.2
_lock = threading.Lock()
_status = None


def start() -> None:
    from trnsim import _C

    _C.watch_waits(_clear)
    threading.Thread(target=_watch, args=(_C,), name="trnsim progress", daemon=True).start()


def _clear() -> None:
    """The thread that waited calls this before it goes on, so that what the script prints starts on a clean line."""
    global _status
    with _lock:
        if _status is not None:
            _status.stop()
            _status = None


def _watch(native) -> None:
    while True:
        time.sleep(_POLL_S)
        wait_s, entries, simulated_ps = native.progress()
        if wait_s < _PATIENCE_S:
            _clear()
        else:
            _show(native, wait_s, entries, simulated_ps)


def _show(native, wait_s: float, entries: int, simulated_ps: int) -> None:
    global _status
    from rich.console import Console

    from trnsim.report_view import format_ns

    so_far = f", {format_ns(simulated_ps / 1000)} on the chip so far" if simulated_ps else ""
    text = f"trnsim: simulating for {wait_s:.0f} s, {entries} operators to go{so_far}"
    with _lock:
        if _status is None:
            _status = Console(stderr=True).status(text)
            _status.start()
        else:
            _status.update(text)
    native.display_shown()
