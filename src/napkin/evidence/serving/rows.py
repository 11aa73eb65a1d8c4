"""Read a row of measured serving (schema serving/1). Fields that are not understood, and required fields that are
missing, raise an error with the reason."""

from __future__ import annotations

import re

from napkin.architectures import build
from napkin.errors import NapkinError
from napkin.evidence.rows.models import described
from napkin.evidence.rows.row import RowFields
from napkin.evidence.serving.words import (
    LLAMA_CPP,
    MLPERF_ANSWERS,
    MLPERF_LIMITS,
    MLPERF_PROMPTS,
    cache_of,
    computed_in,
    engine_of,
    kernels_of,
    speculates,
    weights_of,
)
from napkin.footprint.engine_kernels import EngineKernels
from napkin.footprint.served_weights import StoredWeights
from napkin.inputs import hardware
from napkin.inputs.hardware import Hardware
from napkin.inputs.model_file import load_config
from napkin.inputs.presets import is_preset, shapeless
from napkin.operations.model import Model
from napkin.record import record
from napkin.timing.generation import CLOSED, OFFLINE, SINGLE, STATIC, EngineRanks, LatencyLimits

START = "start-up log"
MODES = (
    ("single", SINGLE),
    ("static", STATIC),
    ("closed loop", CLOSED),
    ("offline", OFFLINE),
    ("server", "server"),
    ("interactive", "interactive"),
    ("prefill only", OFFLINE),
    ("start-up", START),
    ("statement", START),
)
"""Prefix of load.mode → its meaning."""
LIMITED = ("server", "interactive")
"""Modes whose latency a benchmark bounds."""
HYPHEN = "\u2011"
"""Does not break a line; pages write `40‑Core` with it."""
SIZE_OF_A_CARD = re.compile(r"[ ,]*\(?\d+ ?GB\)?$")


@record
class ServedRow:
    """A row as a question.

    weights, computed   how weights are stored, and the format in which they are multiplied
    element, cache      bytes of an element of keys and values, and their format
    gpus                total              per_node      of a node, None if not stated
    groups, dp          the layout; stated: given by the row
    family              of the engine        share         of the memory that it takes, 0 if it is not stated
    at_once             sequences in flight, 0 if the engine takes what fits
    prompt, response    mean tokens, 0 if they are not stated
    alike               requests have one length, as stated
    limits              on latency
    kernels             what the engine's kernels move
    """

    model: Model
    hardware: Hardware
    weights: StoredWeights
    computed: str
    element: float
    cache: str
    gpus: int
    per_node: int | None
    groups: EngineRanks
    dp: int
    stated: bool
    family: str
    share: float
    mode: str
    at_once: int
    prompt: int
    response: int
    alike: bool
    limits: LatencyLimits | None
    kernels: EngineKernels


def served_row(row: RowFields) -> ServedRow:
    """Return a row as a question. Refused if something is missing, or stated and not understood."""
    _check_understood(row)
    model, card = _model_of(row), _card_of(row)
    family = engine_of(row.text("engine.name"))
    mode = _mode_of(row)
    words = row.text("quant.weights")
    computed = computed_in(words, card, family)
    cache, element = cache_of(row.text("quant.kv"), computed, family)
    gpus = row.count("hardware.count")
    if gpus is None:
        raise NapkinError("how many GPUs it ran on is not stated")
    groups, dp, stated = _layout_of(row, gpus, family)
    prompt, response = _lengths_of(row, mode)
    return ServedRow(
        model=model,
        hardware=card,
        weights=weights_of(words),
        computed=computed,
        element=element,
        cache=cache,
        gpus=gpus,
        per_node=row.count("hardware.per_node"),
        groups=groups,
        dp=dp,
        stated=stated,
        family=family,
        share=_share_of(row),
        mode=OFFLINE if mode in LIMITED else mode,
        at_once=_at_once_of(row, mode),
        prompt=prompt,
        response=response,
        alike=row.count("load.input_tokens") is not None and row.count("load.output_tokens") is not None,
        limits=_limits_of(row, mode) if mode in LIMITED else None,
        kernels=kernels_of(family, f"{row.text('engine.version')} {row.text('engine.options')}", card),
    )


def _check_understood(row: RowFields) -> None:
    """Reject a row with speculative decoding, cached prompts or production traffic."""
    said = f"{row.text('engine.options')} {row.text('engine.name')} {row.text('load.speculation')}"
    if speculates(said):
        raise NapkinError("its tokens are proposed several at a time (speculation): not modeled")
    if row.number("load.prefix_cache_hit_fraction"):
        raise NapkinError("part of its prompts was cached before: not modeled")
    if row.text("load.mode").startswith("production"):
        raise NapkinError("production traffic: how many requests were in flight is not stated")


def _model_of(row: RowFields) -> Model:
    """Return the preset that a row names, else a decoder of the dimensions that it states."""
    for name in (row.text("model.preset"), row.text("model.name").rpartition("/")[2]):
        if name and is_preset(name):
            return build(load_config(name))
    if row.count("model.layers") is None:
        raise shapeless(row.text("model.name") or row.text("model.preset"))
    return described(row)


def _card_of(row: RowFields) -> Hardware:
    """Return the accelerator: by its name, else by the words of the source, without the size of its memory."""
    chip = row.text("hardware.chip")
    said = (chip or row.text("hardware.accelerator")).replace(HYPHEN, "-")
    if not said:
        raise NapkinError("the accelerator is not stated")
    if not chip:
        said = SIZE_OF_A_CARD.sub("", said)
        said = f"RTX {said}" if said[:1].isdigit() else said  # `4070 Ti 12GB`: GeForce cards by their number
    return hardware.find(said)


def _mode_of(row: RowFields) -> str:
    """Return how requests arrive."""
    said = row.text("load.mode").lower()
    if not said:
        raise NapkinError("how requests arrive (load.mode) is not stated")
    found = next((mode for begin, mode in MODES if said.startswith(begin)), "")
    if not found:
        raise NapkinError(f"how requests arrive is not modeled: {said[:40]}")
    return found


def _layout_of(row: RowFields, gpus: int, family: str) -> tuple[EngineRanks, int, bool]:
    """Return how GPUs divide the model, the replicas, and whether the row says so. Engines that divide layers over GPUs
    by default run one GPU after the other (llama.cpp); others are started with all GPUs of a server as one group."""
    if row.flag("layout.dp_attention"):
        ranks = row.count("layout.ep") or row.count("layout.dp") or gpus
        return EngineRanks(1, 1, ranks), gpus, True
    tp, pp = row.count("layout.tp"), row.count("layout.pp")
    ep = row.part("layout").get("ep")
    dp = row.count("layout.dp")
    if tp is None and pp is None and dp is None:
        if gpus == 1:
            return EngineRanks(), 1, True
        return (EngineRanks(1, gpus), 1, False) if family == LLAMA_CPP else (EngineRanks(gpus), 1, False)
    tp, pp = tp or 1, pp or 1
    replicas, rest = divmod(gpus, tp * pp)
    if rest or (dp is not None and dp not in (1, replicas)):
        raise NapkinError(f"its degrees do not divide {gpus} GPUs")
    if isinstance(ep, str):
        raise NapkinError(f"over how many GPUs its experts are divided is not stated: {ep[:40]}")
    ranks = (gpus // pp if ep is True else row.count("layout.ep") or 1) if ep else 1
    return EngineRanks(tp, pp, ranks), replicas, True


def _lengths_of(row: RowFields, mode: str) -> tuple[int, int]:
    """Return the mean tokens of a prompt and an answer; of a benchmark's data, as they are published."""
    prompt = row.number("load.input_tokens") or row.number("load.input_tokens_mean")
    response = row.number("load.output_tokens") or row.number("load.output_tokens_mean")
    if "mlperf" in row.text("load.dataset").lower():
        prompt = prompt or MLPERF_PROMPTS.get(row.text("model.preset"))
        response = response or MLPERF_ANSWERS.get(row.text("model.preset"))
    return round(prompt or 0), round(response or 0)


def _limits_of(row: RowFields, mode: str) -> LatencyLimits:
    """Return the limits on latency: as stated, else those of the benchmark."""
    ttft, tpot = row.number("load.ttft_limit_ms"), row.number("load.tpot_limit_ms")
    if tpot is not None:
        return LatencyLimits(ttft / 1e3 if ttft else None, tpot / 1e3)
    known = MLPERF_LIMITS.get((row.text("model.preset"), mode))
    if known is None or "mlperf" not in row.text("load.dataset").lower():
        raise NapkinError("the limits on its latency are not known")
    return known


def _at_once_of(row: RowFields, mode: str) -> int:
    """Return the sequences in flight: 0 if the engine takes what fits."""
    if mode == STATIC:
        batch = row.count("load.batch")
        if batch is None:
            raise NapkinError("the batch is not stated")
        return batch
    if mode == CLOSED:
        flying = row.count("load.concurrency")
        if flying is None:
            raise NapkinError("how many requests are in flight (load.concurrency) is not stated")
        return flying
    return row.count("load.batch") or 1 if mode == SINGLE else 0


def _share_of(row: RowFields) -> float:
    """Return the share of the memory that the engine was told to take, 0 if the row does not say."""
    options = row.text("engine.options")
    names = r"gpu[-_]memory[-_]utilization|mem[-_]fraction[-_]static|free_gpu_memory_fraction"
    found = re.search(rf"(?:{names})[^\d]{{0,3}}(0?\.\d+)", options)
    return float(found[1]) if found else 0.0
