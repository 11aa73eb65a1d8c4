"""Write a file atomically."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile


def write_text(path: str, text: str) -> None:
    """Write a text in UTF-8. What UTF-8 does not have, such as a byte of a file's name, is written as an escape, which
    is JSON's too. Raises OSError."""
    write_whole(path, text.encode("utf-8", "backslashreplace"))


def write_whole(path: str, data: bytes) -> None:
    """Write to a temporary file, then rename it to the target; a pipe or device is written directly. For a link, its
    target is written; an existing file keeps its mode. Raises OSError."""
    if path.endswith(os.sep) or (os.path.exists(path) and not os.path.isfile(path)):
        with open(path, "wb") as file:  # a folder is refused by the system
            file.write(data)
        return
    path = os.path.realpath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".napkin-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(path: str) -> int:
    """Return the mode of the file at a path, or of one that is new there."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(path).st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
