"""Software stacks: fusion and overlap. Facts about the code, no timings."""

from __future__ import annotations

from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.peaks import SINCE_HOPPER
from napkin.record import record, replace

TPU = "tpu"
"""The generation of TPUs."""


@record
class SoftwareStack:
    """Fusion, overlap and defaults of a software stack.

    compiled        elementwise chains run as one kernel (a compiler's or hand-written)
    eager           Python launches every operation of a reference class separately
    fused_loss      the loss reads the logits once or twice instead of writing softmax and gradients in fp32
    overlap         tensor- and pipeline-parallel transfers overlap with matmuls
    reduce_early    gradients are reduced while the last backward runs
    gather_early    updated parameters are gathered while the next forward pass runs
    accumulation    how gradients of micro-batches are added up: fused into the matmul, or a separate cast and add
    stops_early     recomputation of a block ends when its last saved tensor is back (torch's non-reentrant checkpoint)
    copies_shards   ZeRO-3's collectives copy in and out of flat buffers (pytorch/pytorch torch/distributed/fsdp/
                    _fully_shard/_fsdp_collectives.py). XLA's write the tensor itself, and Megatron-FSDP's buffers hold
                    the weights (NVIDIA/Megatron-LM docs/user-guide/features/megatron_fsdp.md, Advanced Bucketing)
    reduces_tensors under ZeRO-1 each weight's gradient is scattered, and the weight gathered after the optimizer's
                    step, by a collective of its own (huggingface/nanotron src/nanotron/optim/gradient_accumulator.py,
                    get_fp32_accum_hook; optim/zero.py, _all_gather_params)
    splits_boundary tensor-parallel ranks without sequence parallelism each send their part of what passes between
                    pipeline stages, and gather the rest on arrival (Narayanan et al. 2021, arXiv:2104.04473, section
                    4.1: scatter/gather; deepspeed/runtime/pipe/engine.py: is_pipe_partitioned, is_grad_partitioned)
    gathers_inputs  with sequence parallelism each rank keeps its part alone of what a column-parallel layer reads
                    (NVIDIA/Megatron-LM megatron/core/tensor_parallel/layers.py,
                    LinearWithGradAccumulationAndAsyncCommunication)
    gradient_bytes  bytes of a gradient element as it is reduced, unless the policy says otherwise
    fp32_gradient_bytes  the same where a run states that gradients are fp32. DeepSpeed's BF16_Optimizer all-reduces
                    them, which moves each twice (deepspeed/runtime/bf16_optimizer.py, get_grads_for_reduction;
                    engine.py, buffered all-reduce)
    fused_casts     norms and activations write 8-bit outputs for the product that follows (NVIDIA/TransformerEngine
                    transformer_engine/pytorch/module/layernorm_mlp.py)
    fused_chains    hand-written kernels run such chains without a compiler (NVIDIA/Megatron-LM megatron/core/fusions/)
    one_program     a step is one compiled program, whose kernels no host launches (jax.jit), and in which a recomputed
                    block's last product, which no gradient reads, is dead code (jax-ml/jax jax/_src/ad_checkpoint.py,
                    remat_partial_eval: dce_jaxpr)
    fused_experts   routing, permutation and experts run as few kernels that no host launches one by one
    async_experts   the experts' exchange overlaps with the compute of another micro-batch
    experts_apart   the host handles each expert by itself (NVIDIA/TransformerEngine
                    transformer_engine/pytorch/module/grouped_linear.py: a cuBLAS call for each on several streams).
                    Elsewhere one kernel runs all (transformers 5 integrations/moe.py: torch._grouped_mm; scattermoe)
    clamps_apart    kernels of their own clamp gate and up of experts (timing/experts.py, CLAMPED_FORWARD), unless they
                    are fused. What other software does for each element is in its factor of elementwise kernels
    sends_copies    an all-to-all of NCCL takes a token to each of its experts by itself, after the counts of all ranks
                    have reached the host (pytorch/torchtitan torchtitan/models/common/token_dispatcher.py,
                    AllToAllTokenDispatcher; deepspeedai/DeepSpeed deepspeed/moe/sharded_moe.py, _AllToAll). Elsewhere
                    kernels of their own send it once to each node (deepseek-ai/DeepEP; NVIDIA/Megatron-LM
                    megatron/core/transformer/moe/fused_a2a.py)
    open_dispatcher a flag decides which of both takes tokens (--moe-token-dispatcher-type flex: Megatron-LM
                    megatron/core/transformer/moe/token_dispatcher.py), and recipes differ by model and accelerator
                    (NVIDIA-NeMo/Megatron-Bridge v0.4.2 scripts/performance/configs/qwen/qwen3_llm_pretrain.py)
    masks_experts   experts with a capacity get their tokens, and give them back, by matmuls with one-hot masks over the
                    tokens of a sequence and all slots (AI-Hypercomputer/maxtext src/maxtext/layers/moe.py,
                    dense_matmul: "BSM,BSEC -> EBCM" and "EBCM,BSEC -> BSM")
    experts_tile    rows of a tile of the experts' product on TPUs, which runs again for each expert that begins in it
                    (jax-ml/jax jax/experimental/pallas/ops/tpu/megablox/gmm.py, make_group_metadata; 512 by default:
                    AI-Hypercomputer/maxtext src/maxtext/configs/types.py, MoEKernels)
    gathers_low     ranks gather weights in the 8 bits in which linear layers multiply them
    sequence_parallel, zero   defaults with tensor parallelism and with data parallelism
    attention       the attention kernel of its time      attention_since_hopper   that from Hopper on, where another
                    (NVIDIA/TransformerEngine, get_attention_backend, since v1.5; AI-Hypercomputer/maxtext
                    src/maxtext/configs/gpu/models: attention: cudnn_flash_te)
    attention_since_blackwell   that from Blackwell on, where another (pytorch/torchtitan pull request 1196, May 2025)
    open_kernel     its release decides which kernel runs from Hopper on: torch's scaled_dot_product_attention took
                    FlashAttention-2 before 2.11, and cuDNN since (rows/words.py); torchtitan names cuDNN first since
                    October 2025 (its pull request 1776)
    early_cudnn     its cuDNN is older than 9.4 of September 2024, from which on attention is 5 to 30 % faster on Hopper
                    (its release notes, docs.nvidia.com/deeplearning/cudnn)
    narrow_attention   attention runs in 8 bits, with a cuDNN whose backward kernel also computes the pairs that a
                    window masks: with 128 keys its time grows as the square of the length, in 16 bits as the length
                    (NVIDIA/cudnn-frontend at 3929da2, benchmark/sdpa_benchmark_training/results/gpt_oss, cuDNN 9.22)
    selective       what its selective recomputation runs again: attention (its core) or matmuls (every second one)
    graphed_layers  CUDA graphs capture the layers of a step where it is submitted to MLPerf (NVIDIA, CUDA graph best
                    practices for PyTorch, docs.nvidia.com/dl-cuda-graph, Llama 2 70B LoRA: all submission
                    configurations set MCORE_CUDA_GRAPH=1; mlcommons/training_results_v4.0
                    NVIDIA/benchmarks/llama2_70b_lora: LAYER_CUDA_GRAPH=1)
    """

    name: str
    says: str
    compiled: bool = False
    eager: bool = False
    fused_loss: bool = False
    overlap: bool = False
    reduce_early: bool = True
    gather_early: bool = False
    accumulation: str = "fused"
    stops_early: bool = False
    copies_shards: bool = False
    reduces_tensors: bool = False
    splits_boundary: bool = False
    gathers_inputs: bool = False
    gradient_bytes: int = 4
    fp32_gradient_bytes: int = 4
    gathers_low: bool = False
    sequence_parallel: bool = False
    zero: int = 0
    fused_experts: bool = False
    async_experts: bool = False
    experts_apart: bool = False
    clamps_apart: bool = False
    sends_copies: bool = False
    open_dispatcher: bool = False
    masks_experts: bool = False
    experts_tile: int = 0
    fused_casts: bool = False
    fused_chains: bool = False
    one_program: bool = False
    attention: str = "flash"
    attention_since_hopper: str = ""
    attention_since_blackwell: str = ""
    open_kernel: bool = False
    early_cudnn: bool = False
    narrow_attention: bool = False
    selective: str = "matmuls"
    graphed_layers: bool = False

    def kernel(self, generation: str) -> str:
        """Return the attention kernel that it runs on a generation of accelerators."""
        newer = self.attention_since_hopper if generation in SINCE_HOPPER else ""
        newest = self.attention_since_blackwell if generation == SINCE_HOPPER[-1] else ""
        return newest or newer or self.attention

    def runs(self, stated: str, generation: str) -> str:
        """Return the attention kernel of a run that states one, or "". `flash` has no version: it is the software's own
        kernel where that is fused."""
        own = self.kernel(generation)
        return own if stated in ("", "flash") and own != "eager" else stated or own

    def newer_kernel(self, kernel: str, generation: str) -> str:
        """Return the kernel that a newer release runs on such accelerators in place of this one, "" if none."""
        return "cudnn" if self.open_kernel and kernel == "flash" and generation in SINCE_HOPPER else ""

    def tile_of_experts(self, generation: str) -> int:
        """Return the rows of a tile of the experts' product that several experts share, 0 if each has its own."""
        return self.experts_tile if generation == TPU else 0

    @property
    def family(self) -> str:
        """Return the software's name without its edition: the key of its fitted factor."""
        name, _, year = self.name.rpartition("-")
        return name if len(year) == 4 and year.isdecimal() else self.name


MEGATRON_CORE = SoftwareStack(
    "megatron-core",
    "Megatron-LM, NeMo, Megatron Bridge since the autumn of 2024",
    graphed_layers=True,
    fused_chains=True,
    fused_casts=True,
    experts_apart=True,
    clamps_apart=True,
    open_dispatcher=True,
    fused_loss=True,
    overlap=True,
    gather_early=True,
    gathers_inputs=True,
    gradient_bytes=2,
    sequence_parallel=True,
    zero=1,
    attention_since_hopper="cudnn",
    selective="attention",
)
MEGATRON_MLPERF = replace(
    MEGATRON_CORE,
    name="megatron-mlperf",
    says="NeMo as its authors tune it for MLPerf: captured graphs, 8-bit communication, hand-set overlap",
    fused_experts=True,
    gathers_low=True,
)
"""mlcommons/training_results_v5.1, NVIDIA/benchmarks/llama31_405b/implementations/hsg_ngpu2560_ngc25.09_nemo,
pretrain.py: grad_reduce_in_fp32=False; config_common.sh: FP8_PARAM_GATHER=True, in config_common_fp4.sh False."""
STACKS = {
    stack.name: stack
    for stack in (
        SoftwareStack(
            "megatron",
            "Megatron-LM of 2019–2022 by its authors",
            reduce_early=False,
            splits_boundary=True,
            gathers_inputs=True,
            gradient_bytes=2,
            attention="eager",
            selective="attention",
        ),
        SoftwareStack(
            "megatron-deepspeed",
            "Megatron-DeepSpeed (BLOOM)",
            fp32_gradient_bytes=8,
            reduce_early=False,
            splits_boundary=True,
            accumulation="separate",
            gradient_bytes=2,
            zero=1,
            attention="eager",
            selective="attention",
            sends_copies=True,
        ),
        MEGATRON_CORE,
        replace(
            MEGATRON_CORE,
            name="megatron-core-2024",
            says="Megatron-LM and NeMo from 2023 to the summer of 2024",
            early_cudnn=True,
            sends_copies=True,
            open_dispatcher=False,
        ),
        replace(
            MEGATRON_CORE,
            name="megatron-core-2026",
            says="Megatron Bridge from container 26.06 on, in MXFP8: one graph, fused experts, 8-bit attention",
            fused_experts=True,
            async_experts=True,
            narrow_attention=True,
            open_dispatcher=False,
        ),
        MEGATRON_MLPERF,
        replace(
            MEGATRON_MLPERF,
            name="megatron-mlperf-2023",
            says="the same of 2023 and 2024",
            early_cudnn=True,
            gathers_low=False,
        ),
        SoftwareStack(
            "fsdp-eager",
            "PyTorch FSDP without torch.compile (LLM Foundry, Hugging Face)",
            eager=True,
            open_kernel=True,
            stops_early=True,
            copies_shards=True,
            zero=3,
            sends_copies=True,
        ),
        SoftwareStack(
            "fsdp-compiled",
            "PyTorch FSDP with torch.compile (torchtitan)",
            compiled=True,
            attention_since_blackwell="cudnn",
            open_kernel=True,
            fused_loss=True,
            stops_early=True,
            copies_shards=True,
            zero=3,
            sends_copies=True,
        ),
        SoftwareStack(
            "xla",
            "JAX and XLA (MaxText, Pax)",
            compiled=True,
            overlap=True,
            zero=3,
            one_program=True,
            masks_experts=True,
            experts_tile=512,
            attention_since_hopper="cudnn",
        ),
        SoftwareStack(
            "lean",
            "hand-written loops on fused kernels (llm.c, TinyLlama, FlashAttention's training code)",
            compiled=True,
            fused_loss=True,
            gradient_bytes=2,
        ),
        SoftwareStack("nanotron", "nanotron", zero=1, reduces_tensors=True),
    )
}
ONCE, COPIES = "once", "copies"
"""Dispatchers: a token goes once to each node, or to each of its experts by itself."""
UNKNOWN = "unknown"
"""An unknown stack: the middle of the known ones, with their spread."""


def stack(name: str, where: str = "--stack") -> SoftwareStack:
    """Return the stack of that name; an unknown name is refused (2)."""
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    key = {"fsdp": "fsdp-compiled", "torchtitan": "fsdp-compiled", "nemo": "megatron-core", "jax": "xla"}.get(key, key)
    if key == UNKNOWN:
        return SoftwareStack(UNKNOWN, "not in the evidence", zero=1, open_kernel=True, copies_shards=True)
    if key not in STACKS:
        known = (*STACKS, UNKNOWN)
        hint = did_you_mean(key, known) or f"one of {', '.join(known)}"
        raise NapkinError(f"{where}: unknown stack {name[:60]!r}", hint)
    return STACKS[key]


def dispatched(name: str, dispatcher: str, where: str = "--stack") -> SoftwareStack:
    """Return the stack of that name with the dispatcher of experts' tokens that a run states: ONCE, COPIES, or "" for
    its own."""
    found = stack(name, where)
    return replace(found, sends_copies=dispatcher == COPIES, open_dispatcher=False) if dispatcher else found
