"""Every option of napkin by name. Each is declared once, with its group.

Run files use the same names (dashes or underscores). Other names for them are in synonyms.py.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from napkin.options import comparing, layout, machine, model, output, question, rollout, training
from napkin.options.option import Option


def registry(groups: Iterable[tuple[str, tuple[Option, ...]]]) -> dict[str, Option]:
    """Return the options of all groups by name; a name that is declared twice is a ValueError."""
    found: dict[str, Option] = {}
    for _, options in groups:
        for option in options:
            if option.name in found:
                raise ValueError(f"--{option.name} is declared twice")
            found[option.name] = option
    return found


GROUPS = (
    ("Model", model.OPTIONS),
    ("Machine", machine.OPTIONS),
    ("Layout", layout.OPTIONS),
    ("Training", training.OPTIONS),
    ("Reinforcement learning", rollout.OPTIONS),
    ("Serving", rollout.SERVING),
    ("Data", question.DATA),
    ("Question", question.OPTIONS),
    ("Quantities", question.QUANTITIES),
    ("Comparing", comparing.OPTIONS),
    ("Lint", comparing.LINTING),
    ("Benchmark", comparing.BENCHMARK),
    ("Files", output.FILES),
    ("Output", output.OPTIONS),
)
"""(heading, its options), in the order in which help shows them."""

OPTIONS = registry(GROUPS)

_RARE = """assume-ignorable strict-config target-seq images image-tokens mean-document-length document-lengths
    adapter-block virtual-tokens vocab-multiple cache-dtype mtp nodes gpus-per-node grad-accum implementation
    active-params etp
    schedule distributed-optimizer dp-shard stage-layers first-stage-layers last-stage-layers embedding-as-layer
    loss-as-layer chunk-layers max-global-batch max-tp max-pp max-cp max-ep max-vp max-zero max-micro-batch
    optimizer-form momentum attention loss compile async-tp async-dp async-ep dispatcher graphs factor ema freeze
    freeze-head offload
    freeze-layers lora-targets quantized
    modules-to-save quantize-experts adapter trainer reference prompt-tokens max-prompt-tokens response-tokens
    max-response-tokens samples-per-prompt updates off-policy-steps on-policy rollout rollout-tp rollout-eager
    rollout-offload
    micro-batch-tokens logprob-micro-batch padding reward critic vp sp profile
    epochs sample-tokens lengths packing steps lora-dropout fsdp-version separate-gradients
    tokens-per-second-per-gpu optimizer-in-backward
    memory-share max-tpot max-ttft indexer-loss experts granularity bits phases power region restart-time spares
    dropout stack snapshot-device peak-flops memory-size memory-bandwidth link-bandwidth network-bandwidth tdp
    oversubscription expert-imbalance capacity-factor ulysses kernels
    power-overhead pue carbon-intensity goodput run-kind samples-per-second bytes-per-param width widths depth csv
    markdown paths theme run from emit pareto tensors size hardware-file snapshot confidence quiet plot
    checkpoint-interval save loading host-memory save-steps warmup-steps write-bandwidth mtbf gpu-mtbf"""
SECOND_LEVEL = frozenset(_RARE.split())
"""Options that `--help` leaves to `--help-all` if a command has too many to show."""


def spelled(spelling: str, taken: Container[str]) -> str | None:
    """Return the option, among `taken`, with this name or one that people use for it; underscores are dashes."""
    name = spelling.strip().replace("_", "-").lower()
    if name in taken:
        return name
    from napkin.options.synonyms import named  # only if a name is not napkin's own

    return named(name, taken)
