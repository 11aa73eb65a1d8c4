"""Mean response lengths if only their limit is known, from published figures of similar models.

The untruncated responses of a model have a characteristic length of L tokens: a limit far above L is hardly filled, one
far below L almost entirely. The mean is taken to be limit · L / (limit + L). The published means below give L of 15,000
to 21,000 for models that reason before they answer, whatever the limit, and a tenth of that for most others, among them
base models, which no one taught to answer. What a name says, of base models and of models trained to reason, holds for
models of any type; a type without figures is taken as the mixtures, or the dense models, of its series.
"""

from __future__ import annotations

import math
import re

from napkin.evidence.figures.largest import largest_of
from napkin.record import record

NEMO_RL = "NVIDIA NeMo RL, docs/about/performance-summary.md, v0.5 and v0.6: sequences of OpenMathInstruct-2"
RLINF = "RLinf, docs/source-en/rst_source/resources/blog/compare_with_verl.rst: boba, verl's steps"
BASE, REASONING = "base", "reasoning"
"""The types of base models, and of models whose name says that they were trained to reason."""
NAMED = (
    (REASONING, re.compile(r"(?<![a-z])(r1|qwq)(?![a-z0-9])|thinking|reason")),
    (BASE, re.compile(r"(?<![a-z])base(?![a-z])")),
)
"""Type → the words of a name that say it; the first that occurs holds (`DeepSeek-R1-Distill`, `-Thinking-2507`)."""
PUBLISHED: tuple[tuple[str, str, float, float], ...] = (
    ("llama", f"{NEMO_RL}: Llama 3.1 8B", 4096, 1060),
    ("llama", "NeMo-Aligner, docs/user-guide/rlhf.rst: Llama 3 70B, 0.31 to 0.34 of the limit", 1024, 330),
    ("deepseek_v3", f"{NEMO_RL}: DeepSeek-V3", 1536, 710),
    ("qwen3_moe", f"{NEMO_RL}: Qwen3-30B-A3B", 4096, 3200),
    ("qwen3_moe", f"{NEMO_RL}: Qwen3-235B-A22B", 8192, 5700),
    ("qwen3", f"{NEMO_RL}: Qwen3-32B", 4096, 3235),
    ("qwen3", "verl-project/verl#7412: Qwen3-4B-Instruct, DAPO-Math-17k; tokens from times per token", 3072, 1176),
    ("qwen3_5_moe_text", "verl, docs/advance/v1_async_trainer.md: Qwen3.5-35B-A3B, DAPO-Math-17k", 32768, 12_800),
    ("qwen2", "huggingface/trl#5697: Qwen2.5-0.5B-Instruct, DeepMath-103K, 600 to 700 tokens", math.inf, 650),
    (
        "qwen2",
        "huggingface/trl#6263: Qwen2.5-0.5B and Math-1.5B-Instruct, GSM8K, medians 274 and 315",
        math.inf,
        295,
    ),
    ("qwen2", "DeepScaleR-1.5B (long8v/PTIR#225): R1's distilled model, from 5,500 to 3,500 tokens", 8192, 4400),
    (REASONING, f"{RLINF}: DeepSeek-R1-Distill-Qwen-1.5B", 27648, 14_255),
    (REASONING, f"{RLINF}: DeepSeek-R1-Distill-Qwen-7B", 27648, 10_426),
    (BASE, "NVIDIA-NeMo/RL#959: Llama 3.1 70B Base, 395 to 411 tokens", 4096, 400),
    (BASE, "Tencent-Hunyuan/UniRL#40: Qwen3-4B-Base, DAPO-Math, 2,386 to 4,468 tokens in 500 steps", 8192, 3670),
)
"""model_type, source, limit and mean tokens of answers; each source and model once."""
VERL_DATA = "eric-haibin-lin/verl-data gsm8k"
LONGEST: tuple[tuple[str, int, float, int], ...] = (
    (f"{VERL_DATA}/Qwen2.5-3B-bsz64_2-prompt512-resp1024-lorarank32-score0.861.log, step 116", 320, 304.46, 811),
    (f"{VERL_DATA}/Qwen2.5-7B-bsz64_8-prompt512-resp1024-lorarank32-score0.934.log, step 116", 320, 268.55, 749),
    (f"{VERL_DATA}/Qwen2.5-14B-bsz64_8-prompt512-resp1024-lorarank32-score0.946.log, step 116", 320, 239.73, 633),
    (f"{VERL_DATA}/Qwen2.5-72B-bs64_8-prompt512-resp1024-lorarank32-score0.960.log, step 95", 320, 265.27, 636),
    (f"{VERL_DATA}/qwen2-7b-fsdp2.log, step 105", 5120, 153.48, 615),
    ("verl-project/verl#2060, step 1", 5120, 288.7, 963),
)
"""Source, responses of a step, their mean tokens and the longest one's, below a limit of 1,024 that none reached."""
ENDLESS = 1.8e-4
"""Share of such answers that repeat themselves up to the limit: with it three of five runs of 5,120 answers a step have
one (the logs above, deepseek7b_llm_math_megatron.log, qwen2-7b_math_megatron.log, verl-project/verl#1208), and none of
four runs of 320."""
OPEN = 5000
"""assumed: a type of models whose own length is above this many tokens has responses that reach any limit."""


@record
class TokenRange:
    """Mean tokens: the likely figure, the least and the most."""

    likely: int
    least: int
    most: int

    @property
    def all(self) -> tuple[int, int, int]:
        return self.likely, self.least, self.most


def kind_of(name: str, model_type: str) -> str:
    """Return the type whose published lengths are those of a model: what its name says, else its series'."""
    return next((kind for kind, words in NAMED if words.search(name.lower())), model_type)


def own_length(model_type: str) -> float:
    """Return L of models of this type, in tokens: the geometric mean of what was published of them; of a type of which
    nothing was, that of the mixtures or dense models of its series, else that over the types."""
    by_type: dict[str, list[float]] = {}
    for name, _, limit, mean in PUBLISHED:
        by_type.setdefault(name, []).append(-math.log(1 / mean - 1 / limit))
    means = {name: sum(values) / len(values) for name, values in by_type.items()}
    named = {kind: means.pop(kind) for kind, _ in NAMED}
    series = {name.replace("_moe", ""): value for name, value in means.items()}
    usual = series.get(model_type.replace("_moe", ""), sum(means.values()) / len(means))
    return math.exp({**means, **named}.get(model_type, usual))


def answers_within(limit: int, model_type: str = "") -> TokenRange:
    """Return the mean tokens of answers of at most `limit`. Assumed: the least are 500 or a fifth of the limit, the
    most 16,000 or four fifths of it."""
    likely = 1 / (1 / limit + 1 / own_length(model_type))
    most = max(min(16_000, limit * 0.8), min(limit, 1.2 * likely))
    return TokenRange(*(max(1, int(one)) for one in (likely, min(500, limit / 5, likely / 1.2), most)))


def prompts_within(limit: int, model_type: str = "") -> TokenRange:
    """Return the mean tokens of prompts of at most `limit`, whatever the model. Assumed: questions of 200 tokens, 50 to
    1,000."""
    return TokenRange(*(min(one, limit) for one in (200, 50, 1000)))


def deviation() -> float:
    """Return the standard deviation σ of the logarithm of the lengths of answers that end before their limit: the
    longest of n with the mean m has m · exp(σ · z − σ²/2) tokens, z the largest of n standard normal numbers."""
    found = []
    for _, count, mean, longest in LONGEST:
        z = largest_of(count)
        found.append(z - math.sqrt(z * z - 2 * math.log(longest / mean)))
    return sum(found) / len(found)


def longest_of_step(limit: int, mean: float, count: int, kind: str) -> int:
    """Return the tokens of the longest of `count` answers of this mean: the limit for models that reason, and for base
    models, which no one taught to end; for others what the published lengths of such answers give."""
    if kind == BASE or own_length(kind) > OPEN:
        return limit
    sigma, ended = deviation(), (1 - ENDLESS) ** count
    longest = min(limit, mean * math.exp(sigma * largest_of(count) - sigma * sigma / 2))
    return math.ceil(ended * longest + (1 - ended) * limit)
