"""Loss of calendar time to failures and checkpoints, and how often to write a checkpoint.

w seconds that a checkpoint blocks training, M mean time between failures of the job: an interval of √(2·w·M) loses
least (Young 1974, doi:10.1145/361147.361115); Daly 2006, doi:10.1016/j.future.2004.11.016, equation 37, corrects it to
√(2wM)·(1 + ⅓·√(w/2M) + ⅑·(w/2M)) − w for w < 2M, and M beyond. With failures at a constant rate, and R seconds from one
to the next step, T seconds of training between two checkpoints take M·e^(R/M)·(e^((T + w)/M) − 1) (section 3).
"""

from __future__ import annotations

import math
import sys

from napkin.record import record, replace
from napkin.term import (
    TRUE,
    Term,
    add,
    ceil_divide,
    choose,
    constant,
    define,
    divide,
    leaf,
    make,
    multiply,
    square_root,
    subtract,
)

NODE = 8
"""GPUs per node of the machines whose write times were measured."""
YOUNG = "Young 1974, doi:10.1145/361147.361115"
DALY = "Daly 2006, doi:10.1016/j.future.2004.11.016, equation 37"


def mtbf_of(gpu_mtbf: Term, gpus: Term) -> Term:
    """Return a job's mean time between failures: it fails when any of its GPUs does."""
    return divide("mtbf", gpu_mtbf, gpus)


def young(write: Term, mtbf: Term) -> Term:
    """Return Young's interval between checkpoints in seconds, √(2·w·M)."""
    return square_root("checkpoint/interval", multiply("twice_write_mtbf", constant("2", 2), write, mtbf), source=YOUNG)


def daly(write: Term, mtbf: Term, first: Term) -> Term:
    """Return Daly's interval between checkpoints in seconds; `first` is Young's."""
    ratio = divide("write_over_twice_mtbf", write, multiply("twice_mtbf", constant("2", 2), mtbf))
    third = divide("second_order", square_root("root_ratio", ratio), constant("3", 3))
    series = add("correction", constant("1", 1), third, divide("third_order", ratio, constant("9", 9)))
    corrected = subtract("interval_corrected", multiply("interval_series", first, series), write)
    rare = leaf("write_below_twice_mtbf", int(ratio.value < 1), "1", TRUE, DALY)
    return choose("checkpoint/interval/daly", rare, corrected, mtbf, source=DALY)


def lost(write: Term, mtbf: Term, interval: Term) -> Term:
    """Return the share of time spent on writing, w/T, and on repeating work after a failure, T/2M."""
    again = divide("share_redone", interval, multiply("twice_mtbf", constant("2", 2), mtbf))
    return add("checkpoint/overhead", divide("share_writing", write, interval), again, source=YOUNG)


def useful(interval: float, write: float, restart: float) -> float:
    """Return the share of the time that is training, T/(M·e^(R/M)·(e^((T + w)/M) − 1)); all in units of the mean time
    between failures. It stays above 0 even with very frequent failures."""
    both = interval + write
    share = interval * math.exp(-(restart + both)) / -math.expm1(-both)
    return max(share, sys.float_info.min)


define("useful_share", useful)


@record
class CheckpointWrite:
    """The time that a checkpoint blocks training: a fixed time, and its bytes at the rate of the storage.

    fixed   seconds: gathering, planning, waiting for the last rank
    rate    byte/s/node of shared storage; all nodes, of NODE GPUs, write
    states  bytes of the job's checkpoint, if known; else `each`, bytes per GPU, as in published runs
    whole   byte/s of the entire job, if given; then there is no fixed time
    """

    fixed: Term
    rate: Term
    each: Term
    states: Term | None = None
    whole: Term | None = None

    def seconds(self, gpus: Term) -> Term:
        """Return the seconds that a checkpoint of a job on this many GPUs blocks it."""
        states = self.states if self.states is not None else multiply("checkpoint/bytes", self.each, gpus)
        if self.whole is not None:
            return divide("checkpoint/blocked", states, self.whole)
        nodes = ceil_divide("checkpoint/nodes", gpus, constant("GPUs of a node", NODE, "GPU/node"))
        writing = divide("checkpoint/writing", states, multiply("checkpoint/write_rate", self.rate, nodes))
        return add("checkpoint/blocked", self.fixed, writing)


@record
class Interruptions:
    """Interruptions of a job, and checkpoints against them.

    gpu_mtbf  mean time between interruptions of one GPU, GPU-second
    write     time that a checkpoint blocks training        restart  seconds from a failure to the next step
    rest      share of the other losses: slow steps, evaluation, ramps, instabilities
    spreads   σ of the logarithms of the first three
    every     seconds between two checkpoints, if given; else Young's interval
    """

    gpu_mtbf: Term
    write: CheckpointWrite
    restart: Term
    rest: Term
    spreads: tuple[float, float, float]
    every: Term | None = None

    def saving(self, states: Term) -> Interruptions:
        """Return the same for a job whose checkpoints hold these bytes."""
        return replace(self, write=replace(self.write, states=states))

    def interval(self, gpus: Term) -> Term:
        """Return the seconds between two checkpoints."""
        return self.every if self.every is not None else young(self.write.seconds(gpus), self.mtbf(gpus))

    def mtbf(self, gpus: Term) -> Term:
        """Return the job's mean seconds between interruptions."""
        return mtbf_of(self.gpu_mtbf, gpus)

    def available(self, gpus: Term) -> Term:
        """Return the share of time left by failures and checkpoints."""
        mtbf = self.mtbf(gpus)
        parts = (
            divide("goodput/interval_over_mtbf", self.interval(gpus), mtbf),
            divide("goodput/write_over_mtbf", self.write.seconds(gpus), mtbf),
            divide("goodput/restart_over_mtbf", self.restart, mtbf),
        )
        return make("useful_share", "goodput/available", parts, source="Daly 2006, section 3")

    def share(self, gpus: Term) -> Term:
        """Return the goodput: the share of calendar time that trains."""
        return multiply("goodput", self.available(gpus), self.rest)

    def spread(self, gpus: Term) -> float:
        """Return σ of ln(goodput), propagated from its inputs."""
        seconds = self.write.seconds(gpus)
        slower = CheckpointWrite(seconds, self.write.rate, leaf("none", 0, "byte/GPU"))
        at = replace(self, write=slower)
        ways = zip(("gpu_mtbf", "write", "restart"), (self.gpu_mtbf, seconds, self.restart), self.spreads, strict=True)
        return math.hypot(*(at._moved(gpus, name, term, spread) for name, term, spread in ways))

    def _moved(self, gpus: Term, name: str, at: Term, spread: float) -> float:
        """Return the change of ln(available share) with one of its inputs."""
        if not spread:
            return 0.0
        shares = []
        for way in (-1, 1):
            term = leaf(at.name, at.value * math.exp(way * spread), at.unit)
            changed = {"write": replace(self.write, fixed=term)} if name == "write" else {name: term}
            shares.append(float(replace(self, **changed).available(gpus).value))
        return math.log(shares[1] / shares[0]) / 2

    def terms(self, gpus: Term, lasting: Term) -> list[Term]:
        """Return the expected failures of a run of this calendar time, their mean distance, and the checkpoint
        interval."""
        mtbf = self.mtbf(gpus)
        blocked = self.write.seconds(gpus)
        found = [mtbf, divide("failures", lasting, mtbf), blocked, self.interval(gpus)]
        return found if self.write.states is None else [*found, self.write.states]
