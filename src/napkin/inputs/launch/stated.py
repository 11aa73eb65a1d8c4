"""What a reading records: an option and its origin, or a key and a remark on it."""

from __future__ import annotations

from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FROM_FILE, DERIVED, DEFAULT, ASSUMED = "from file", "derived", "default", "assumed"


@record
class StatedOption:
    """An option as a file states it. value: None where the file leaves it open; where: its keys, with commas;
    given: the file's own text, where napkin has no value for it (the name of a model that it does not know)."""

    value: Any
    origin: str
    where: str
    place: str = ""
    given: str = ""


@record
class Said:
    """A key and what is said about it. option: that makes it moot where the command line states it; clash: the
    options of the keys that contradict each other; place: file, line and key."""

    key: str
    why: str
    option: str = ""
    clash: tuple[str, ...] = ()
    place: str = ""
