"""What a file is that is not the text it should be: packed, in another encoding, a pointer, a URL."""

from __future__ import annotations

from napkin.errors import NapkinError

START = 64
"""Bytes of a file's start that tell its kind."""
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"(\xb5/\xfd": "zstandard",
}
_POINTER = b"version https://git-lfs.github.com/spec/"
_MARKED = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""Byte-order mark → encoding, the longer first. ASCII after it has zero bytes, which stray bytes in a log do not."""
_TEXT = frozenset(b"\t\n\r" + bytes(range(32, 127)))
_ON_HUB = (
    r"(https?://huggingface\.co/(?!datasets/|spaces/)[\w.\-]+/[\w.\-]+)"
    r"(?:/(?:tree|blob|resolve)/([\w.\-]+))?(?:/?$|/(.+))"
)
"""A model's page: its address, the revision and the file."""


def refuse_kind(start: bytes, name: str) -> None:
    """Reject a file that begins like a packed one, a pointer of Git LFS or text in UTF-16 or UTF-32. Raises NapkinError
    (2) with what turns it into the text that it holds."""
    packed = next((word for mark, word in _PACKED.items() if start.startswith(mark)), None)
    if packed:
        raise NapkinError(f"{name}: is packed ({packed})", "unpack it and name the file inside")
    if start.startswith(_POINTER):
        raise NapkinError(f"{name}: is a pointer of Git LFS, not the file itself", "fetch the file: git lfs pull")
    marked = (word for mark, word in _MARKED.items() if start.startswith(mark) and 0 in start[len(mark) :])
    encoding = next(marked, None)
    if encoding is None and _is_unmarked(start[:4]):
        encoding = "UTF-16"
    if encoding:
        raise NapkinError(f"{name}: is {encoding}", f"save it as UTF-8: iconv -f {encoding} -t UTF-8 FILE")


def _is_unmarked(start: bytes) -> bool:
    """Return whether four bytes are UTF-16 without its mark: every other byte of ASCII is zero."""
    halves = ((start[::2], start[1::2]), (start[1::2], start[::2]))
    return any(zeros == b"\0\0" and len(text) == 2 and _TEXT.issuperset(text) for text, zeros in halves)


def is_url(path: str) -> bool:
    """Return whether a path is a URL."""
    scheme, mark, _ = path.partition("://")
    plain = scheme.replace("+", "").replace(".", "").replace("-", "")
    return bool(mark) and scheme.isascii() and scheme[:1].isalpha() and plain.isalnum()


def unreadable(path: str, name: str, problem: OSError) -> NapkinError:
    """Return the error (2) of a path that cannot be read; of a URL, which file to download."""
    import re

    if not is_url(path):
        return NapkinError(f"{name}: {problem.strerror or 'cannot be read'}", "check the path")
    found = re.match(_ON_HUB, path)
    file = f"{found[1]}/resolve/{found[2] or 'main'}/{found[3] or 'config.json'}" if found else "the file"
    return NapkinError(f"{name}: is a URL, and napkin reads no network", f"download {file} and give its path")
