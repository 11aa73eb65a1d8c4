"""Words of published rows of serving: engines, formats of weights and caches, latency limits of benchmarks."""

from __future__ import annotations

import re

from napkin import formats
from napkin.errors import NapkinError
from napkin.evidence.serving.generation import UNKNOWN
from napkin.footprint.engine_kernels import FUSED, WIDE_CUDA, WIDE_METAL, EngineKernels
from napkin.footprint.served_weights import StoredWeights, stored
from napkin.inputs.hardware import Hardware
from napkin.record import replace
from napkin.timing.generation import LatencyLimits
from napkin.training.versions import MONTHS

LLAMA_CPP, GPT_FAST, TENSORRT = "llama.cpp", "gpt-fast", "tensorrt-llm"
VLLM, SGLANG, TGI = "vllm", "sglang", "tgi"
ENGINE_WORDS = (
    ("llama.cpp", LLAMA_CPP),
    ("llama-bench", LLAMA_CPP),
    ("ggml", LLAMA_CPP),
    ("ollama", LLAMA_CPP),
    ("gpt-fast", GPT_FAST),
    ("sglang", SGLANG),
    ("vllm", VLLM),
    ("text-generation-inference", TGI),
    ("tgi", TGI),
    ("tensorrt", TENSORRT),
    ("trt-llm", TENSORRT),
    ("trtllm", TENSORRT),
)
"""Words of an engine's name, and the family of engines; the first that occurs holds. ollama runs llama.cpp."""
ZERO_BITS = 16
"""Bits of the zero point that gpt-fast keeps for a group of 4-bit weights (gpt-fast quantize.py,
group_quantize_tensor): `int4-g32` has groups of 32."""
WEIGHT_WORDS = (
    (r"nvfp4", "nvfp4"),
    (r"mxfp4", "mxfp4"),
    (r"mxfp8", "mxfp8"),
    (r"\bfp4", "nvfp4"),
    (r"fp8|e4m3|float8", "fp8"),
    (r"int8|w8a8|w8a16|\b8[ -]?bit", "int8"),
    (r"u?int4|awq|gptq|w4a16|\b4[ -]?bit", "int4"),
    (r"\bbf16|bfloat16|\bfp16|\bf16|float16|\b16[ -]?bit", "bf16"),
    (r"\bfp32|\bf32|float32", "fp32"),
)
"""Patterns of a row's words for its weights, and the format; the first that occurs holds. Submissions to benchmarks
that say fp4 only store it in blocks of 16 (nvfp4)."""
FLOATS_COMPUTED = {"nvfp4": "fp4", "mxfp4": "fp4", "fp8": "fp8", "mxfp8": "fp8"}
"""Formats that matrix units multiply as they are stored, and the peak that holds. All others are widened to 16 bits."""
FLASH = re.compile(r"flash|-fa[ =](1|on)|\bfa[ =:](1|on)", re.IGNORECASE)
NO_INTEGERS = "volta"
"""The generation whose matrix units take 16 bits and no integers (pull request 8075: cuBLAS is used there still)."""
FIRST_MMQ = 3200
"""About the first build of llama.cpp that multiplies quantized weights as they are stored (pull request 8075)."""
NARROW_SUMS = "fp16_fp16acc"
"""The peak of 16-bit operands whose products are added up in 16 bits."""
SPECULATES = re.compile(r"\b(mtp|eagle|medusa|specul\w*|draft)\b", re.IGNORECASE)
DENIES = re.compile(r"\bno[nt]? |\bwithout\b|\boff\b|\bdisabled?\b", re.IGNORECASE)


MLPERF_LIMITS = {
    ("llama2-70b", "server"): LatencyLimits(2.0, 0.2),
    ("llama2-70b", "interactive"): LatencyLimits(0.45, 0.04),
    ("mixtral-8x7b", "server"): LatencyLimits(2.0, 0.2),
    ("llama3.1-405b", "server"): LatencyLimits(6.0, 0.175),
    ("llama3.1-405b", "interactive"): LatencyLimits(4.5, 0.08),
    ("llama3.1-8b", "server"): LatencyLimits(2.0, 0.1),
    ("llama3.1-8b", "interactive"): LatencyLimits(0.5, 0.03),
    ("deepseek-r1", "server"): LatencyLimits(2.0, 0.08),
    ("deepseek-r1", "interactive"): LatencyLimits(1.5, 0.015),
}
"""By benchmark and scenario: MLCommons inference, loadgen/mlperf.conf at 001712e9."""
MLPERF_PROMPTS = {
    "llama2-70b": 222,
    "llama3.1-405b": 9429,
    "llama3.1-8b": 871,
    "mixtral-8x7b": 427,
    "deepseek-r1": 804,
}
"""Mean tokens of a prompt, by benchmark: of the lengths in the benchmarks' own data sets, sample by sample, in
openshift-psap/performance-dashboard at 71007029, mlperf-data/summaries/ (24,576, 8,313, 13,368, 15,000 and 4,388
samples; their answers have the means that the benchmarks' pages print: 4,043.45 and 684.68)."""
MLPERF_ANSWERS = {"llama3.1-8b": 128, "deepseek-r1": 4043, "llama3.1-405b": 685, "mixtral-8x7b": 145, "llama2-70b": 294}
"""Mean tokens of an answer if a row does not say: MLCommons inference, README.md of each benchmark in language/; of
llama3.1-8b the most that it makes (SUT_VLLM.py, max_tokens, at 64eb7813), of 611 characters in the mean."""


def engine_of(name: str) -> str:
    """Return the family of an engine; UNKNOWN if its name says none."""
    low = name.lower()
    return next((family for word, family in ENGINE_WORDS if word in low), UNKNOWN)


def weights_of(words: str) -> StoredWeights:
    """Return how weights are stored by a row's words. Refused if they do not say."""
    low = words.strip().lower().replace("-", "_")
    name = next((one for one in sorted(formats.GGUF, key=len, reverse=True) if one in low), "")
    if name:
        return stored(name)
    low = words.strip().lower()
    if group := re.search(r"int4-g(\d+)", low):
        return StoredWeights(group[0], formats.in_groups(4, int(group[1]), ZERO_BITS), 2.0)
    found = next((form for pattern, form in WEIGHT_WORDS if re.search(pattern, low)), "")
    if not found:
        said = f"how its weights are stored is not known: {words[:40]}" if words else "how its weights are stored"
        raise NapkinError(said if words else f"{said} is not stated")
    return stored(found)


def computed_in(words: str, hardware: Hardware, family: str = UNKNOWN) -> str:
    """Return the format in which linear layers are multiplied: that of the weights where the accelerator's matrix units
    take it, else 16 bits. Integers only where activations are 8-bit too (w8a8). llama.cpp adds up in 16 bits, which
    GeForce cards do faster (ggml-cuda.cu, ggml_cuda_op_mul_mat_cublas: CUBLAS_COMPUTE_16F)."""
    low = words.lower()
    found = next((form for pattern, form in WEIGHT_WORDS if re.search(pattern, low)), "")
    wanted = "int8" if found == "int8" and "w8a8" in low else FLOATS_COMPUTED.get(found, "")
    if wanted not in hardware.peaks:
        return NARROW_SUMS if family == LLAMA_CPP and NARROW_SUMS in hardware.peaks else hardware.default_dtype
    return "nvfp4" if wanted == "fp4" else wanted


def cache_of(words: str, computed: str, family: str) -> tuple[str, float]:
    """Return the format of keys and values and its bytes: as stated, else 16 bits as the engines' `auto` has them; 8 of
    TensorRT-LLM's 8- and 4-bit checkpoints (ModelOpt, whose recipes quantize the cache with the weights)."""
    low = words.lower()
    if re.search(r"fp8|e4m3|int8|8[ -]?bit", low):
        return "fp8", 1.0
    if re.search(r"fp4|int4|4[ -]?bit", low):
        return "nvfp4", 0.5625
    if not low and family == TENSORRT and computed in ("fp8", "nvfp4"):
        return "fp8", 1.0
    return "bf16", 2.0


def kernels_of(family: str, said: str, hardware: Hardware) -> EngineKernels:
    """Return what an engine's kernels move, by the words for its version and options: llama.cpp's benchmark runs
    without flash attention unless it is asked for (tools/llama-bench/README.md, --flash-attn: 0)."""
    if family != LLAMA_CPP:
        return FUSED
    metal = hardware.vendor == "Apple"
    found = WIDE_METAL if metal else WIDE_CUDA
    fused = bool(FLASH.search(said))
    widens = not metal and (before_mmq(said) or hardware.generation == NO_INTEGERS)
    return replace(found, scores=0 if fused else found.scores, widens=widens)


def before_mmq(said: str) -> bool:
    """Return whether words for a version of llama.cpp name one before June 2024."""
    if build := re.search(r"\bb(\d{3,5})\b", said):
        return int(build[1]) < FIRST_MMQ
    month = next((at for at, name in enumerate(MONTHS, 1) if name in said.lower()), 12)
    year = re.search(r"\b(20\d\d)\b", said)
    return year is not None and (int(year[1]), month) < (2024, 7)


def speculates(text: str) -> bool:
    """Return whether words say that several tokens are proposed at a time."""
    return any(not DENIES.search(text[: one.start()][-20:]) for one in SPECULATES.finditer(text))
