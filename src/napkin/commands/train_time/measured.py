"""The measured speed of a run for `train-time`: tokens per second, or a line of a log."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.mfu.measured_rate import Counted, read_counted_parameters, read_rate
from napkin.counting.six_n import six_n
from napkin.counting.utilization import achieved, mfu
from napkin.errors import NapkinError
from napkin.inputs.log_file import read_log
from napkin.term import Term


def read_measured(inputs: Inputs, known: Mapping[str, Term], peak: Term) -> Term:
    """Return the MFU during training, from the measured tokens per second."""
    if "mfu" in known:
        raise NapkinError("--mfu and a measured rate both say how fast the run is", "leave out one of the two")
    inputs.need_all({} if "params" in known else {"params": "a MODEL, or its number of parameters"})
    per_token = known.get("per_token") or six_n(known["params"])
    line = inputs.text_or_none("log")
    rate = read_rate(inputs, _read_counted(inputs, per_token), read_log(line) if line is not None else None)
    return mfu("while_running", achieved("while_running", rate, per_token), peak)


def _read_counted(inputs: Inputs, per_token: Term) -> Counted:
    """Return what converts a rate, as `napkin mfu` does: a model's conventions, or 6 FLOPs per parameter."""
    if inputs.has("model"):
        from napkin.commands.mfu.counted import read_counted
        from napkin.commands.question.model import read_model

        return read_counted(inputs, read_model(inputs)).counted
    return read_counted_parameters(inputs, per_token)
