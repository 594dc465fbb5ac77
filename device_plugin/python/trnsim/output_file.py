"""Files that a run leaves, written as sim/runtime/output_file.h says: what is there stays until the new is whole."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Writes a temporary file and renames it. Raises OSError."""
    name = os.fspath(path)
    exists, stream = os.path.exists(name), _is_stream(name)
    if not stream:
        target = os.path.realpath(name) if exists else name
        temporary = os.path.join(os.path.dirname(target), f".trnsim-{os.getpid()}-py")
        try:
            file = open(temporary, "x", encoding="utf-8")  # noqa: SIM115
        except OSError:
            if not exists:
                raise
        else:
            renamed = False
            try:
                with file:
                    if exists:
                        os.fchmod(file.fileno(), os.stat(target).st_mode & 0o7777)
                    file.write(text)
                try:
                    os.replace(temporary, target)
                    renamed = True
                except OSError:
                    if not exists:
                        raise
            finally:
                if not renamed:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary)
            if renamed:
                return
        # A file that is there may be writable where no other can be made in its place.
    with open(name, "a" if stream else "w", encoding="utf-8") as file:
        file.write(text)


def _is_stream(name: str) -> bool:
    if not os.path.exists(name):
        return False
    return not os.path.isfile(name) or name.startswith(("/proc/", "/dev/fd/", "/dev/std"))
