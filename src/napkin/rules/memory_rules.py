"""N2: unnecessary use of memory, and steps that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.errors import UNDECIDED
from napkin.planning.remedies import RemedySearch, advice, remedies, with_more_gpus
from napkin.planning.remedy_axes import axes
from napkin.planning.verdicts import NOT
from napkin.record import replace
from napkin.render.figures import size, size_of
from napkin.rules.case import Configuration, Options
from napkin.rules.rule import EITHER, ERROR, INFO, MEMORY, NEEDLESS, OWN, Ask, Gain, Hit, Rule

LARGE_VOCABULARY = 32_000
"""Vocabulary size from which the logits of a loss are checked."""


def _made_to_fit(case: Configuration, ask: Ask) -> Options:
    """Return the fastest change proposed by `memory` with which the step surely fits."""
    texts = {name: text for name, text in case.given.items() if isinstance(text, (str, bool))}
    search = RemedySearch(axes(case.model, case.setup, texts, case.stated.node or 1), ask.fit)
    tuned = case.setup.tunes
    found = list(advice(search) if tuned else remedies(search))
    if not found:
        more = with_more_gpus(search)
        return more.options if more is not None else {}
    if tuned:
        return found[0].options
    times = [(after.token_seconds if (after := ask.case(one.options)) is not None else None) for one in found]
    order = sorted(range(len(found)), key=lambda at: (times[at] is None, times[at] or 0.0))
    return found[order[0]].options


def _out(case: Configuration) -> Iterator[Hit]:
    if case.fit is not None and case.fit.verdict == NOT:
        over = (case.used or 0) - (case.capacity or 0)
        said = f"{size(case.used or 0)} do not fit in {size(case.capacity or 0)}"
        yield Hit(said, "hardware", price=Gain(memory=float(over)))


def _perhaps(case: Configuration) -> Iterator[Hit]:
    if case.fit is not None and case.fit.verdict == UNDECIDED:
        said = f"{size_of(case.used or 0, case.capacity or 0)} are too close to call"
        yield Hit(said, "hardware")


def _replicated(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    ranks = int(layout.dp * layout.cp)
    if layout.zero == 0 and ranks > 1 and case.setup.implementation.tuning is None:
        yield Hit(f"optimizer states are replicated {ranks:,} times", "zero", ({"zero": "1"},))


def _foreach(case: Configuration) -> Iterator[Hit]:
    if case.setup.form != "fused" and "fused" in case.setup.optimizer.forms:
        said = f"the {case.setup.form} form of {case.setup.optimizer.name} allocates temporaries in its step"
        yield Hit(said, "optimizer-form", ({"optimizer-form": "fused"},))


def _wide_gradients(case: Configuration) -> Iterator[Hit]:
    policy = case.setup.precision
    if policy.grad == "fp32" and policy.param in ("bf16", "fp16") and not policy.frozen:
        less = replace(policy, name="", grad=policy.param).stated
        said = f"gradients of {policy.param} parameters are kept in fp32"
        yield Hit(said, "precision", ({"precision": less},))


def _wide_weights(case: Configuration) -> Iterator[Hit]:
    setup = case.setup
    if setup.precision.autocast and not setup.framework.gathers and setup.implementation.tuning is None:
        said = "fp32 weights are cast in every pass, and their gradients are fp32"
        yield Hit(said, "precision", ({"precision": "bf16-mixed"},))


def _logits(case: Configuration) -> Iterator[Hit]:
    setup, vocabulary = case.setup, case.model.vocabulary
    plain = not setup.implementation.loss and setup.framework.of_transformers and case.layout.tp == 1
    if plain and vocabulary >= LARGE_VOCABULARY and not case.model.outputs:
        said = f"the loss keeps logits over {vocabulary:,} token ids"
        yield Hit(said, "loss", ({"loss": "fused"},))


def _eight_bits(case: Configuration) -> Iterator[Hit]:
    if same := case.setup.optimizer.unquantized:
        said = "8-bit optimizer states save almost nothing here"
        yield Hit(said, "optimizer", ({"optimizer": same},))


def _offloaded(case: Configuration) -> Iterator[Hit]:
    if case.setup.offload:
        what = " and ".join(case.setup.offload)
        fewer = tuple(
            {"offload": ",".join(case.setup.offload[:kept]) or None} for kept in range(len(case.setup.offload))
        )
        yield Hit(f"{what} move to the host, and fit on the GPU", "offload", fewer)


def _dropped(case: Configuration) -> Iterator[Hit]:
    if case.setup.dropout:
        said = f"dropout {case.setup.dropout:g} keeps masks and runs extra kernels"
        yield Hit(said, "dropout", ({"dropout": "0"},))


RULES = (
    Rule(
        "N201",
        "out-of-memory",
        "The step does not fit in the GPU's memory",
        "The memory that must be allocated at once exceeds the GPU's, however its cache behaves. The change is "
        "the fastest of those that `napkin memory` proposes.",
        "llama3-8b --gpus 1 --hardware h100",
        find=_out,
        gains=OWN,
        fix=_made_to_fit,
        severity=ERROR,
        sources=("the memory model: docs/fits.md",),
    ),
    Rule(
        "N202",
        "may-run-out-of-memory",
        "Whether the step fits is too close to call",
        "The upper end of the 90% interval of the step's memory is above the GPU's capacity.",
        "llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 8192",
        find=_perhaps,
        gains=OWN,
        fix=_made_to_fit,
        close=True,
        sources=("the memory model and its interval: docs/memory.md",),
    ),
    Rule(
        "N203",
        "replicated-states",
        "Every data-parallel rank keeps all optimizer states",
        "ZeRO-1 shards them over the ranks and moves the same number of bytes: it reduce-scatters gradients "
        "and gathers parameters instead of all-reducing gradients.",
        "llama3.2-1b --gpus 64 --hardware h100",
        find=_replicated,
        gains=MEMORY,
        sources=("Rajbhandari et al. 2020, arXiv:1910.02054, sections 5.1 and 7.2",),
    ),
    Rule(
        "N204",
        "optimizer-not-fused",
        "The optimizer's step allocates temporaries",
        "The foreach form holds lists of intermediates, about as large as the parameters; the fused form has none.",
        "llama3.2-1b --gpus 1 --hardware h100 --optimizer-form foreach",
        find=_foreach,
        gains=MEMORY,
        sources=("torch.optim.AdamW, documentation of foreach: ~ sizeof(params) more peak memory",),
    ),
    Rule(
        "N205",
        "fp32-gradients",
        "Gradients of 16-bit parameters are kept in fp32",
        "fp32 gradients take twice the bytes, and accumulate many micro-batches and ranks more accurately.",
        "llama3-8b --gpus 8 --hardware h100 --tp 2 --zero 1 --framework megatron-core",
        find=_wide_gradients,
        gains=MEMORY,
        severity=INFO,
        sources=("NVIDIA/Megatron-LM megatron/training/arguments.py, --accumulate-allreduce-grads-in-fp32",),
    ),
    Rule(
        "N206",
        "fp32-weights",
        "fp32 weights are cast to 16 bits in every pass",
        "16-bit weights and gradients with an fp32 master copy take as much memory as fp32 weights and "
        "gradients, and need no casts that autocast caches.",
        "llama3.2-1b --gpus 8 --hardware h100 --zero 1 --precision amp-bf16",
        find=_wide_weights,
        gains=EITHER,
        sources=("Micikevicius et al. 2018, Mixed Precision Training, arXiv:1710.03740, section 3.1",),
    ),
    Rule(
        "N207",
        "unfused-loss",
        "The loss keeps the logits of a large vocabulary",
        "Cross entropy on logits holds several copies of (tokens × vocabulary); a kernel that computes head "
        "and loss in chunks holds one chunk.",
        "llama3-8b --gpus 8 --hardware h100 --zero 3 --micro-batch 2 --recompute full",
        find=_logits,
        gains=EITHER,
        sources=(
            "linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py",
            "arXiv:2410.10989",
        ),
    ),
    Rule(
        "N208",
        "eight-bit-states-save-nothing",
        "8-bit optimizer states save almost nothing",
        "States that are sharded over many ranks, or of few trained parameters, are small in 32 bits too; "
        "quantizing them to 8 bits gains nothing.",
        "llama3-8b --gpus 64 --hardware h100 --zero 3 --optimizer adamw-8bit",
        find=_eight_bits,
        gains=NEEDLESS,
        sources=("Dettmers et al. 2022, arXiv:2110.02861, section 2",),
    ),
    Rule(
        "N209",
        "offload-needless",
        "The offloaded tensors fit on the GPU",
        "Copies over the link to the host and an update there take time; the price is the GPU memory needed to keep "
        "the tensors here.",
        "llama3-8b --gpus 8 --hardware h100 --zero 3 --recompute full --offload optimizer",
        find=_offloaded,
        gains=NEEDLESS,
        least=1.0,
        sources=("Ren et al. 2021, ZeRO-Offload, arXiv:2101.06840, section 3",),
    ),
    Rule(
        "N210",
        "dropout",
        "Dropout keeps masks and runs extra kernels",
        "Dropout regularizes; large models on data that is seen once are trained without.",
        "gpt2 --gpus 8 --hardware a100 --seq 1024 --micro-batch 16 --attention eager --dropout 0.1",
        find=_dropped,
        gains=EITHER,
        severity=INFO,
        sources=("Chowdhery et al. 2022, PaLM, arXiv:2204.02311, section 5",),
    ),
)
