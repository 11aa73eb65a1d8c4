"""The layout of a training step, from the options. Degrees that do not divide are rejected."""

from __future__ import annotations

import math

from napkin.commands.inputs import Inputs
from napkin.commands.question.machine import read_gpus
from napkin.commands.question.model import read_images_of_sequence, read_sequence, read_target
from napkin.commands.question.stages import Pipeline, read_pipeline
from napkin.commands.question.tasks import read_task
from napkin.errors import NapkinError, Refused
from napkin.operations.model import Model
from napkin.operations.queries import expert_widths, has_separate_experts, unshared_heads
from napkin.options.layout import EXPERT_LOAD, LAYOUT_DEGREES, OF_REPLICA
from napkin.training.layout import Layout, with_experts
from napkin.training.recomputation import recompute
from napkin.units.numbers import LARGEST_DEGREE

MORE_RANKS = "a larger --global-batch, which more ranks can divide"


def divisions(layout: Layout) -> str:
    """Return the degrees that divide a step, in words: `tp 8, dp 4`."""
    return ", ".join(f"{name} {n}" for name in (*OF_REPLICA, "ep", "dp") if (n := getattr(layout, name)) > 1)


def degrees(layout: Layout) -> dict[str, int | bool | str]:
    """Return a layout by its options' names."""
    found = {one.name: int(getattr(layout, one.field)) for one in LAYOUT_DEGREES if one.name != "etp"}
    return {
        **found,
        "sp": bool(layout.sp),
        "global-batch": int(layout.global_samples),
        "recompute": layout.recompute.word,
    }


def _nearest_divisor(n: int, wanted: int) -> int:
    """Return the divisor of n nearest to `wanted`."""
    if n > 10**12:
        return 1
    found, i = [], 1
    while i * i <= n:
        if n % i == 0:
            found += [i, n // i]
        i += 1
    return min(found, key=lambda d: (abs(d - wanted), d))


def check_divides(option: str, value: int, whole: int, what: str) -> None:
    """Raise NapkinError with the nearest divisor if an option's value does not divide `whole`."""
    if whole % value:
        near = _nearest_divisor(whole, value)
        raise NapkinError(f"--{option} {value:,} does not divide {what} ({whole:,})", f"--{option} {near} does")


def read_context(inputs: Inputs) -> bool:
    """Make --ulysses the number of context-parallel ranks; return whether they exchange heads."""
    ranks = inputs.integer_or_none("ulysses")
    if ranks is None:
        return False
    if "cp" in inputs and inputs.integer("cp") != ranks:
        both = f"--cp {inputs.integer('cp'):,} and --ulysses {ranks:,}"
        raise Refused(f"{both}: ranks that pass keys on and exchange heads are not modeled", "one of the two")
    inputs.redefault("cp", str(ranks))
    return ranks > 1


def check_heads(model: Model, ranks: int, tp: int = 1) -> None:
    """Raise an error if the ranks of --ulysses cannot divide the heads of a tensor-parallel rank."""
    what = unshared_heads(model, ranks, tp)
    if what:
        most = min(ranks, model.heads)  # more do not divide them
        near = max(n for n in range(1, most + 1) if not unshared_heads(model, n, tp))
        raise NapkinError(f"--ulysses {ranks:,} does not divide {what}", f"--ulysses {near:,}, or --cp {ranks:,}")


def read_layout(inputs: Inputs, model: Model) -> Layout:
    """Return the layout; its degrees divide the GPUs, the model and the sequences of a step."""
    read_gpus(inputs)
    ulysses = read_context(inputs)
    tp, cp, ep, etp = (inputs.integer(name) for name in ("tp", "cp", "ep", "etp"))
    pipeline = read_pipeline(inputs, model)
    pp, vp = pipeline.pp, pipeline.vp
    check_divides("tp", tp, model.heads, "the attention heads")
    if ulysses:
        check_heads(model, cp, tp)
    dp = _read_data_parallel(inputs, tp * pp * cp, model.heads)
    seq = read_sequence(inputs, model)
    if model.vision is not None:
        check_divides("tp", tp, model.vision.tower.heads, "the attention heads of the vision tower")
    images, image_tokens = read_images_of_sequence(inputs, model, seq)
    check_divides("cp", cp, seq, "the sequence")
    _check_experts(inputs, model, tp, cp * dp, ep, etp)
    imbalance, capacity = read_expert_load(inputs, model, ep)
    _check_stages(model, pipeline)
    sp = _read_sequence_parallel(inputs, tp, seq // cp)
    copies = with_experts(dp * cp, tp, ep, etp) if model.experts else 1
    _check_divided(inputs, tp, pp, max(dp * cp, int(copies)))
    micro = inputs.integer("micro-batch")
    micro_batches = _read_micro_batches(inputs, micro * dp, pp)
    target = _read_divided_target(inputs, model, cp)
    return Layout(
        seq=seq,
        micro=micro,
        rows=read_task(inputs).rows,
        micro_batches=micro_batches,
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        etp=etp,
        vp=vp,
        schedule=_read_schedule(inputs, vp),
        sp=sp,
        zero=read_zero(inputs),
        target=target,
        images=images,
        image_tokens=image_tokens,
        ulysses=ulysses,
        imbalance=imbalance,
        capacity=capacity,
        recompute=recompute(inputs.text("recompute")),
        stages=pipeline.stages,
    )


def read_expert_load(inputs: Inputs, model: Model, ep: int = 0) -> tuple[float, float]:
    """Return the imbalance and the capacity of a Layout's experts, 0 where they have none. ep: expert-parallel ranks, 0
    for several values."""
    routed = bool(model.experts)
    inputs.depends(("capacity-factor",), routed, f"{model.name} has no experts")
    apart = "every rank has all experts" if routed else f"{model.name} has no experts"
    inputs.depends(("expert-imbalance",), routed and ep != 1, apart, "--ep 2 or more" if routed else "leave it out")
    given = [name for name in EXPERT_LOAD if name in inputs]
    if given and routed and has_separate_experts(model):
        raise Refused(f"--{given[0]}: how full {model.name}'s separate experts are is not modeled", "leave it out")
    if len(given) > 1:
        raise NapkinError(
            "a contradiction: with --capacity-factor every expert has as many slots, whatever --expert-imbalance",
            "leave out one of the two",
        )
    imbalance, capacity = (inputs.number_or_none(name) for name in EXPERT_LOAD)
    return float(imbalance or 1), float(capacity or 0)


def _read_sequence_parallel(inputs: Inputs, tp: int, tokens: int) -> int:
    """Return 1 if tensor-parallel ranks divide the tokens of a sequence outside the linear layers, else 0."""
    inputs.default("sp", tp > 1)
    if not inputs.flag("sp") or tp == 1:
        return 0
    check_divides("tp", tp, tokens, "the tokens of a sequence, which --sp divides")
    return 1


def _read_divided_target(inputs: Inputs, model: Model, cp: int) -> int:
    """Return the tokens of the decoder's sequence, 0 if they are those of the encoder's."""
    target = read_target(inputs, model)
    if target is None:
        return 0
    check_divides("cp", cp, target, "the decoder's sequence")
    return target


def _check_experts(inputs: Inputs, model: Model, tp: int, replicas: int, ep: int, etp: int) -> None:
    """Raise an error if the ranks cannot divide the experts; note how tensor-parallel ranks hold them."""
    if ep > 1 and not model.experts:
        raise NapkinError(f"--ep {ep}: {model.name} has no experts", "leave it out")
    check_divides("ep", ep, max(tp * replicas // etp, 1), "the ranks of a stage that hold its experts")
    for number in sorted(model.experts):
        check_divides("ep", ep, number, "the experts")
    if etp > 1:
        _check_expert_tensor_parallel(model, tp, etp)
    elif model.experts and tp > 1 and "etp" not in inputs:
        inputs.note(f"each tensor-parallel rank holds whole experts (--etp 1); Megatron's default is --etp {tp}")


def _check_stages(model: Model, pipeline: Pipeline) -> None:
    """Raise an error if a pipeline cannot divide the layers."""
    pp, vp, depth = pipeline.pp, pipeline.vp, model.stacks[-1].depth
    if pp > 1 and model.on_one_stage:
        what = "read what layers of other stages compute" if model.shares_tensors else "have weights of other stages"
        raise Refused(f"--pp {pp:,}: layers of {model.name} {what}", "--pp 1")
    if pp * vp > depth:
        raise NapkinError(f"--pp {pp:,} × --vp {vp:,} is more than the {depth:,} layers", f"at most {depth:,}")
    if vp > 1 and depth % pp == 0 and not pipeline.stages:
        check_divides("vp", vp, depth // pp, "the layers of a stage")


def _check_divided(inputs: Inputs, tp: int, pp: int, replicas: int) -> None:
    """Record options that have no effect in this layout. replicas: ranks that hold the same weights without ZeRO, or
    the same experts, as tensor-parallel ranks with whole ones do."""
    inputs.depends(("sp",), tp > 1, "there is no tensor parallelism", "--tp 2 or more")
    inputs.depends(("vp", "chunk-layers", "schedule"), pp > 1, "there is no pipeline", "--pp 2 or more")
    alone = replicas == 1
    inputs.depends(
        ("zero",),
        not alone or read_whether_alone(inputs),
        "one data-parallel rank keeps everything",
        "more --gpus, or --dp 2",
    )
    inputs.depends(("distributed-optimizer",), not alone, "one data-parallel rank keeps everything", "more --gpus")


def read_whether_alone(inputs: Inputs) -> bool:
    """Return whether the ZeRO stage has an effect on one data-parallel rank: ZeRO-3 gathers parameters, and offloading
    depends on the stage."""
    return inputs.text("zero") == "3" or inputs.has("offload")


def _check_expert_tensor_parallel(model: Model, tp: int, etp: int) -> None:
    """Raise an error if tensor-parallel ranks cannot divide the width of each expert."""
    if not model.experts:
        raise NapkinError(f"--etp {etp}: {model.name} has no experts", "leave it out")
    check_divides("etp", etp, tp, "the tensor-parallel ranks")
    if has_separate_experts(model):
        raise Refused(f"--etp {etp}: how {model.name}'s separate experts are divided is not modeled", "--etp 1")
    for width in expert_widths(model):
        check_divides("etp", etp, width, "an expert's width")


def _read_micro_batches(inputs: Inputs, sequences: int, pp: int) -> int:
    """Return the number of micro-batches of a step, each of `sequences` over all ranks: from --grad-accum or
    --global-batch, else one per stage."""
    whole = inputs.integer_or_none("global-batch")
    count = inputs.integer_or_none("grad-accum") if "grad-accum" in inputs.given else None
    if whole is None:
        inputs.record("global-batch", sequences * (count or pp), "derived" if count else "default")
        if count is None:
            inputs.record("grad-accum", pp, "default")
        return count or pp
    if count is not None and whole != sequences * count:
        raise NapkinError(
            f"a contradiction: --global-batch {whole:,} and micro-batch · dp · grad-accum = {sequences * count:,}",
            "leave out --global-batch or --grad-accum",
        )
    if whole % sequences:
        near = max(round(whole / sequences), 1) * sequences
        raise NapkinError(
            f"--global-batch {whole:,} is not a multiple of micro-batch · dp ({sequences:,})", f"{near:,} is"
        )
    if count is None:
        inputs.record("grad-accum", whole // sequences, "derived")
    return whole // sequences


def read_global_batch(inputs: Inputs) -> None:
    """Derive --global-batch from --grad-accum and the number of GPUs, for commands that read no layout."""
    if "grad-accum" not in inputs.given or inputs.has("global-batch"):
        return
    read_context(inputs)
    apart = math.prod(inputs.integer(name, default="1") for name in OF_REPLICA)
    ranks = _read_data_parallel(inputs, apart)
    sequences = inputs.integer("micro-batch", default="1") * ranks
    inputs.record("global-batch", sequences * inputs.integer("grad-accum"), "derived")


def _read_schedule(inputs: Inputs, vp: int) -> str:
    """Return the pipeline's schedule: interleaved if stages have several chunks, else 1F1B."""
    schedule = inputs.text("schedule", default="interleaved" if vp > 1 else "1f1b")
    if vp > 1 and schedule in ("gpipe", "1f1b"):
        raise NapkinError(f"--vp {vp} needs an interleaved schedule, not {schedule}", "--schedule interleaved")
    if vp > 1 and schedule == "zero-bubble":
        raise Refused(
            f"--vp {vp} --schedule zero-bubble: where ZB-V puts chunks, embedding and head is not modeled",
            "--vp 1, or --schedule interleaved",
        )
    return str(schedule)


def read_zero(inputs: Inputs) -> int:
    """Return the ZeRO stage; Megatron's distributed optimizer is the first."""
    if inputs.flag("distributed-optimizer"):
        if "zero" in inputs and inputs.text("zero") != "1":
            raise NapkinError(
                f"a contradiction: --zero {inputs.text('zero')} and --distributed-optimizer, which is ZeRO-1",
                "leave out one of the two",
            )
        if "zero" in inputs:
            inputs.note("--distributed-optimizer is --zero 1, which is given too")
        else:
            inputs.record("zero", "1", "solved")
    return int(inputs.text("zero"))


def read_machines(inputs: Inputs, node: int) -> list[int]:
    """Return the numbers of GPUs on which the degrees and the batch allow the layout; node: GPUs of a node."""
    from napkin.planning.fewest import machines

    read_context(inputs)
    unit = math.prod(inputs.integer(name) for name in OF_REPLICA)
    shard = inputs.integer_or_none("dp-shard") or 1
    group = math.lcm(inputs.integer("ep"), shard // math.gcd(shard, inputs.integer("cp")))
    batch = inputs.integer("global-batch") if "global-batch" in inputs.given else 0
    count = inputs.integer("grad-accum") if "grad-accum" in inputs.given else 0
    passes, rest = divmod(batch, inputs.integer("micro-batch") * max(count, 1))
    if not passes or rest:
        return machines(node, unit, group=group)
    return [unit * passes] if count else machines(node, unit, passes, group)


def _read_data_parallel(inputs: Inputs, model_parallel: int, heads: int = 0) -> int:
    """Return dp, from --gpus and the other degrees if it is not given; heads: what tp must divide, for hints."""
    gpus, dp = inputs.integer_or_none("gpus"), inputs.integer_or_none("dp")
    if gpus is not None and gpus > LARGEST_DEGREE:
        raise NapkinError("--gpus is out of range", "at most 1e15")
    if gpus is None:
        count = inputs.integer("dp", default="1")
        inputs.record("gpus", count * model_parallel, "solved" if "dp" in inputs else "default", "GPU")
        return count
    if gpus % model_parallel:
        near = max(round(gpus / model_parallel), 1) * model_parallel
        several = [name for name in OF_REPLICA if inputs.integer(name) > 1]
        whole = math.gcd(gpus, heads) if several == ["tp"] else gpus
        fewer = f", or --{several[0]} {_nearest_divisor(whole, model_parallel)}" if len(several) == 1 else ""
        problem = f"--gpus {gpus:,} is not a multiple of tp · pp · cp ({model_parallel:,})"
        raise NapkinError(problem, f"--gpus {near:,}{fewer}")
    if dp is None:
        return inputs.integer("dp", default=str(gpus // model_parallel))
    if dp * model_parallel != gpus:
        raise NapkinError(
            f"a contradiction: --gpus {gpus:,} and tp · pp · cp · dp = {dp * model_parallel:,}", "leave out --dp"
        )
    return dp
