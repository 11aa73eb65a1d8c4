"""Files of numbers for tools/fuzz.py: logs of several trainers, rows as CSV, lengths of samples, small snapshots."""

from __future__ import annotations

import random
from typing import Any

LOGS = (
    "iteration 10/100 | elapsed time per iteration (ms): 812.4 | throughput per GPU (TFLOP/s/GPU): 411.2 | "
    "global batch size: 64\n",
    "[rank0]: step: 10  loss:  4.0  memory: 47.11GiB(59.49%)  tps: 7,023  tflops: 411.26  mfu: 41.58%\n",
    "iter 100: loss 3.2, time 245.30ms, mfu 41.20%\n",
    "{'train_runtime': 100.0, 'train_samples_per_second': 12.3, 'train_steps_per_second': 0.5, 'train_loss': 1.0}\n",
    '{"step": 10, "tokens_per_second": 10000, "step_time_s": 1.5}\n',
)
NUMBERS = (
    "",
    "-1",
    "0",
    "nan",
    "inf",
    "1e308",
    "1e-320",
    "9" * 5000,
    "812,4",
    "1,234",
    "1,2,3",
    "٨",
    "²",
    "0x1f",
    "1e400",
)
"""What a number of a file is replaced by."""
COLUMNS = {
    "id": "one",
    "model": "llama3-8b",
    "hardware.chip": "H100",
    "hardware.count": "8",
    "layout.zero": "3",
    "layout.micro_batch": "1",
    "layout.seq": "2048",
    "measured.step_seconds": "1.5",
}
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1")


def log(rng: random.Random) -> str:
    """Return a log of one trainer, some of its numbers changed."""
    line = rng.choice(LOGS)
    return "".join(_spoilt(rng, line) for _ in range(rng.choice((1, 3, 20))))


def rows(rng: random.Random) -> str:
    """Return rows as CSV: their columns, cells, quotes and separator may be wrong."""
    names, cells = list(COLUMNS), list(COLUMNS.values())
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = rng.randrange(len(cells))
        if rng.random() < 0.7:
            cells[at] = rng.choice((*NUMBERS, '"', "a\nb", "a,b", "100000000000"))
        else:
            names[at] = rng.choice(("", "made_up", names[0], "layout.", "model.layers", "measured.memory_used"))
    between = rng.choice((",", ",", ",", ";", "\t"))
    quoted = [f'"{cell}"' if rng.random() < 0.3 else cell for cell in cells]
    return between.join(names) + "\n" + (between.join(quoted) + "\n") * rng.choice((0, 1, 1, 3))


def lengths(rng: random.Random) -> str:
    """Return lengths of samples: numbers, lists of token ids, or objects that hold them."""
    form = rng.choice(
        ("{}\n", '{{"input_ids": [{0}, {0}]}}\n', "[{}]\n", '{{"input_ids": {}}}\n', '{{"text": "{}"}}\n')
    )
    listed = [str(rng.randrange(1, 5000)) for _ in range(rng.choice((0, 1, 5, 200)))]
    if listed and rng.random() < 0.6:
        listed[rng.randrange(len(listed))] = rng.choice((*NUMBERS, "1.5", "true", "null", "[]", "1_000"))
    return "".join(form.format(one) for one in listed)


def snapshot(rng: random.Random) -> dict[str, Any]:
    """Return a snapshot of none to three segments, blocks and events, in either order."""
    block = {"state": "active_allocated", "size": 1024, "requested_size": 1000}
    segment = {"device": 0, "total_size": 20_000, "blocks": [block] * rng.randrange(3)}
    event = {"action": "alloc", "addr": 1, "size": 4000}
    parts: dict[str, Any] = {
        "segments": [segment] * rng.randrange(3),
        "device_traces": [[event] * rng.randrange(4) for _ in range(rng.randrange(3))],
    }
    return {name: parts[name] for name in rng.sample(list(parts), len(parts))}


def written(rng: random.Random, text: str) -> bytes:
    """Return a text in one of the encodings that files have."""
    return text.encode(rng.choice(ENCODINGS), "replace")


def _spoilt(rng: random.Random, line: str) -> str:
    """Return a line with one of its numbers changed now and then, or a part cut off."""
    if rng.random() < 0.5:
        return line
    words = line.split(" ")
    at = rng.randrange(len(words))
    words[at] = rng.choice(NUMBERS) if any(c.isdigit() for c in words[at]) else words[at]
    return " ".join(words[: rng.choice((len(words), at + 1))])
