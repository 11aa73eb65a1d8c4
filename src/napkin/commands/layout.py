"""Layout, policy, optimizer and code of a training step, from the options; what does not divide is refused."""

from __future__ import annotations

from napkin.commands.command import Inputs
from napkin.commands.model import sequence
from napkin.commands.stages import degrees as staged
from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.evidence.margins import widths_of
from napkin.footprint.setup import Setup
from napkin.operations.experts import ExpertMatmul, Experts
from napkin.operations.implementations import IMPLEMENTATIONS, Code, Tuning, code_of
from napkin.operations.linear import Matmul
from napkin.operations.lowering import divides_heads, key_heads
from napkin.operations.model import Model
from napkin.options.training import TORCH_LOSS
from napkin.record import replace
from napkin.training import optimizers
from napkin.training.frameworks import FRAMEWORKS, PLAIN, Framework
from napkin.training.layout import Layout, precision, recompute


def divisions(layout: Layout) -> str:
    """The ways in which a step is divided, in words: `tp 8, dp 4`."""
    return ", ".join(f"{name} {n}" for name in ("tp", "pp", "cp", "ep", "dp") if (n := getattr(layout, name)) > 1)


def degrees(layout: Layout) -> dict[str, int | bool | str]:
    """A layout by its options' names."""
    return {
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "cp": layout.cp,
        "ep": layout.ep,
        "vp": layout.vp,
        "sp": bool(layout.sp),
        "zero": layout.zero,
        "micro-batch": layout.micro,
        "global-batch": layout.global_batch,
        "recompute": layout.recompute.word,
    }


def _nearest_divisor(n: int, wanted: int) -> int:
    """The divisor of n nearest to `wanted`."""
    if n > 10**12:
        return 1
    found, i = [], 1
    while i * i <= n:
        if n % i == 0:
            found += [i, n // i]
        i += 1
    return min(found, key=lambda d: (abs(d - wanted), d))


def _divides(option: str, value: int, whole: int, what: str) -> None:
    if whole % value:
        near = _nearest_divisor(whole, value)
        raise NapkinError(f"--{option} {value:,} does not divide {what} ({whole:,})", f"--{option} {near} does")


def layout_of(inputs: Inputs, model: Model) -> Layout:
    """The layout asked for; GPUs, and sequences of a step, divide by its degrees."""
    tp, cp, ep, etp = (inputs.get(name) for name in ("tp", "cp", "ep", "etp"))
    pp, vp, stages = staged(inputs, model)
    dp = _data_parallel(inputs, tp * pp * cp)
    seq = sequence(inputs, model)
    _divides("tp", tp, model.heads, "the attention heads")
    _divides("cp", cp, seq, "the sequence")
    _divides("ep", ep, dp, "the data-parallel ranks")
    if ep > 1 and not model.experts:
        raise NapkinError(f"--ep {ep}: {model.name} has no experts", "leave it out")
    for number in sorted(model.experts):
        _divides("ep", ep, number, "the experts")
    if etp > 1:
        _shares_experts(model, tp, etp)
    elif model.experts and tp > 1 and "etp" not in inputs:
        inputs.note(f"each tensor-parallel rank holds whole experts (--etp 1); Megatron's default is --etp {tp}")
    depth = model.stacks[-1].depth
    if pp > 1 and model.lends:
        raise Refused(f"--pp {pp:,}: layers of {model.name} read what layers of other stages make", "--pp 1")
    if pp * vp > depth:
        raise NapkinError(f"--pp {pp:,} × --vp {vp:,} is more than the {depth:,} layers", f"at most {depth:,}")
    if vp > 1 and depth % pp == 0 and not stages:
        _divides("vp", vp, depth // pp, "the layers of a stage")
    sp = inputs.get("sp")
    if sp is None:
        sp = bool(inputs.default("sp", tp > 1))
    if sp and tp > 1:
        _divides("tp", tp, seq // cp, "the tokens of a sequence, which --sp divides")
    micro = inputs.get("micro-batch")
    micro_batches = pp
    if inputs.get("global-batch") is not None:
        whole = inputs.get("global-batch")
        if whole % (micro * dp):
            near = max(round(whole / (micro * dp)), 1) * micro * dp
            raise NapkinError(
                f"--global-batch {whole:,} is not a multiple of micro-batch · dp ({micro * dp:,})", f"{near:,} is"
            )
        micro_batches = whole // (micro * dp)
    else:
        inputs.record("global-batch", micro * dp * micro_batches, "default")
    target = inputs.get("target-seq")
    if target is not None and len(model.stacks) == 1:
        raise NapkinError(f"--target-seq: {model.name} has no second stack", "leave it out")
    if target is not None:
        _divides("cp", cp, target, "the decoder's sequence")
    schedule = inputs.get("schedule") or inputs.default("schedule", "interleaved" if vp > 1 else "1f1b")
    if vp > 1 and schedule in ("gpipe", "1f1b"):
        raise NapkinError(f"--vp {vp} needs an interleaved schedule, not {schedule}", "--schedule interleaved")
    if vp > 1 and schedule == "zero-bubble":
        raise Refused(
            f"--vp {vp} --schedule zero-bubble: where ZB-V puts chunks, table and head is not modelled",
            "--vp 1, or --schedule interleaved",
        )
    return Layout(
        seq=seq,
        micro=micro,
        micro_batches=micro_batches,
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        etp=etp,
        vp=vp,
        sp=int(bool(sp) and tp > 1),
        zero=_zero(inputs),
        target=target or 0,
        schedule=schedule,
        recompute=recompute(inputs.get("recompute")),
        stages=stages,
    )


def _shares_experts(model: Model, tp: int, etp: int) -> None:
    """Refused where tensor-parallel ranks cannot divide each expert's width."""
    if not model.experts:
        raise NapkinError(f"--etp {etp}: {model.name} has no experts", "leave it out")
    _divides("etp", etp, tp, "the tensor-parallel ranks")
    if any(isinstance(op, ExpertMatmul) for op in model.operations):
        raise Refused(f"--etp {etp}: how {model.name}'s separate experts are divided is not modelled", "--etp 1")
    for width in sorted({op.d_ff for op in model.operations if isinstance(op, Experts)}):
        _divides("etp", etp, width, "an expert's width")


def _zero(inputs: Inputs) -> int:
    """ZeRO's stage; Megatron's distributed optimizer is the first."""
    if inputs.get("distributed-optimizer"):
        if "zero" in inputs and inputs.get("zero") != "1":
            raise NapkinError(
                f"a contradiction: --zero {inputs.get('zero')} and --distributed-optimizer, which is ZeRO-1",
                "leave out one of the two",
            )
        inputs.shown.pop("zero", None)
        inputs.record("zero", "1", "solved")
    return int(inputs.get("zero"))


def _data_parallel(inputs: Inputs, model_parallel: int) -> int:
    """dp, from --gpus and the other degrees where it is not given."""
    gpus, dp = inputs.get("gpus"), inputs.get("dp")
    if gpus is None:
        count = int(dp or inputs.default("dp", "1"))
        inputs.record("gpus", count * model_parallel, "solved" if "dp" in inputs else "default", "GPU")
        return count
    if gpus % model_parallel:
        near = max(round(gpus / model_parallel), 1) * model_parallel
        raise NapkinError(f"--gpus {gpus:,} is not a multiple of tp · pp · cp ({model_parallel:,})", f"--gpus {near:,}")
    if dp is None:
        return int(inputs.default("dp", str(gpus // model_parallel)))
    if dp * model_parallel != gpus:
        raise NapkinError(
            f"a contradiction: --gpus {gpus:,} and tp · pp · cp · dp = {dp * model_parallel:,}", "leave out --dp"
        )
    return int(dp)


def setup_of(inputs: Inputs, model: Model) -> Setup:
    """Everything that the memory and the time of a step depend on, but for the hardware."""
    return setup_with(inputs, model, layout_of(inputs, model))


def setup_with(inputs: Inputs, model: Model, layout: Layout) -> Setup:
    """The same around a layout that is known."""
    policy = precision(inputs.get("precision"))
    if "fp64" in (policy.param, policy.compute):
        raise Refused("--precision: what training in fp64 keeps is not modelled", "fp32, or a 16-bit policy")
    form = inputs.get("optimizer-form")
    optimizer, named = optimizers.find(inputs.get("optimizer"), form=form)
    if optimizer.name == "sgd" and inputs.get("momentum") is None:
        inputs.default("momentum", "0.9")
        inputs.note("sgd: with momentum, as training uses it; --momentum 0 keeps no state")
    if optimizer.name == "sgd" and inputs.get("momentum"):
        optimizer, _ = optimizers.find("sgd-momentum")
    elif inputs.get("momentum") is not None and optimizer.name != "sgd":
        raise NapkinError(f"--momentum belongs to sgd, not to {optimizer.name}", "leave it out")
    if named is None:
        named = "fused" if "fused" in optimizer.forms else optimizer.forms[0]
        inputs.default("optimizer-form", named)
    framework = _framework(inputs)
    padding = framework.pads * int(layout.tp)
    if padding and model.vocabulary % padding:
        inputs.note(
            f"{framework.name} pads the vocabulary to a multiple of {padding:,}: --vocab-multiple {framework.pads}"
        )
    if "=" not in policy.name and framework.formats(policy) != policy:
        policy = framework.formats(policy)
        kept = f"{policy.param} parameters, {policy.grad} gradients, {policy.state} states"
        inputs.note(f"{framework.name} keeps {policy.name} as {kept}{' and master copies' if policy.master else ''}")
    word = inputs.get("implementation").strip().lower()
    if word not in IMPLEMENTATIONS:
        raise NapkinError(
            f"--implementation: {word[:60]!r} is not known",
            did_you_mean(word, IMPLEMENTATIONS) or f"one of {', '.join(IMPLEMENTATIONS)}",
        )
    if optimizer.paged:
        inputs.note(f"{optimizer.name} {optimizer.note}")
    code = code_of(word, model.family)
    if not divides_heads(model, code, int(layout.tp)):
        few = next(n for n in key_heads(model) if n % int(layout.tp))
        fits = [d for d in range(1, few + 1) if divides_heads(model, code, d)]
        near = min(fits, key=lambda d: (abs(d - int(layout.tp)), d))
        other = "" if code.gathers_heads else ", or --implementation megatron, which gathers heads that ranks share"
        raise NapkinError(
            f"--tp {layout.tp:,} does not divide the key/value heads ({few:,}) of the {word} code",
            f"--tp {near:,} does{other}",
        )
    shard = inputs.get("dp-shard") or 0
    if shard:
        _divides("dp-shard", shard, layout.dp * layout.cp, "the ranks that hold the same weights")
    if "parameters" in (inputs.get("offload") or ()) and int(layout.zero) != 3:
        raise NapkinError(
            "--offload parameters needs --zero 3", "which gathers a layer's parameters for its pass alone; --zero 3"
        )
    frozen = inputs.get("freeze-layers")
    if frozen is not None:
        _freezable(inputs, model, frozen)
    return Setup(
        _tuned(inputs, model, word),
        layout,
        policy,
        optimizer,
        named,
        inputs.get("attention"),
        float(inputs.get("dropout")),
        shard,
        bool(inputs.get("ema")),
        inputs.get("offload") or (),
        framework,
        frozen=frozen,
        widths=widths_of(framework.name),
    )


def _freezable(inputs: Inputs, model: Model, frozen: int) -> None:
    """Refused where freezing the table would freeze the head, or where LoRA freezes everything anyway."""
    depth = model.stacks[-1].depth
    if frozen > depth:
        raise NapkinError(f"--freeze-layers {frozen:,}: {model.name} has {depth:,} layers", f"at most {depth:,}")
    if "lora-rank" in inputs:
        raise NapkinError("--freeze-layers and --lora-rank exclude each other", "LoRA freezes every layer")
    if model.tied or len(model.stacks) > 1:
        why = "its table is the head's too" if model.tied else "it has an encoder"
        raise Refused(f"--freeze-layers: {model.name}: {why}", "a model with tables of its own, or --lora-rank")


def _framework(inputs: Inputs) -> Framework:
    """Whose habits the run has; plain torch where nobody says."""
    name = inputs.get("framework")
    if name is None:
        return PLAIN
    word = name.strip().lower()
    if word not in FRAMEWORKS:
        raise NapkinError(
            f"--framework: {word[:60]!r} is not known",
            did_you_mean(word, FRAMEWORKS) or f"one of {', '.join(FRAMEWORKS)}",
        )
    framework = FRAMEWORKS[word]
    defaults = {"implementation": framework.code, "attention": framework.attention, "dropout": f"{framework.dropout:g}"}
    for option, text in defaults.items():
        if option not in inputs:
            inputs.shown.pop(option, None)
            inputs.default(option, text)
    return framework


def _tuned(inputs: Inputs, model: Model, word: str) -> Code:
    """An implementation's code, with the loss that is asked for; its weights frozen and LoRA's matrices beside them,
    where --lora-rank asks for it."""
    code = code_of(word, model.family)
    if inputs.get("loss") is not None:
        code = replace(code, loss="" if inputs.get("loss") == TORCH_LOSS else inputs.get("loss"))
    rank = inputs.get("lora-rank")
    targets, quantised = inputs.get("lora-targets") or (), inputs.get("quantised") or ""
    if rank is None:
        for name in ("lora-targets", "quantised"):
            if name in inputs:
                raise NapkinError(f"--{name} needs --lora-rank", "for example --lora-rank 8")
        return code
    products = {op.module for layer in model.stacks[-1].layers for op in layer.operations if isinstance(op, Matmul)}
    targets = tuple(t if t in products else t.removesuffix("_proj") for t in targets)  # as Hugging Face names them
    for target in targets:
        if target not in products:
            raise NapkinError(
                f"--lora-targets: {model.name} has no product {target[:40]!r}",
                did_you_mean(target, products) or f"one of {', '.join(sorted(products))}",
            )
    dropout = float(inputs.get("dropout"))
    library = {"litgpt": "bitsandbytes", "torchtune": "torchao"}.get(word, "transformers")
    return replace(code, tuning=Tuning("lora", rank, dropout, targets, quantised, library))
