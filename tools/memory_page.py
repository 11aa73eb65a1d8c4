"""The page docs/memory.md: how memory is counted, and how far off predictions of published rows are. Written by
tools/memory_accuracy.py."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from allocator_shares import learned

from napkin._tables.traced_steps import TRACED
from napkin._tables.tuning_memory_errors import OUTSIDE
from napkin.autograd.tensors import sized
from napkin.commands.validate.finetune import compared as compared_tuning
from napkin.evidence import published
from napkin.evidence.intervals import margins
from napkin.evidence.intervals.ranking import nearest_rank
from napkin.evidence.rows import facts
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.setups import framework_of
from napkin.evidence.rows.teams import source_of
from napkin.evidence.validation.compared import Compared
from napkin.footprint import allocator
from napkin.planning.verdicts import VERDICTS
from napkin.training.framework import Framework
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.precision import POLICIES

ROOT = Path(__file__).resolve().parent.parent
TUNING = ROOT / "configs" / "evidence" / "tuning_memory.yaml"
RESIDUALS = {
    "BigScience BLOOM 176B": (
        "read by hand from nvidia-smi and printed as whole GB: repeats of one layout differ by 1 to 2 %, rounding adds "
        "up to 1.7 %. Runs near the card's capacity come out too high, for the allocator gives its cache back; runs of "
        "one sequence at many stages too high, of four sequences too low: gaps are not a fixed share"
    ),
    "Korthikanti et al. 2022": (
        "analytic bars of a figure: biases and the norms' statistics, which its formulas leave out. A test of "
        "definitions, no accuracy"
    ),
    "torchtitan": (
        "one share for the cache: the cache, without what other streams keep, is 1.09 to 1.16 of what passes in 16 of "
        "19 runs. The others come out too low: 70B over tensor-parallel ranks by 9 %, with asynchronous tensor "
        "parallelism by 4 %; two runs of fully checkpointed layers without tensor parallelism, of September and "
        "October 2025, by 8 and 11 %, as if some 9 bytes a parameter of the head were not counted (before that code "
        "gathered embedding and head one at a time, the same formulas would come out 2 to 4 % too low). "
        "The two 405B rows do not state the pipeline's micro-batches. By the code's default (as many as stages, so 4 "
        "sequences each: pipelining_utils.py, build_pipeline_schedule; what the two rows' throughputs agree with) the "
        "formulas give some 70 GiB for both schedules: the interleaved row "
        "is 72.7, but the 1F1B row 82.5, and nothing in the code that was read takes 10 GiB more under 1F1B. "
        "Both stay refused"
    ),
    "torchao pretraining tutorial": (
        "torchtitan by its own script, which turns on expandable segments (run_train.sh): a cache without gaps. What "
        "is reserved is less than what the formulas count as allocated: they count too much of this compiled step. "
        "Three runs of the same script in January 2025, whose loss was not compiled, reserve 1.1 of what passes "
        "as others do (pytorch/torchtitan#808; #929 shows the setting and the same figure)"
    ),
    "OneFlow DLPerf": (
        "no torch: addresses are planned when the graph is compiled, and which tensors share them was read in the code "
        "after these rows had been seen. Data parallelism alone comes out within 2 %, pipelines 10 to 23 % too low and "
        "tensor parallelism on several servers up to 19 % too high, unexplained"
    ),
    "FlagPerf, PaddlePaddle": "no torch: what its pipelines and its sharding keep is not known here",
    "torchtune": (
        "what the page does not state: whether activations were offloaded in addition to the checkpoints that every "
        "recipe has (both are read, 8 % apart), the weights that LoRA is added to, its rank. Where the flags are "
        "stated, 0.1 to 1 %: what the compiler chooses to compute again. 405B fits one sequence a step better than the "
        "two that the page names for all its rows"
    ),
    "SimuMax, Megatron-LM on B200": (
        "the largest of all ranks, whose placeholders of weight gradients were found by these rows: with dense layers "
        "0 to 1.4 %. What keeps 1 to 3 GiB less in layers with latent attention and experts is not known"
    ),
    "megatron-tutorials": (
        "nvidia-smi on one of 8 GPUs, not said which: the last stage of a pipeline of one micro-batch would hold "
        "10 GiB of logits that the figure lacks. Keys that pass around a ring are too low by 5 to 14 %: "
        "TransformerEngine copies them, and queries are views of what they were cut from; one GPU with one "
        "sequence, 2.5 GiB, unexplained"
    ),
    "torchtitan NVFP4": (
        "started by torchrun on four GPUs that are not named; what is recomputed is the recipe's, which the page does "
        "not say"
    ),
    "LitGPT resource tables": (
        "one GPU: workspaces and rounding, 0.3 %; phi-1.5's rows lie 0.5 to 1.2 % above, unexplained. Two GPUs: the "
        "length of a typical sample is assumed to be half of the longest one's"
    ),
    "nanotron": (
        "16-bit gradients of a micro-batch. The public code adds them to the fp32 buffer and frees them "
        "(optim/gradient_accumulator.py); counted so, pipelines of one sequence come out some 10 % too low. Counted as "
        "kept, they come out 0 to 8 % too high, and the pipeline of four sequences 6 %. Another version ran: the "
        "public trainer resets the peak after the passes (logging.py, log_memory), while the printed figures include "
        "activations. DistributedDataParallel, whose buckets are such kept gradients, wraps the model only if ZeRO is "
        "off (trainer.py, make_ddp), yet rows with ZeRO-1 take as much. Rotated queries are a view that keeps "
        "unrotated keys and values in addition to their copies (4·T·h/t a block), which would put runs of one "
        "micro-batch 3 to 4 % too high. Neither is counted, because the version that ran is not known. Unexplained: "
        "two micro-batches take 3.5 GiB more than one where nothing else that counts differs "
        "(8.86B, 16 and 32 nodes), and 1.34B on 2 nodes takes 3 GiB more than similar runs"
    ),
}


def page(compared: list[Compared], unnamed: list[tuple[RowFields, Compared]]) -> str:
    names = facts.memory_sources()
    groups: dict[tuple[str, str], list[Compared]] = {}
    for one in compared:
        if one.measured:
            name = next((name for start, name in names.items() if one.source.startswith(start)), one.source)
            groups.setdefault((name, one.quantity), []).append(one)
    table = ""
    residuals = ""
    for (name, quantity), members in groups.items():
        known = [one for one in members if one.error is not None and not one.suspect]
        errors = sorted(abs(one.error or 0.0) for one in known)
        if not errors:
            continue
        inside = sum(bool(one.covered) for one in known) / len(known)
        table += (
            f"| {name} | {quantity.removeprefix('memory_')} | {len(known)} of {len(members)} "
            f"| {statistics.median(errors):.1%} | {nearest_rank(errors, 0.9):.1%} | {errors[-1]:.1%} "
            f"| {inside:.0%} |\n"
        )
    for name, words in RESIDUALS.items():
        residuals += f"- **{name}**: {words}.\n"
    out = [one for one in compared if one.verdict]
    verdicts = ", ".join(f"{sum(one.verdict == word for one in out)} “{word}”" for word in reversed(VERDICTS))
    constants = "".join(
        f"| {name} | {figure.value:g} | {figure.low:g} to {figure.high:g} | {figure.source} |\n"
        for name, figure in (
            ("rounding of allocations, over live tensors", allocator.ROUNDING),
            ("workspaces of products, bytes", allocator.WORKSPACE),
            ("cache over what passes", allocator.GAPS),
            ("the same, in addition to what other streams keep", allocator.GAPS_BESIDE),
            ("with frozen weights: cache over what is kept for the backward pass, beyond it", allocator.KEPT),
            ("the same, over what lives no longer than a layer's pass, or the head's", allocator.BRIEF),
            ("the same, over the smaller of the layers' and the head's", allocator.ASIDE),
            ("the same, of segments that grow", allocator.EXPANDABLE),
            ("CUDA context, bytes", allocator.CONTEXT),
            ("CUDA context before 11.7, bytes", allocator.CONTEXT_EAGER),
            ("buffers of a communicator, bytes", allocator.COMMUNICATION),
            ("buffers of an exchange with another GPU, bytes", allocator.EXCHANGE),
        )
    )
    left = left_out(unnamed)
    frameworks = "".join(
        f"| `{one.name}` | {one.says} | {states_of(one)} | {one.source} |\n" for one in FRAMEWORKS.values()
    )
    return PAGE_TEXT.format(
        traced=traced(),
        table=table,
        residuals=residuals,
        verdicts=verdicts,
        count=len(out),
        left=left,
        tuned=tuned(),
        sources=len({source for _, source, *_ in OUTSIDE}),
        outside=f"−{1 - margins.tuned().low:.0%} to +{margins.tuned().high - 1:.0%}",
        never=f"−{1 - margins.never_seen().low:.0%} to +{margins.never_seen().high - 1:.0%}",
        constants=constants,
        learned=learned(facts.memory()),
        frameworks=frameworks,
    )


def states_of(framework: Framework) -> str:
    """Bytes a parameter of AdamW's training in bf16-mixed before ZeRO divides them: weights + gradients + optimizer."""
    policy = framework.formats(POLICIES["bf16-mixed"])
    weight, gradient = sized(1, policy.param), sized(1, policy.grad)
    states = 2 * sized(1, policy.state) + (sized(1, policy.master) if policy.master else 0)
    gradients = f"{gradient}" + (f" + {framework.accumulator}" if framework.accumulator else "")
    whole = weight + gradient + framework.accumulator + states
    in_step = framework.step_bytes + framework.wide_copies
    more = f", {in_step} more in the step" if in_step else ""
    return f"{weight} + {gradients} + {states} = {whole}{more}"


def traced() -> str:
    """Summarize what tracing complete steps found, over all model types."""
    steps, equal, near = (sum(entry[i] for entry in TRACED.values()) for i in range(3))
    return (
        f"Of {steps:,} steps of {len(TRACED)} model types the peak was\nequal to the byte in {equal:,} "
        f"({equal / steps:.1%}) and within 1 % in {near:,} ({near / steps:.1%})."
    )


def left_out(unnamed: list[tuple[RowFields, Compared]]) -> str:
    """Lines of a table: each framework's rows as if no one had named it, then all of them."""
    groups: dict[str, list[Compared]] = {}
    names = facts.step_sources()
    for row, one in unnamed:
        framework = framework_of(row)
        name = f"`{framework.name}`" if framework else names[source_of(row.text("source.title"))]
        if one.measured and not one.suspect and "analytic" not in row.text("memory.kind"):
            groups.setdefault(name, []).append(one)
    groups["all"] = [one for members in groups.values() for one in members]
    lines = ""
    for name, members in groups.items():
        known = [one for one in members if one.error is not None]
        errors = sorted(abs(one.error or 0.0) for one in known)
        inside = sum(bool(one.covered) for one in known) / len(known)
        lines += (
            f"| {name} | {len(known)} of {len(members)} | {statistics.median(errors):.1%} "
            f"| {nearest_rank(errors, 0.9):.1%} | {errors[-1]:.1%} | {inside:.0%} |\n"
        )
    return lines


def tuned() -> str:
    """Lines of a table: each source's figures of fine-tuning, predicted with that source left out."""
    groups: dict[str, list[Compared]] = {}
    for row in published.read(str(TUNING)).tuning:
        for one in compared_tuning(row, margins.LEVEL):
            if one.quantity.startswith("memory") and one.error is not None:
                groups.setdefault(one.source, []).append(one)
    lines, shares = "", []
    for name, members in groups.items():
        errors = sorted(abs(one.error or 0.0) for one in members)
        beyond = max(far for _, source, *_, far in OUTSIDE if source == name)
        shares.append(sum(bool(one.covered) for one in members) / len(members))
        lines += f"| {name} | {len(members)} | {statistics.median(errors):.1%} | {errors[-1]:.1%} "
        lines += f"| {math.exp(beyond) - 1:.0%} | {shares[-1]:.0%} |\n"
    error = statistics.stdev(shares) / math.sqrt(len(shares))
    every = sorted(abs(one.error or 0.0) for members in groups.values() for one in members)
    lines += (
        f"| all, each source weighing the same | {len(every)} | {statistics.median(every):.1%} | {every[-1]:.1%} | "
    )
    return lines + f"| {statistics.fmean(shares):.0%} ± {error:.0%} |\n"


PAGE_TEXT = """# Memory: how it is counted, and how far off

(This page is written by tools/memory_accuracy.py from `napkin validate`'s rows.)

    napkin memory llama3-8b --gpus 8 --hardware h100 --seq 8192 --zero 3 --framework torchtitan --recompute operations

Live tensors are counted, not estimated: what autograd saves follows from a layer's operations and a few facts about the
implementation, the states from the policy, the optimizer and the layout. Four figures build on each other:

    live       every tensor at the peak of a step
    allocated  live · (1 + rounding) + workspaces                      torch.cuda.max_memory_allocated
    reserved   allocated + apart + gaps                                torch.cuda.max_memory_reserved
    used       reserved + context + communicators                      nvidia-smi

`passing` is the largest amount of transient memory in a forward and backward pass (activations, gathered weights, the
loss), and `apart` what the optimizer step holds beyond that: blocks of one size serve no tensor of another size, so the
cache keeps both. `gaps` are a share of `passing` where weights are trained. With adapters, where all other weights are
frozen, they are shares of its parts, by how long these live: what a layer keeps for the backward pass, the larger of a
layer's own tensors and the head's (logits and their copies), and the smaller of the two, whose blocks serve none of the
others. The shares are those of the allocator's own rules, applied to every storage's birth and death in two steps of
real code on the meta device (tools/simulated_cache.py). Bytes are whole numbers: shares are rounded up, interval ends
outwards.

`live` is compared with traces of whole steps of Hugging Face code on the meta device, in which every ATen operation and
every storage's birth and death is seen (tools/traced_steps.py: random small configs, precisions, attention kernels,
checkpoints and optimizers). {traced}

`napkin memory` reports how close it came for the implementation in question. Some implementations keep variables in the
forward pass longer than counted, which is seldom the peak. Steps of several GPUs were not traced.

A trainer's own figure never includes the context. On one GPU *used minus context* is `memory/reserved`: there are no
communicators, so that what nvidia-smi shows beyond torch's cache is only the CUDA context
(`memory/used` = `memory/reserved` + `memory/context`). On several GPUs it also holds `memory/communication`.

`memory/activation_budget` subtracts what does not depend on the activations: capacity − parameters − gradients −
optimizer − overhead. The gradients in it are all of a rank's (divided under ZeRO 2 and 3), as they are at the end of
the backward pass, although at the loss, where activations are largest, a first micro-batch has none yet: a step can fit
whose activations are a little larger than the budget. The verdict compares `memory/used`, which follows the moments.

## Accuracy on published runs

No constant is fitted to a row of *allocated*; only the cache's two shares and the communicators' size were learned from
published runs. |predicted/measured − 1|:

| source | figure | rows | median | p90 | worst | intervals cover |
|---|---|---|---|---|---|---|
{table}
Of {count} runs that ran out of memory: {verdicts}.

What explains the rest, by source:

{residuals}
An interval is the 90 % quantile of the errors of other sources on the same kind of figure: those on the same framework,
each weighing the same, and those on other measured frameworks together as one more. A flag that a row does not state
(what is recomputed, sequence parallelism, ZeRO's stage, which states of an 8-bit optimizer are fp32) is evaluated at
its extremes, and the interval reaches from one to the other. What is not modeled is refused: a field of a layout that
napkin does not know, an offload, a kernel, a schedule; and a run that measured less than its stated flags take at
least.

## A framework without measurements

The same rows as if their framework were not known: its profile, its recipes' defaults and its own errors
held out. Only the layout tells what kind of implementation it is (like Megatron's where layers are divided, else like
Hugging Face's), and what is not stated is evaluated at the least and at the most that implementations keep
(`frameworks.py`, `unnamed`): the loss in place or in fp32 copies, kernels fused or eager, gathered inputs kept or
gathered again, gradients with or without an fp32 buffer. The prediction is the geometric mean of both ends, the
interval the ends and how far the other frameworks' rows lie outside theirs.

| held out | rows | median | p90 | worst | intervals cover |
|---|---|---|---|---|---|
{left}
`napkin memory` takes its interval from the same errors: where published rows measured the framework, those of the same
figure on it, and on other measured frameworks as of one more source, else those of frameworks held out on rows that
state what is recomputed ({never}). On one card with a plain loop around Hugging Face code whose saved tensors were
traced (no `--framework`), pretraining has the allocator's ranges only. The answer's notes say which it is.

## Fine-tuning

Runs that were published with everything that a prediction needs, sequence lengths included
(`configs/evidence/tuning_memory.yaml`), each predicted with its own source left out. *Outside* is how far a source's
farthest figure lies outside what the formulas and the allocator's ranges allow by themselves. The interval of a step
that trains adapters, or has a task, is widened to cover 90 % of the sources, each of the {sources} weighing the same
({outside}), whatever ran: sources on frameworks that others measured, and on a plain loop around traced code, lie as
far outside as the others.

| source | figures | median | worst | outside | intervals cover |
|---|---|---|---|---|---|
{tuned}
## Constants

| constant | value | range | source |
|---|---|---|---|
{constants}
What was learned from published runs, source by source: the share with which the formulas' bytes would match each row,
and how far off a source's rows are (median, p90) with the *other* source's median. The share of 1.16 is
what torchtitan's first eager run showed, so no row of BLOOM entered its own prediction; that next to other streams is
the median of torchtitan's runs.

| share | source | rows | median | quartiles | with the other's |
|---|---|---|---|---|---|
{learned}
Rounding follows from the allocator's rule: a large block serves a tensor without being split where less than
1 MiB would be left (`c10/cuda/CUDACachingAllocator.cpp`, `should_split`), small ones come in multiples of 512 bytes: at
most 1 MiB for each large tensor, on average a fraction of it.

## Frameworks

Facts of the code that decide what is kept where (`src/napkin/training/frameworks.py`); all have the same formulas.

| name | what | bytes a parameter | source |
|---|---|---|---|
{frameworks}
Bytes a parameter are those of AdamW under `bf16-mixed` before ZeRO divides them: weights + gradients + optimizer states
with master copies; a second gradient is the buffer in which micro-batches are accumulated.
"""
