"""What a file is for, told by its keys, where another kind of file is expected."""

from __future__ import annotations

from collections.abc import Collection

OF_LAUNCHES = ("base_model", "model_name_or_path", "zero_optimization")
"""Keys each of which tells a training framework's file."""
MARKS = (
    ({"accelerators"}, "it describes accelerators: give it with --hardware-file"),
    ({"command"}, "it is a run file: give it with --run, or to napkin check"),
    ({"schema", "rows"}, "it holds measured rows: give it to napkin validate"),
    ({"segments"}, "it is a snapshot of memory: give it with --snapshot"),
    ({"model_type"}, "it is a model's config.json: give it as MODEL"),
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
