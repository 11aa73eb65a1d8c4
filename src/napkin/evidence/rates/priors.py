"""The constants of the step model before any step was seen: value, uncertainty (σ of the logarithm), and where it
comes from. Kernel measurements and datasheets set what a chip reaches; reading of the software sets what it hides.

Sources by short name:
    mamf    Bekman, Machine Learning Engineering, compute/accelerator/README.md at 744d01e, best found matmul shapes
    azure   Azure AI-benchmarking-guide at 8fd0c6e: cuBLASLt, FlashAttention-2, HBM and NCCL on ND A100, H100, H200 v5
    tests   zzc0721/torch-performance-test-data at 9d82827, database.md: torch.matmul in bf16 on many cards
    net     Bekman, Machine Learning Engineering, network/README.md: nccl-tests on H200, B200, MI300X
    code    the software's own source, read by kernel and tensor
    assumed no measurement: a guess with a wide σ
"""

from __future__ import annotations

Prior = tuple[float, float, str]
"""Value, σ of its logarithm, source."""
CHIP = "chip/"
"""Before an accelerator's name: the constant of what its matmuls reach over others of its generation (chips.py)."""
SAME_AS_OTHERS: Prior = (
    1.0,
    0.06,
    "assumed: the figures of its datasheet say what differs from its generation's others",
)
PRIORS: dict[str, Prior] = {
    # share of the dense peak that large matmuls sustain under power limits; a matmul's own shape comes on top
    "matmul/volta/16": (0.75, 0.10, "assumed: cuBLAS reaches 0.75 to 0.83 of 125 TFLOP/s in short microbenchmarks"),
    "matmul/turing/16": (0.70, 0.12, "assumed"),
    "matmul/ampere/16": (0.80, 0.05, "azure: 0.813 at 8192³, 0.822 at 16384³; mamf: 0.869 best"),
    "matmul/ada/16": (0.70, 0.08, "tests: L40S 0.743, best of five sizes; clocks fall under sustained load"),
    "matmul/hopper/16": (0.70, 0.05, "mamf: 0.803 best; clocks fall under sustained load"),
    "matmul/hopper/8": (0.68, 0.06, "azure: 0.652 at 8192³, 0.699 at 32768³; mamf: 0.709 best"),
    "matmul/blackwell/16": (0.68, 0.07, "mamf: 0.776 B200, 0.729 GB200, 0.786 B300, best shapes"),
    "matmul/blackwell/8": (0.64, 0.08, "mamf: 0.763 B200, 0.723 GB200, 0.745 B300, best shapes"),
    "matmul/blackwell/4": (0.50, 0.15, "assumed"),
    "matmul/cdna/16": (0.50, 0.10, "mamf: 0.51 MI300X, 0.60 MI325X, 0.62 MI355X"),
    "matmul/tpu/16": (0.85, 0.05, "assumed: the unit is one large systolic array"),
    "matmul/gaudi/16": (0.80, 0.10, "mamf: 0.97 Gaudi 2, 0.74 Gaudi 3"),
    "matmul/other/16": (0.65, 0.15, "assumed"),
    "power": (0.50, 0.25, "assumed: rate ∝ (watts per FLOP/s)^κ where the clock is power-limited; κ = 1/2 for V² ∝ f"),
    "waves": (0.50, 0.30, "assumed: split and streamed schedules fill about half of the last wave"),
    "half_depth": (150.0, 0.35, "azure: 0.38 of the peak at 1024³ on an A100, 0.71 at 2048³"),
    "misaligned": (0.94, 0.02, "assumed: 27 % for three halvings was seen at hidden size 1800 a rank"),
    # attention
    "attention/volta": (0.40, 0.20, "assumed"),
    "attention/turing": (0.40, 0.20, "assumed"),
    "attention/ampere": (0.72, 0.06, "Dao 2023, section 4.1: at most 0.73; azure: 0.575, heads of 64, 8192 tokens"),
    "attention/ada": (0.50, 0.20, "assumed"),
    "attention/hopper": (0.35, 0.06, "Shah et al. 2024, figure 5: FlashAttention-2 0.339 at 16k tokens; azure: 0.331"),
    "attention/blackwell": (0.45, 0.12, "assumed: kernel/cudnn times this is cuDNN's"),
    "attention/blackwell/flash": (
        0.16,
        0.10,
        "FlashAttention-2 on B200: 352 to 362 TFLOP/s forward at 2,048 to 8,192 tokens (meta-pytorch/tritonbench pull "
        "request 171), 330 to 380 with heads of 64 (Dao-AILab/flash-attention issue 1589)",
    ),
    "attention/cdna": (0.35, 0.20, "assumed"),
    "attention/tpu": (0.45, 0.15, "assumed"),
    "attention/gaudi": (0.45, 0.20, "assumed"),
    "attention/other": (0.40, 0.20, "assumed"),
    "kernel/cudnn-2023": (
        1.60,
        0.12,
        "Shah et al. 2024, figure 5: cuDNN 9.1 to FlashAttention-2, 539 to 335 TFLOP/s",
    ),
    "kernel/cudnn": (1.85, 0.12, "cuDNN 9.4 release notes: 5 to 30 % faster on Hopper than before"),
    "kernel/flash1": (
        0.49,
        0.15,
        "Dao 2023, figure 4, 16k tokens: FlashAttention 1 and Triton's 0.41 to 0.63, by mask and heads of 64 or 128",
    ),
    "kernel/efficient": (0.45, 0.12, "Dao 2023, figure 4, 16k tokens: xformers 0.39 to 0.49"),
    "attention_backward": (
        1.16,
        0.08,
        "Dao 2023, section 4.1: forward reaches at most 73 % of the peak, backward 63 %",
    ),
    "half_keys/flash": (230.0, 0.35, "Dao 2023, figure 4: with a mask, half of the rate of 16k tokens at 512"),
    "half_keys/first": (
        125.0,
        0.35,
        "Dao 2023, figure 4: 0.60 to 0.76 of it in FlashAttention 1, Triton's and xformers, 0.67 in the middle",
    ),
    "small_head/flash": (0.89, 0.05, "Shah et al. 2024, figure 5: heads of 64 over 128, 299 to 335 TFLOP/s"),
    "large_head/efficient": (
        0.5,
        0.30,
        "code: past 128 columns the results lie in global memory, and a tile has 32 queries in place of 64 (pytorch "
        "aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernels, 32x128_gmem for 64x128_rf)",
    ),
    "small_head/cudnn": (0.72, 0.05, "Shah et al. 2024, figure 5: heads of 64 over 128, 388 to 539 TFLOP/s"),
    "core": (0.70, 0.15, "assumed: batched matmuls of small heads"),
    "core_odd": (0.25, 0.40, "assumed: no vector loads below 16 bytes"),
    "score_bytes": (30.0, 0.20, "code: Megatron's fused scale-mask-softmax, dropout, both 16-bit copies"),
    # memory and links
    "memory": (0.86, 0.05, "azure: copy, add, triad 0.79 to 0.83 A100, 0.87 to 0.89 H100, 0.83 to 0.86 H200"),
    "bus": (0.80, 0.06, "net, azure: all-reduce on 8 GPUs, ring, 0.77 A100, 0.82 H200"),
    "wire/rdma": (0.88, 0.07, "net: 365 GB/s over 4 nodes of 8 × 50 GB/s"),
    "wire/omnipath": (0.50, 0.40, "assumed: no GPU-direct path of full rate"),
    "tensor_latency": (45e-6, 0.35, "azure: 1 MB all-reduce on 8 GPUs 42 to 51 μs; a step's wait for the slowest rank"),
    "data_latency": (40e-6, 0.40, "assumed, per doubling of the group"),
    "hop/link": (3.4e-6, 0.30, "code: NVIDIA/nccl src/graph/tuning.cc at 2.27, hwLatencies: ring, NVLink, Simple"),
    "hop/network": (14e-6, 0.30, "code: the same: ring, network, Simple"),
    # how much of a transfer shows
    "tensor_exposed/plain": (1.0, 0.10, "code: the matmul waits for the all-reduce"),
    "tensor_exposed/overlap": (0.5, 0.30, "code: one of two directions overlaps with the matmul"),
    "tensor_exposed/gradients": (
        0.55,
        0.15,
        "code: what backward moves hides behind the gradients of weights: 2 of 4 all-reduces show, with sequence "
        "parallelism 3 of 5 (NVIDIA/Megatron-LM megatron/core/tensor_parallel/layers.py)",
    ),
    "tensor_exposed/async": (
        0.7,
        0.30,
        "PyTorch, Introducing Async Tensor Parallelism (discuss.pytorch.org/t/209487): Llama 3 70B on tp 8 gains 20 % "
        "of a forward pass and 8 % of a step, some 0.3 of what tensor parallelism takes",
    ),
    "pipeline_exposed/plain": (0.4, 0.50, "assumed"),
    "pipeline_exposed/overlap": (0.25, 0.50, "assumed"),
    "context_exposed": (0.3, 0.40, "assumed: the ring overlaps with attention"),
    "expert_exposed/async": (
        0.2,
        0.50,
        "assumed: little but the first and the last exchange; DeepSeek-AI 2024, arXiv:2412.19437, 3.2.1, hides all",
    ),
    "data_exposed": (0.05, 0.50, "assumed: the first bucket and the last"),
    "interference": (0.10, 0.50, "assumed: collectives take multiprocessors and bandwidth"),
    # memory-bound work
    "elementwise/eager": (1.10, 0.15, "code: dropout, bias and casts in addition to the least traffic"),
    "elementwise/compiled": (0.95, 0.15, "code: chains fused"),
    "cast_bytes/plain": (12.0, 0.25, "code: amax, quantize and transpose read and write each input"),
    "cast_bytes/fused": (6.0, 0.35, "code: norms and activations write 8 bits, of both layouts; the rest as above"),
    "loss_bytes/plain": (16.0, 0.20, "code: fp32 copy, log-softmax, gradient"),
    "loss_bytes/fused": (6.0, 0.30, "code: logits read twice, gradient written once"),
    "accumulation/fused": (8.0, 0.35, "code: fp32 gradient read and written in the matmul's epilogue"),
    "accumulation/separate": (24.0, 0.35, "code: 16-bit gradient, its cast and its addition"),
    "accumulation/autocast": (
        18.0,
        0.35,
        "code: weights cast to 16 bits, gradients cast back, and added where several",
    ),
    "accumulation/sharded": (22.0, 0.35, "code: copy in and out of the flat parameter, cast and divide"),
    "optimizer_slowness": (1.6, 0.25, "assumed: several kernels, norm and copy in addition to the 30 bytes"),
    # experts
    "grouped": (0.85, 0.10, "assumed: one kernel over the rows of several experts"),
    "expert_bias_bytes/plain": (64.0, 0.25, "code: times the score in fp32, added, copied, cast: a kernel each"),
    "expert_bias_bytes/fused": (8.0, 0.35, "code: one kernel forward, one that reads the gradient for both"),
    "permutation_bytes/plain": (36.0, 0.25, "code: permute, unpermute, probabilities, both passes"),
    "permutation_bytes/fused": (24.0, 0.25, "code: permutation fused with the exchange"),
    "dispatch": (1.0, 0.30, "assumed"),
    "dispatch/copies": (
        1.56,
        0.20,
        "PrimeIntellect-ai/prime-rl docs/performance.md, Qwen3-235B on 8 B300: 94 layers × 6 all-to-alls of 0.94 GB a "
        "rank in 1.34 s (torchtitan) and 0.99 s, 0.44 and 0.60 of NVLink, of which `bus` is 0.8",
    ),
    # time that no kernel spends
    "host_layer/fused": (0.2e-3, 0.40, "assumed: some 40 launches of 5 μs by a compiler's code, or a captured graph"),
    "host_layer/modules": (
        4.3e-3,
        0.25,
        "NVIDIA/Megatron-LM tests/functional_tests/test_cases/gpt, iteration times of golden_values in 2026, 12 layers "
        "of width 512 in micro-batches of 4 × 1,024 tokens, over tp, pp and interleaved stages: 3.9 ms a layer on DGX "
        "H100, 5.4 to 6.1 on DGX A100, 5.7 to 6.4 on GB200; the mean of the first two over stack/megatron-core",
    ),
    "host_chunk": (
        2.5e-3,
        0.60,
        "the same: 1.2 to 1.8 ms on DGX H100, 2.0 to 5.1 on DGX A100, 0.1 to 0.9 on GB200; in stages of one layer 2.4 "
        "and 5",
    ),
    "host_layer/eager": (
        2.1e-3,
        0.40,
        "between 3 times 1.0 ms, a forward pass of a layer being a third of its launches: LitGPT tutorials, resource "
        "tables, Llama 2 7B at 31 token/s on an A100; and 1.5 ms, measured: a layer of transformers 5.24 on torch 2.13 "
        "and one core, 0.62 ms fp32 to 0.85 bf16, and 5 μs for each of its 137 kernels",
    ),
    "host_experts": (5e-3, 0.40, "assumed: launches and synchronizations of routing"),
    "host_experts/parts": (3e-3, 0.40, "assumed: of these launches, those of the dispatch and of the experts remain"),
    "host_expert": (0.2e-3, 0.50, "assumed: some twenty launches of 10 μs for each expert, forward and backward"),
    "host_unit": (
        0.6e-3,
        0.50,
        "measured: FSDP of torch 2.13 around linear layers of width 16, a process group that sends nothing, on one "
        "core of a Xeon at 2.8 GHz: 0.5 ms in each of three passes with reentrant checkpoints, 0.65 with others",
    ),
    "host_module": (0.3e-3, 0.70, "assumed: a hook, a fetch and a release of one module, some six calls of 50 μs"),
    "fixed": (0.008, 0.50, "assumed: launches of the optimizer, norms of gradients, the loss read back"),
    "straggle": (0.003, 0.60, "assumed: a step waits for the slowest of its GPUs, more where there are more"),
    "stops_early": (0.9, 0.20, "code: torch.utils.checkpoint, early stop"),
    # software over the common constants
    "stack/megatron": (0.97, 0.08, "assumed"),
    "stack/megatron-deepspeed": (1.05, 0.08, "assumed"),
    "stack/megatron-core": (1.00, 0.08, "assumed"),
    "stack/megatron-mlperf": (1.00, 0.10, "assumed: as megatron-core, whose code it runs"),
    "stack/fsdp-eager": (1.05, 0.08, "assumed"),
    "stack/fsdp-compiled": (1.03, 0.08, "assumed"),
    "stack/xla": (1.10, 0.08, "assumed"),
    "stack/lean": (0.93, 0.08, "assumed"),
    "stack/nanotron": (1.10, 0.08, "assumed"),
    "stack/unknown": (1.05, 0.10, "assumed: the middle of the others"),
}


def prior_of(name: str) -> Prior:
    """Return what is known of a constant before any step was seen; of an accelerator nothing."""
    return SAME_AS_OTHERS if name.startswith(CHIP) else PRIORS[name]
