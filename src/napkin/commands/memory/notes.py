"""Notes on the exactness of a step's bytes: the implementation, what was traced, which kernels run."""

from __future__ import annotations

from napkin.autograd.tensors import BYTES
from napkin.footprint import buckets
from napkin.inputs.class_facts import measured_version, traced_steps
from napkin.operations.implementations import FLASH, ONE, PLAIN, TORCH, TRANSFORMERS, Implementation
from napkin.operations.model import Model
from napkin.operations.queries import attention_masks, grouped_experts, has_scan, has_separate_experts
from napkin.planning import verdicts
from napkin.planning.verdicts import Fit
from napkin.training.setup import Setup
from napkin.units import human


def source_of(model: Model, implementation: Implementation) -> str:
    """Return the implementation that the saved activations belong to."""
    if implementation.of_transformers:
        return f"Hugging Face transformers {TRANSFORMERS}, {model.family}, autograd of torch {TORCH}"
    return f"{implementation.name}, autograd of torch {TORCH}"


def notes_of(model: Model, setup: Setup, found: Fit) -> list[str]:
    """Return all remarks on the memory of a step."""
    return [
        *_notes_on_images(model, setup),
        *_notes_on_peak(setup, found),
        *_notes_on_evidence(model, setup),
        *_notes_on_kernels(model, setup),
    ]


def _notes_on_images(model: Model, setup: Setup) -> list[str]:
    """Say whether a vision-language model sees images in this step."""
    if model.vision is None or setup.layout.images:
        return []
    states = "weights" if setup.freezes else "weights, gradients and optimizer states"
    return [
        f"a step without images: the {states} of the vision tower are counted, its activations are not (--images 1)"
    ]


def _notes_on_peak(setup: Setup, found: Fit) -> list[str]:
    """Say when the peak is, and what the interval allows for."""
    where = f" on stage {int(found.rank.stage.index)} of {setup.layout.pp}" if setup.layout.pp > 1 else ""
    notes = [f"the peak is in the {buckets.peak_of(found.rank).name}{where}"]
    left = dict(found.rank.moments[-1].made.get("temporaries", ())).get("left_by_recomputation", 0)
    if left:
        notes.append(
            "the class refers to its last recurrent states, and so to what was recomputed for them: "
            f"{human(left, 'byte')} that no backward pass frees"
        )
    copies = verdicts.narrow_copies(setup, found.rank)
    if copies:
        notes.append(
            f"intervals allow for {setup.precision.compute} copies of the weights, as they are and transposed "
            f"(Transformer Engine keeps them, torchao does not): {human(copies, 'byte')}"
        )
    if setup.freezes:
        notes.append("no gradient reaches what is frozen; the first trained norm may keep 4 bytes per element less")
    return notes


def _notes_on_evidence(model: Model, setup: Setup) -> list[str]:
    """Note what the bytes were checked against."""
    notes = []
    if has_scan(model):
        run_by = {"torch": "plain torch implementation"}.get(
            setup.implementation.mixer, "kernels (mamba_ssm, causal_conv1d, fla, mlstm_kernels)"
        )
        notes.append(f"recurrent layers are taken to run by their {run_by}; their fallback keeps far more")
    measured = verdicts.is_measured(model, setup)
    implementation, width = setup.implementation, verdicts.width_of(model, setup)
    if measured and not setup.freezes and implementation.of_transformers and setup.attention in implementation.kernels:
        notes.append(
            f"saved activations are exact for transformers {measured_version(model.family)} on torch {TORCH} with "
            f"{_mode(setup)}"
        )
        notes.append(_traced(model, setup))
    elif implementation.of_transformers and implementation.tuning is None and not measured:
        notes.append(f"saved activations are derived: {model.family} was not traced with {_mode(setup)}")
        if traced_steps(model.family) is not None:
            notes.append(_traced(model, setup))
    elif not measured and not width.rows:
        notes.append(
            f"what the {implementation.name} implementation of {model.family} keeps was not measured: general rules"
        )
    notes.append(f"intervals: {width.says}")
    return notes


def _mode(setup: Setup) -> str:
    """Return the mode in which a step runs, in words."""
    precision, kernel, dropout, batch, *_ = verdicts.mode_of(setup).split("/")
    words = {"autocast": "bf16 autocast"}.get(precision, precision)
    sequences = "one sequence" if batch == ONE else "several sequences"
    recompute = {"none": "no recomputation"}.get(
        setup.layout.recompute.word, f"recomputation {setup.layout.recompute.word}"
    )
    return f"{words}, {kernel} attention, {'dropout' if dropout != PLAIN else 'no dropout'}, {sequences}, {recompute}"


def _traced(model: Model, setup: Setup) -> str:
    """Note how close memory/live is to traced steps of transformers' implementation."""
    found = traced_steps(model.family)
    if found is None:
        return f"memory/live is an estimate: no step of {model.family}'s implementation was traced"
    if setup.layout.gpus > 1:
        return "memory/live is an estimate: steps on several GPUs were not traced"
    steps, equal, near, furthest = found
    says = f"memory/live of {steps} traced steps of {model.family}'s implementation: equal to the byte in {equal}"
    return says if equal == steps else f"{says}, within 1 % in {near}, furthest off {furthest:+.1%}"


def _notes_on_kernels(model: Model, setup: Setup) -> list[str]:
    """Say which kernels run in attention and in the experts."""
    notes = []
    if setup.precision.network.param == "fp32" and not setup.precision.autocast and setup.attention == FLASH:
        notes.append("CUDA's flash kernel takes no fp32: these bytes are what its signature would keep")
    if setup.implementation.of_transformers:
        notes += _notes_on_experts(model, setup)
        if setup.layout.recompute.kind != "none" and not setup.implementation.checkpoints:
            notes.append(f"transformers' class of {model.family} does not support gradient checkpointing")
    if setup.attention not in setup.implementation.kernels:
        called = ", ".join(setup.implementation.kernels)
        notes.append(f"this model's implementation calls {called} only, not {setup.attention}")
    elif setup.attention == FLASH:
        notes += _notes_on_masks(model, setup)
    return notes


def _notes_on_experts(model: Model, setup: Setup) -> list[str]:
    """Say how the experts of transformers' implementation run."""
    if setup.implementation.looped or has_separate_experts(model):
        return ["its experts run one after the other: the bytes are those of tokens that reach each of them"]
    shapes = list(grouped_experts(model))
    if not shapes:
        return []
    from napkin.operations.expert_kernels import GROUPED_BYTES

    number = BYTES["fp32" if setup.precision.autocast or setup.precision.network.param == "fp32" else "bf16"]
    for width, inner in shapes:
        if width * number % GROUPED_BYTES or inner * number % GROUPED_BYTES:
            shape = f"{width:,} × {inner:,}"
            return [f"torch's grouped matmul refuses experts of {shape}: their rows are not a multiple of 16 bytes"]
    return []


def _notes_on_masks(model: Model, setup: Setup) -> list[str]:
    """Note where torch's attention gets a mask, which its flash kernel does not support."""
    if setup.implementation.kernel_mask == "always":
        unchanged = setup.implementation.few_heads == "unchanged"
        also = ", or elementary operations where one key serves several heads" if unchanged else ""
        return [f"this model's implementation always passes torch's attention a mask: its efficient kernel runs{also}"]
    masks = attention_masks(model)
    if masks.merged:
        return ["attention over both sides' keys always has a mask: torch's efficient kernel runs there, not flash"]
    if not setup.implementation.kernel_mask or not masks.bounds or setup.layout.seq < min(masks.bounds):
        return []
    return ["torch's attention gets windows as a mask: its efficient kernel runs in those layers, not flash"]
