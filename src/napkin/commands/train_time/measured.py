"""The measured speed of a run for `train-time`: tokens per second, or a line of a log."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.mfu.measured_rate import Counted, read_rate
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
    rate = read_rate(inputs, Counted({"6nd": per_token}, None), read_log(line) if line is not None else None)
    return mfu("while_running", achieved("while_running", rate, per_token), peak)
