"""Read a memory snapshot's pickle from a stream: one block or event at a time, in constant memory.

A pickle is a program for a stack machine (CPython, Lib/pickle.py and pickletools.py, protocols 0 to 5). This one runs
the operations that make plain dicts, lists, texts and numbers; a pickle that names a class or a function, or refers to
data elsewhere, is refused. The items of `segments`, their `blocks` and the lists of `device_traces` are added up as
they are appended and then forgotten (snapshot_memo.py)."""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from napkin.errors import NapkinError
from napkin.inputs.load import printable
from napkin.inputs.snapshot_blocks import SegmentBlocks, Totals
from napkin.inputs.snapshot_memo import Damaged, PickleStream, SnapshotMemo

MOST_KEYS, MOST_OPEN = 2**12, 2**20
"""Keys of a dict; things on the stack."""
LONG = 0x8A
_UNPACK = {
    code: struct.Struct(form)
    for code, form in {b"J": "<i", b"K": "<B", b"M": "<H", b"G": ">d"}.items()
}  # fmt: skip
_LENGTHS = {
    code: (size, kind)
    for kind, codes in {
        "text": ((b"\x8c", 1), (b"X", 4), (b"\x8d", 8)),
        "bytes": ((b"C", 1), (b"B", 4), (b"\x8e", 8), (b"\x96", 8)),
        "latin": ((b"U", 1), (b"T", 4)),
        "long": ((b"\x8a", 1), (b"\x8b", 4)),
    }.items()
    for code, size in codes
}
"""Operations whose content follows its length: bytes of the length, and the type of the content."""
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False, b")": ()}
_NAMING = {b"c", b"i", b"o", b"\x93", b"R", b"b", b"\x81", b"\x92"}
_OUTSIDE = {b"P", b"Q", b"\x97", b"\x98"}


_VALUE = b"h.|j....|K.|M..|J....|\\x8a(?:" + b"|".join(b"\\x0%d%s" % (n, b"." * n) for n in range(1, 9)) + b")"
_VALUES, _EACH = re.compile(b"(?:" + _VALUE + b")+", re.DOTALL), re.compile(_VALUE, re.DOTALL)
"""References to the memo and integers, one after the other, as an event or a stack of frames has them."""


def read_pickle(stream: BinaryIO, name: str, totals: Totals, largest: int) -> Any:
    """Add up the segments and events of a pickled snapshot; return its other fields, and [] for the lists that were
    read. Raises NapkinError (2)."""
    machine = _Machine(PickleStream(stream, name, largest), name, totals)
    try:
        return machine.run()
    except NapkinError:
        raise
    except Exception as problem:  # a damaged pickle fails in many ways; none of them is the user's to tell apart
        why = printable(str(problem), 80) if isinstance(problem, Damaged) else "what it holds is damaged"
        raise NapkinError(f"{name}: is not a whole pickle: {why}", "write it again") from None


class _Machine:
    """The stack machine. `roles`: the part of the snapshot that each open container is, by identity."""

    def __init__(self, source: PickleStream, name: str, totals: Totals) -> None:
        self.source, self.name, self.totals = source, name, totals
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo = SnapshotMemo(name, totals.stacks)
        self.roles: dict[int, tuple[str, Any]] = {}
        self.blocks: dict[int, SegmentBlocks] = {}
        self.known: dict[bytes, str] = {}
        self.trace = -1
        self.steps: dict[bytes, Callable[[], object]] = {
            b"}": self._dict, b"]": self._list, b"\x94": self._memoize, b"(": self._mark, b"u": self._set_items,
            b"e": self._append_items, b"s": self._set_item, b"a": self._append, b"d": self._marked_dict,
            b"l": self._marked_list, b"t": self._marked_tuple, b"0": self._pop, b"1": self._marked,
            b"2": lambda: self.stack.append(self.stack[-1]),
            b"h": lambda: self._get(self.source.take(1)[0]),
            b"j": lambda: self._get(int.from_bytes(self.source.take(4), "little")),
            b"g": lambda: self._get(int(self.source.line())),
            b"q": lambda: self._put(self.source.take(1)[0]),
            b"r": lambda: self._put(int.from_bytes(self.source.take(4), "little")),
            b"p": lambda: self._put(int(self.source.line())),
            b"\x85": lambda: self._tuple(1), b"\x86": lambda: self._tuple(2), b"\x87": lambda: self._tuple(3),
            b"I": self._integer, b"L": lambda: self.stack.append(int(self.source.line().rstrip(b"L"))),
            b"F": lambda: self.stack.append(float(self.source.line())),
            b"S": self._quoted,
            b"V": lambda: self.stack.append(self.source.line().decode("raw-unicode-escape")),
            b"\x80": lambda: self.source.take(1), b"\x95": lambda: self.source.take(8),
        }  # fmt: skip

    def run(self) -> Any:
        """Return the object in the pickle."""
        steps, stack, source = self.steps, self.stack, self.source
        while True:
            at = source.at
            if at >= len(source.data):
                source.take(1)
                source.at = at = source.at - 1
            code = source.data[at : at + 1]
            if code in b"hjKMJ\x8a":
                run = _VALUES.match(source.data, at)
                if run is not None:
                    source.at = run.end()
                    self._push(run.group())
                    continue
            source.at = at + 1
            step = steps.get(code)
            if step is not None:
                step()
            elif code in _UNPACK:
                form = _UNPACK[code]
                stack.append(form.unpack(source.take(form.size))[0])
            elif code in _LENGTHS:
                self._sized(*_LENGTHS[code])
            elif code in _CONSTANTS:
                stack.append(_CONSTANTS[code])
            elif code == b".":
                return stack[-1]
            else:
                self._refuse(code)

    def _push(self, run: bytes) -> None:
        """Put a run of references and integers on the stack."""
        stack, memo, known = self.stack, self.memo.kept, self.known
        for value in _EACH.findall(run):
            if value in known:
                stack.append(known[value])
            elif value[0] in b"hj":
                place = int.from_bytes(value[1:], "little")
                self._get(place)
                held = memo.get(place)
                if type(held) is str:
                    known[value] = held
            else:
                start, signed = (2, True) if value[0] == LONG else (1, value[:1] == b"J")
                stack.append(int.from_bytes(value[start:], "little", signed=signed))

    def _refuse(self, code: bytes) -> None:
        if code in _OUTSIDE:
            raise NapkinError(f"{self.name}: refers to data outside itself", "it is not read further")
        if code in _NAMING:
            names = [self.source.line(), self.source.line()] if code in b"ci" else self.stack[-2:]
            where = printable(".".join(str(n, "latin-1") if isinstance(n, bytes) else str(n)[:80] for n in names), 80)
            raise NapkinError(
                f"{self.name}: names {where}, and a snapshot holds plain data alone", "it is not read further"
            )
        raise Damaged(f"{code!r} makes no plain data")

    # --- values -----------------------------------------------------------------------------------------------------

    def _sized(self, size: int, kind: str) -> None:
        data = self.source.take(int.from_bytes(self.source.take(size), "little"))
        if kind == "text":
            self.stack.append(data.decode("utf-8", "surrogatepass"))
        elif kind == "long":
            self.stack.append(int.from_bytes(data, "little", signed=True))
        else:
            self.stack.append(data.decode("latin-1") if kind == "latin" else data)

    def _integer(self) -> None:
        line = self.source.line()
        self.stack.append({b"01": True, b"00": False}[line] if line in (b"00", b"01") else int(line))

    def _quoted(self) -> None:
        line = self.source.line().strip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise Damaged("a text without quotes")
        self.stack.append(codecs.escape_decode(line[1:-1])[0].decode("latin-1"))

    def _tuple(self, many: int) -> None:
        if len(self.stack) < many:
            raise Damaged("the stack is empty")
        self.stack[-many:] = [tuple(self.stack[-many:])]

    # --- containers -------------------------------------------------------------------------------------------------

    def _owner(self) -> tuple[Any, Any]:
        """Return the container of the next value, and the value's key if that is a dict."""
        stack, start = self.stack, self.marks[-1] if self.marks else 0
        opened = stack[start - 1] if start else None
        if type(opened) is dict and (len(stack) - start) % 2 and type(stack[-1]) is str:
            return opened, stack[-1]
        if len(stack) > 1 and type(stack[-1]) is str and type(stack[-2]) is dict:
            return stack[-2], stack[-1]
        if stack and type(stack[-1]) is list and self._role_of(opened) != "traces":
            return stack[-1], None
        return opened, None

    def _role_of(self, container: Any) -> str:
        return self.roles.get(id(container), ("", None))[0]

    def _new_role(self) -> str:
        """Return the part of the snapshot that a new container is; "" if it belongs to an item."""
        if not self.stack:
            return "root"
        owner, key = self._owner()
        role = self._role_of(owner)
        if role == "root":
            return {"segments": "segments", "device_traces": "traces"}.get(key, "others")
        if role == "segment":
            return "blocks" if key == "blocks" else ""
        return {"segments": "segment", "traces": "trace"}.get(role, "")

    def _dict(self) -> None:
        made: dict[str, Any] = {}
        role = self._new_role()
        if role in ("root", "segment"):
            self.roles[id(made)] = role, made
        self.stack.append(made)

    def _list(self) -> None:
        made: list[Any] = []
        role = self._new_role()
        if role in ("segments", "traces", "trace", "blocks", "others"):
            self.roles[id(made)] = role, made
            self.trace += role == "trace"
        self.stack.append(made)

    def _mark(self) -> None:
        self.marks.append(len(self.stack))

    def _marked(self) -> list[Any]:
        """Take what is above the last mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _marked_dict(self) -> None:
        items = self._marked()
        self._dict()
        self._fill(items)

    def _marked_list(self) -> None:
        items = self._marked()
        self._list()
        self._extend(items)

    def _marked_tuple(self) -> None:
        self.stack.append(tuple(self._marked()))

    def _pop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def _set_items(self) -> None:
        self._fill(self._marked())

    def _append_items(self) -> None:
        self._extend(self._marked())

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _append(self) -> None:
        self._extend([self.stack.pop()])

    def _fill(self, items: list[Any]) -> None:
        """Put keys and values into the dict on top of the stack."""
        target, keys = self.stack[-1], items[::2]
        if type(target) is not dict or len(items) % 2 or any(type(key) is not str for key in keys):
            raise Damaged("a dict of other things than texts and values")
        target.update(zip(keys, items[1::2], strict=True))
        if len(target) > MOST_KEYS:
            raise Damaged(f"a dict of more than {MOST_KEYS:,} keys")

    def _extend(self, items: list[Any]) -> None:
        """Put items into the list on top of the stack, or hand them on if it is streamed."""
        target = self.stack[-1]
        if type(target) is not list:
            raise Damaged("items of no list")
        role = self._role_of(target)
        if not role:
            target.extend(items)
            return
        if role == "blocks":
            blocks = self.blocks.setdefault(id(target), SegmentBlocks())
            for item in items:
                self.totals.block(blocks, item)
        elif role == "trace":
            for item in items:
                self.totals.event(self.trace, item)
        elif role == "segments":
            for item in items:
                self._segment(item)
        self._forget()

    def _segment(self, segment: Any) -> None:
        held = id(segment.get("blocks")) if type(segment) is dict else 0
        self.totals.segment(segment, self.blocks.pop(held, SegmentBlocks()))
        self.roles.pop(held, None)
        self.roles.pop(id(segment), None)

    # --- memo -------------------------------------------------------------------------------------------------------

    def _memoize(self) -> None:
        self._put(self.memo.places)

    def _put(self, place: int) -> None:
        """Keep the top of the stack at a place of the memo."""
        if place in self.memo.kept:
            self.known.clear()
        self.memo.put(place, self.stack[-1])

    def _get(self, place: int) -> None:
        self.stack.append(self.memo.get(place))

    def _forget(self) -> None:
        """Forget items that were added up."""
        self.memo.forget(self.roles)
        self.source.item = 0
        if max(len(self.stack), len(self.marks), len(self.roles), len(self.memo.recent)) > MOST_OPEN:
            raise NapkinError(f"{self.name}: is nested too deeply", "write the snapshot again")
