"""What a file is for, told by its keys, where another kind of file is expected."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from napkin.errors import NapkinError

OF_LAUNCHES = ("base_model", "model_name_or_path", "zero_optimization")
"""Keys each of which tells a training framework's file."""
MARKS = (
    ({"accelerators"}, "it describes accelerators: give it with --hardware-file"),
    ({"command"}, "it is a run file: give it with --run, or to napkin check"),
    ({"model", "hardware"}, "it is a run file: give it with --run"),
    ({"schema", "rows"}, "it holds measured rows: give it to napkin validate"),
    ({"segments"}, "it is a snapshot of memory: give it with --snapshot"),
    ({"model_type"}, "it is a model's config.json: give it as MODEL, as in napkin memory FILE"),
    ({"producer", "quantization"}, "it says how a checkpoint is quantized: give the config.json next to it as MODEL"),
    ({"weight_map"}, "it lists a checkpoint's tensors: give the config.json next to it as MODEL"),
    ({"cells", "nbformat"}, "it is a notebook: give it with --from"),
    *(({one}, "it is a training framework's file: give it with --from") for one in OF_LAUNCHES),
)
"""Keys that files of a kind share → how such a file is given."""


def other_role(data: object, own: Collection[str] = ()) -> str | None:
    """Return how a file of another kind is given, as a hint; None if its keys do not tell.

    own  keys that a file of the expected kind may have
    """
    if not isinstance(data, dict):
        return None
    return next((told for keys, told in MARKS if keys <= data.keys() and not keys & set(own)), None)


BEGIN = 4096
"""Bytes of a log's start that are looked at."""


def refuse_settings(start: bytes, name: str) -> None:
    """Raise NapkinError (2) if what is given as a log is a YAML file of another kind: each line begins with a key, or
    belongs to the one above.

    start  its first bytes, of which the last line may be cut"""
    lines = [line for line in start.decode("utf-8", "replace").splitlines() if line.strip()]
    pairs = [line.partition(":") for line in lines if not line.startswith((" ", "#", "- ", "---"))]
    keys = [key for key, colon, value in pairs if colon and " " not in key and value[:1] in ("", " ")]
    if len(keys) < len(pairs) - (len(start) >= BEGIN):
        return
    told = other_role(dict.fromkeys(keys)) or _run_file(keys)
    if told is not None:
        raise NapkinError(f"{name}: is not a log", told)


OF_RUNS = ("model", "params", "hardware")
"""Options that a run file has and a log does not."""


def _run_file(keys: Sequence[str]) -> str | None:
    """Return how a run file without a command is given; None if the keys are not its options, each once."""
    from napkin.options.registry import OPTIONS

    names = [key.replace("_", "-") for key in keys]
    own = len(set(names)) == len(names) and all(name in OPTIONS for name in names)
    return "it is a run file: give it with --run" if own and any(name in OF_RUNS for name in names) else None
