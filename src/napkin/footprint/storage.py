"""What training keeps on disk: checkpoints, how long they take to write and how often to write them; token ids.

w seconds to write one, M mean time between failures: an interval of √(2·w·M) loses least (Young 1974,
doi:10.1145/361147.361115); Daly 2006, doi:10.1016/j.future.2004.11.016, equation 37, corrects it to
√(2wM)·(1 + ⅓·√(w/2M) + ⅑·(w/2M)) − w for w < 2M, and M beyond.
"""

from __future__ import annotations

from napkin.term import TRUE, Term, add, choose, constant, divide, leaf, multiply, square_root, subtract

YOUNG = "Young 1974, doi:10.1145/361147.361115"
DALY = "Daly 2006, doi:10.1016/j.future.2004.11.016, equation 37"
UINT16_IDS = 2**16


def checkpoint_bytes(params: Term, per_param: dict[str, Term]) -> Term:
    """Return Σ parameters × bytes of each kind of tensor that is saved (parameters, master copy, optimizer states)."""
    parts = [multiply(f"checkpoint/{name}", params, width) for name, width in per_param.items()]
    return add("checkpoint/bytes", *parts)


def write_time(size: Term, bandwidth: Term) -> Term:
    """Return the seconds that writing a checkpoint takes."""
    return divide("checkpoint/write_time", size, bandwidth)


def mtbf_of(gpu_mtbf: Term, gpus: Term) -> Term:
    """Return a job's mean time between failures: it fails when any of its GPUs does."""
    return divide("mtbf", gpu_mtbf, gpus)


def young(write: Term, mtbf: Term) -> Term:
    """Return Young's interval between checkpoints, √(2·w·M)."""
    return square_root("checkpoint/interval", multiply("twice_write_mtbf", constant("2", 2), write, mtbf), source=YOUNG)


def daly(write: Term, mtbf: Term, first: Term) -> Term:
    """Return Daly's interval between checkpoints; `first` is Young's."""
    ratio = divide("write_over_twice_mtbf", write, multiply("twice_mtbf", constant("2", 2), mtbf))
    third = divide("second_order", square_root("root_ratio", ratio), constant("3", 3))
    series = add("correction", constant("1", 1), third, divide("third_order", ratio, constant("9", 9)))
    corrected = subtract("interval_corrected", multiply("interval_series", first, series), write)
    rare = leaf("write_below_twice_mtbf", int(ratio.value < 1), "1", TRUE, DALY)
    return choose("checkpoint/interval/daly", rare, corrected, mtbf, source=DALY)


def lost(write: Term, mtbf: Term, interval: Term) -> Term:
    """Return the share of the time spent on writing, w/T, and on repeating work after a failure, T/2M."""
    again = divide("share_redone", interval, multiply("twice_mtbf", constant("2", 2), mtbf))
    return add("checkpoint/overhead", divide("share_writing", write, interval), again, source=YOUNG)


def id_bytes(vocabulary: int) -> Term:
    """Return the bytes of a token id: 2 (uint16) up to 65,536 ids, else 4 (uint32)."""
    two = constant("bytes_of_uint16", 2, "byte/token", "ids 0 to 65,535 fit 16 bits")
    four = constant("bytes_of_uint32", 4, "byte/token", "ids 0 to 4,294,967,295 fit 32 bits")
    fits = leaf("vocabulary_fits_uint16", int(vocabulary <= UINT16_IDS), "1", TRUE, "65,536 ids at most")
    return choose("bytes_per_token", fits, two, four)


def data_bytes(tokens: Term, width: Term) -> Term:
    """Return the bytes of the tokenized data."""
    return multiply("data/bytes", tokens, width)
