"""What a reading records: an option with its origin, or a remark on a key."""

from __future__ import annotations

from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FROM_FILE, DERIVED, DEFAULT, ASSUMED = "from file", "derived", "default", "assumed"


@record
class StatedOption:
    """An option as a file sets it.

    value  None if the file leaves it open
    where  its keys, separated by commas      place  file, line and key
    given  the file's text: of a value that napkin does not have, such as an unknown model name, or the modules' names
    unknown  what the value depends on, where the file leaves it to a variable or a command
    """

    value: Any
    origin: str
    where: str
    place: str = ""
    given: str = ""
    unknown: str = ""


@record
class Said:
    """A remark on a key.

    option  setting this option on the command line makes the remark moot
    clash   the options whose keys contradict each other      place  file, line and key
    """

    key: str
    why: str
    option: str = ""
    clash: tuple[str, ...] = ()
    place: str = ""
