"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile


def write_whole(path: str, data: bytes) -> None:
    """Write beside the target and rename over it; a pipe or device is written straight. Raises OSError."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            file.write(data)
        return
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".napkin-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside, 0o666 & ~umask)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
