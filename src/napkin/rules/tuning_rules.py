"""N5: fine-tuning and data."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.operations.queries import learned_positions
from napkin.rules.case import Configuration
from napkin.rules.rule import EITHER, INFO, MEMORY, OWN, Gain, Hit, Rule
from napkin.training.tasks import REFERENCE

LEAST_PADDING = 0.05


def _gathered(case: Configuration) -> Iterator[Hit]:
    layout = case.layout
    if case.setup.implementation.tuning is not None and layout.zero == 3 and layout.dp * layout.cp > 1:
        said = "ZeRO-3 gathers frozen weights in every pass; only adapters have states"
        yield Hit(said, "zero", ({"zero": "2"}, {"zero": "1"}, {"zero": "0"}))


def _quantized(case: Configuration) -> Iterator[Hit]:
    tuning = case.setup.implementation.tuning
    if tuning is not None and tuning.quantized:
        said = f"{tuning.quantized} weights are dequantized for every matmul, and fit in 16 bits"
        yield Hit(said, "quantized", ({"quantized": "none"},))


def _wide(case: Configuration) -> Iterator[Hit]:
    narrow = case.setup.narrower
    if narrow is not None:
        yield Hit(
            "frozen weights are in fp32, and are cast in every pass", "precision", ({"precision": narrow.stated},)
        )


def _padded(case: Configuration) -> Iterator[Hit]:
    share = case.run.padding
    if share >= LEAST_PADDING:
        cost = case.cost * share if case.cost is not None else None
        yield Hit(
            f"{share:.0%} of all tokens are padding", "packing", ({"packing": True},), Gain(time=share, cost=cost)
        )


def _copied(case: Configuration) -> Iterator[Hit]:
    held = [one for one in case.setup.forwards if one.name == REFERENCE and one.held and one.model is None]
    if held and case.setup.implementation.tuning is not None:
        said = "the reference is a copy of a base model that adapters leave unchanged"
        yield Hit(said, "reference", ({"reference": "adapters-off"},))


def _asked_again(case: Configuration) -> Iterator[Hit]:
    references = [one for one in case.setup.forwards if one.name == REFERENCE]
    if references and not (case.setup.task.rollout or case.setup.task.generates):
        said = "the reference's log-probabilities are the same in every epoch"
        yield Hit(said, "reference", ({"reference": "precomputed"},))


def _beyond(case: Configuration) -> Iterator[Hit]:
    seq, most = int(case.layout.seq), case.model.max_length
    if most is not None and seq > most and not learned_positions(case.model):
        said = f"sequences of {seq:,} tokens on a model of {most:,} positions"
        yield Hit(said, "seq", ({"seq": str(most)},))


def _half(case: Configuration) -> Iterator[Hit]:
    hardware, policy = case.stated.hardware, case.setup.precision
    if policy.compute == "fp16" and hardware is not None and "bf16" in hardware.peaks and not policy.frozen:
        said = "fp16 overflows above 65,504 and needs loss scaling; bf16 does not"
        yield Hit(said, "precision", ({"precision": "bf16-mixed"},))


RULES = (
    Rule(
        "N501",
        "adapters-with-zero3",
        "ZeRO-3 gathers frozen weights that fit unsharded",
        "Adapters have few gradients and states to shard. Stage 3 shards the frozen weights too, and gathers "
        "them in every pass.",
        "llama3-8b --gpus 64 --hardware a100 --zero 3 --lora-rank 16 --seq 1024 --stack fsdp-eager",
        find=_gathered,
        least=0.01,
        sources=("Rajbhandari et al. 2020, arXiv:1910.02054, section 7", "Hu et al. 2021, LoRA, arXiv:2106.09685"),
    ),
    Rule(
        "N502",
        "quantized-where-16-bits-fit",
        "Frozen weights are quantized although they fit in 16 bits",
        "Quantized weights are dequantized before every matmul, and lose accuracy, to save memory that is free here.",
        "llama3-8b --gpus 8 --hardware h100 --lora-rank 16 --quantized nf4 --seq 2048 --micro-batch 2",
        find=_quantized,
        sources=("Dettmers et al. 2023, QLoRA, arXiv:2305.14314, section 3",),
    ),
    Rule(
        "N503",
        "padding",
        "Part of the tokens is padding",
        "Samples shorter than their sequence leave padding, which is computed in vain. Packing fills it with "
        "other samples.",
        "llama3-8b --gpus 8 --hardware h100 --zero 3 --task sft --seq 2048 --samples 50k --sample-tokens 500 "
        "--no-packing",
        find=_padded,
        gains=OWN,
        whole="the run",
        sources=("Krell et al. 2021, arXiv:2107.02027, section 1",),
    ),
    Rule(
        "N504",
        "reference-copied",
        "The reference model is a separate copy, next to adapters",
        "With its adapters disabled, the trained model is the reference: no copy of its weights is needed.",
        "llama3-8b --gpus 8 --hardware h100 --task dpo --lora-rank 16 --reference same --seq 1024",
        find=_copied,
        gains=MEMORY,
        sources=("huggingface/trl trl/trainer/dpo_trainer.py: adapters turned off are the reference",),
    ),
    Rule(
        "N505",
        "reference-not-precomputed",
        "The reference runs in every step",
        "Its log-probabilities of a sample never change: computed once before training, they cost one pass "
        "over the data (not counted here) and need no second model in memory.",
        "llama3-8b --gpus 8 --hardware h100 --task dpo --zero 3 --seq 1024 --recompute full",
        find=_asked_again,
        gains=EITHER,
        severity=INFO,
        sources=("huggingface/trl trl/trainer/dpo_config.py, precompute_ref_log_probs",),
    ),
    Rule(
        "N506",
        "sequence-beyond-positions",
        "Sequences are longer than the model was trained for",
        "Rotary positions beyond those of pretraining are extrapolated. The loss of quality is not priced.",
        "llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 16384 --recompute full",
        find=_beyond,
        gains=OWN,
        severity=INFO,
        sources=("Chen et al. 2023, arXiv:2306.15595, section 1",),
    ),
    Rule(
        "N507",
        "fp16-where-bf16-is-there",
        "Training in fp16 on an accelerator that has bf16",
        "fp16 has five bits of exponent: gradients underflow without loss scaling, and steps that overflow are "
        "skipped. bf16 has the range of fp32 at the same speed. The cost of skipped steps is not priced.",
        "llama3.2-1b --gpus 8 --hardware a100 --zero 1 --precision fp16-mixed",
        find=_half,
        gains=OWN,
        sources=("Micikevicius et al. 2018, arXiv:1710.03740, section 3.2", "Kalamkar et al. 2019, arXiv:1905.12322"),
    ),
    Rule(
        "N508",
        "frozen-weights-in-fp32",
        "Frozen weights are in fp32",
        "Nothing is added to frozen weights, so 16 bits keep what the checkpoint has, in half the memory and without "
        "casts. Libraries load a model by name in fp32 unless a dtype is given.",
        "llama3-8b --gpus 8 --hardware a100 --lora-rank 16 --seq 1024 --precision amp-bf16",
        find=_wide,
        gains=EITHER,
        sources=("huggingface/trl trl/trainer/utils.py, create_model_from_path: float32 unless a dtype is given",),
    ),
)
