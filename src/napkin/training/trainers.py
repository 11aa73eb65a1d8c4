"""Fine-tuning libraries: their defaults for dtypes, checkpointing and engines.

Each fact comes from public code, at the commit or version in its source.
"""

from __future__ import annotations

from napkin.errors import NapkinError, did_you_mean
from napkin.record import record, replace
from napkin.training.frameworks import FSDP, Framework
from napkin.training.precision import POLICIES, Precision, named
from napkin.training.recomputation import Recompute
from napkin.training.versions import is_before, is_since

PENALIZED = ("rloo", "ppo")
"""Tasks that compare responses with a reference in TRL's configs (trl/trainer/rloo_config.py, beta 0.05; PPO's)."""


@record
class Trainer:
    """A library on top of a framework.

    implementation  of the model that it trains, by name
    full      the policy for training all weights if a run states only "16 bits"
    adapters  number format of adapters on 16-bit weights      beside_quantized  on quantized ones
    dropout   default dropout of the adapters' inputs
    nested    the scales of its 4-bit weights are quantized too by default (bnb_4bit_use_double_quant)
    experts   experts that are one tensor are quantized to 4 bits with the linear layers
    autocast  the step runs under autocast
    widens    tensors that are not quantized are cast to fp32, and every block is checkpointed by default, next to
              quantized ones (peft's prepare_model_for_kbit_training)
    checkpoints  every block is checkpointed by default, from version `since` on
    loss      its cross entropy of texts (operations/losses.py) from version `loss_since` on, "" if it is the model's
    kernels   that replace parts of the class by default (kernels.py), ""
    offloads  the inputs of checkpointed blocks are copied to the host, and back as the backward pass needs them
    framework  default framework, ""        also  others, on which it runs transformers' models
    divides   default ZeRO stage by framework
    share     share of each GPU's memory for a colocated inference engine
    engine    family of the inference engines that it starts, "" if none or unknown
    ranks     default tensor-parallel ranks of the engine
    shares    adapters are trained on the engine's own copy of the other weights
    sleeps    the engine frees its memory during training
    away      what it offloads to the host while a colocated engine generates
    unpads    micro-batches of reinforcement learning have no padding
    packs     default tokens of such a micro-batch, 0 if it packs none     longest  the same in multiples of the longest
              sequence, as its recipes or guides have it
    micro     default sequences of such a micro-batch if it packs none
    group     default responses to a prompt, where the responses of a step are the micro-batches of all ranks; 0: else
    timer     passes that its timer of log-probabilities holds
    scores    tasks with logits only for responses, not prompts
    penalizes a step of reinforcement learning uses a reference by default
    broadcast byte/s at which it sends all weights to a separate engine, 0 if unknown
    defers    FSDP reduces gradients only in a step's last micro-batch: the loop of transformers' Trainer or accelerate
              (transformers 5.23 trainer.py, sync_context; accelerate 1.15 accelerator.py, no_sync, for FSDP2 too since
              1.11)
    software  the stack whose measured steps are most similar (evidence/software.py)
    source    citation of its code
    """

    name: str
    source: str
    implementation: str = "hf"
    full: str = "bf16-pure"
    adapters: str = "fp32"
    beside_quantized: str = "fp32"
    dropout: float = 0.0
    nested: bool = False
    experts: bool = False
    autocast: bool = True
    widens: bool = False
    checkpoints: bool = False
    since: tuple[int, int] = (0, 0)
    loss: str = ""
    loss_since: tuple[int, int] = (0, 0)
    kernels: str = ""
    offloads: bool = False
    framework: str = ""
    also: tuple[str, ...] = ()
    divides: tuple[tuple[str, int], ...] = ()
    share: float = 0.5
    engine: str = ""
    ranks: int = 1
    shares: bool = False
    sleeps: bool = True
    away: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    penalizes: tuple[str, ...] = PENALIZED
    unpads: bool = False
    packs: int = 0
    longest: tuple[int, ...] = ()
    micro: int = 1
    group: int = 0
    timer: tuple[str, ...] = ("logprobs",)
    broadcast: float = 0.0
    defers: bool = False
    software: str = "fsdp-eager"

    def runs_on(self, framework: Framework) -> bool:
        """Return whether the library runs on a framework: its own, or one that wraps the model that it trains."""
        if framework.name in (self.framework, *self.also):
            return True
        wraps = self.implementation == "hf" or framework.implementation == self.implementation
        return wraps and not framework.program

    def stack_on(self, framework: Framework) -> str:
        """Return the stack whose measured steps are most similar on a framework: the library's own, whose software is
        that of the framework it usually has, or the framework's where it runs on another."""
        own = FSDP[0] if framework.name in self.also else self.software
        other = framework.software or own
        foreign = framework.name in self.also or (framework.name != self.framework and other not in FSDP)
        return other if foreign else self.software

    def stage(self, framework: Framework) -> int:
        """Return the library's default ZeRO stage on a framework, 0 if it has none."""
        return dict(self.divides).get(framework.name, 0)

    def on(self, framework: Framework) -> Framework:
        """Return a framework as the library runs it."""
        return replace(framework, defers=True) if self.defers and framework.gathers else framework

    def moves(self, recompute: Recompute, offload: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is kept in host memory: what a run offloads, and checkpoints that the library offloads."""
        moved = self.offloads and recompute.kind == "full" and "activations" not in offload
        return (*offload, "activations") if moved else offload

    def micro_batches(self, longest: int) -> tuple[int, ...]:
        """Return the tokens of a micro-batch of reinforcement learning if a run does not state it, the likely number
        first; none if the library packs no sequences. longest: tokens of the longest sequence, which always fits."""
        if not self.packs:
            return ()
        found = (self.packs, *(times * longest for times in self.longest))
        return tuple(dict.fromkeys(max(tokens, longest) for tokens in found))

    def recomputes(self, versions: str = "", quantized: bool = False) -> bool:
        """Return whether every block is checkpointed by default; versions: of software, as a run states them (`trl
        0.19.1, transformers 4.53`), the newest without the library's; quantized: of frozen weights."""
        if quantized and self.widens:
            return True
        return self.checkpoints and not is_before(self.name, versions, self.since)

    def loss_in(self, versions: str) -> str:
        """Return its form of the cross entropy of texts in a run that states these versions of software; "" without its
        own: runs were published before it as well."""
        return self.loss if is_since(self.name, versions, self.loss_since) else ""

    def policy_of_all(self, framework: Framework, narrow: str = "bf16", autocast: bool | None = None) -> Precision:
        """Return the policy for training all weights; narrow: the 16-bit dtype.

        Engines with master copies keep theirs (DeepSpeed, Megatron-core). accelerate casts the parameters that FSDP
        trains to fp32 if the run is under autocast (accelerator.py, prepare_model)."""
        if framework.name in ENGINES:
            return POLICIES[f"{narrow}-mixed"]
        casts = self.autocast if autocast is None else autocast
        if self.full == "amp-bf16" or (framework.gathers and casts):
            return replace(POLICIES["amp-bf16"], name=f"amp-{narrow}", compute=narrow)
        return named(Precision(f"{narrow}-pure", narrow, narrow, narrow, narrow))

    def policy_of_adapters(
        self, framework: Framework, quantized: bool, narrow: str = "bf16", autocast: bool | None = None, kept: str = ""
    ) -> Precision:
        """Return the policy for training adapters on frozen weights, which may be quantized in layers; kept: the
        adapters' dtype, if known."""
        if framework.name in ENGINES:
            return replace(POLICIES[f"{narrow}-mixed"], frozen=narrow)
        kept = kept or (self.beside_quantized if quantized else self.adapters)
        casts = self.autocast if autocast is None else autocast
        frozen = "fp32" if quantized and self.widens else narrow
        return Precision(
            "adapters", kept, kept, narrow if casts else kept, kept, frozen="" if frozen == kept else frozen
        )


ENGINES = ("deepspeed", "megatron-core")
"""Frameworks that keep an fp32 master copy."""
LOOP = Trainer(
    "none",
    "peft 0.21 tuners/tuners_utils.py, cast_adapter_dtype: adapters in fp32 (autocast_adapter_dtype)",
    autocast=False,
)
"""A plain loop around transformers and peft."""
TRAINERS: dict[str, Trainer] = {
    one.name: one
    for one in (
        LOOP,
        Trainer(
            "hf-trainer",
            "transformers 5 trainer.py, autocast_smart_context_manager: autocast under bf16 or fp16; peft's adapters",
            widens=True,
            defers=True,
        ),
        Trainer(
            "accelerate",
            "accelerate accelerator.py, prepare_model: forward under autocast; peft's adapters",
            defers=True,
        ),
        Trainer(
            "trl",
            "huggingface/trl trl/trainer/sft_trainer.py: adapters of a quantized base are cast to bf16; utils.py, "
            "create_model_from_path: a model is loaded in float32 unless a dtype is given; its configs "
            "set gradient_checkpointing since a222aeb46 (8 August 2025, release 0.22); sft_config.py, loss_type "
            "chunked_nll since b58947c7e (14 June 2026, release 1.7); "
            "grpo_config.py: vllm_gpu_memory_utilization 0.3, vllm_enable_sleep_mode off, num_generations 8, "
            "generation_batch_size: the micro-batches of all ranks; grpo_trainer.py and rloo_trainer.py, "
            "logits_to_keep: the completion's",
            group=8,
            scores=("grpo", "rloo"),
            full="amp-bf16",
            beside_quantized="bf16",
            checkpoints=True,
            since=(0, 22),
            loss="chunked-recomputed",
            loss_since=(1, 7),
            share=0.3,
            engine="vllm",
            sleeps=False,
            defers=True,
        ),
        Trainer(
            "axolotl",
            "axolotl-ai-cloud/axolotl src/axolotl/loaders/{model,adapter}.py: norms back to torch_dtype; "
            "cli/merge_lora.py: bnb_4bit_use_double_quant is on",
            nested=True,
            kernels="axolotl",
            defers=True,
        ),
        Trainer(
            "llama-factory",
            "hiyouga/LLaMA-Factory src/llamafactory/model/adapter.py: trained parameters in fp32 unless pure_bf16; "
            "hparams/model_args.py, double_quantization",
            nested=True,
            full="amp-bf16",
            checkpoints=True,
            defers=True,
        ),
        Trainer(
            "ms-swift",
            "modelscope/ms-swift swift/llm/argument: torch_dtype bf16, lora_dtype None: peft's; lora_dropout 0.05; "
            "swift/trainers/rlhf_trainer/grpo_trainer.py, logits_to_keep; swift/arguments/base_args/quant_args.py",
            nested=True,
            scores=("grpo",),
            dropout=0.05,
            checkpoints=True,
            defers=True,
        ),
        Trainer(
            "unsloth",
            "unslothai/unsloth unsloth/models/_utils.py, float32_mixed_precision; unslothai/unsloth-zoo "
            "unsloth_zoo/gradient_checkpointing.py, Unsloth_Offloaded_Gradient_Checkpointer; unsloth/models/llama.py, "
            "fast_inference: the model is made of vLLM's own tensors (convert_vllm_to_huggingface), "
            "gpu_memory_utilization 0.5, standby only where UNSLOTH_VLLM_STANDBY asks for it; "
            "bnb_4bit_use_double_quant; unsloth-zoo temporary_patches/moe_utils_bnb4bit.py (since May 2026), "
            "gpt_oss.py, GptOssExpertsBnb4bit: experts are quantized too",
            nested=True,
            experts=True,
            checkpoints=True,
            offloads=True,
            kernels="unsloth",
            engine="vllm",
            shares=True,
            sleeps=False,
            software="lean",
        ),
        Trainer(
            "torchtune",
            "meta-pytorch/torchtune recipes/lora_finetune_single_device.py: everything in the recipe's dtype",
            implementation="torchtune",
            framework="torchtune",
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
        ),
        Trainer(
            "nemo",
            "NVIDIA/NeMo megatron_gpt_peft_tuning_config.yaml: bf16 parameters, distributed optimizer",
            implementation="megatron",
            framework="megatron-core",
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            software="megatron-core",
        ),
        Trainer(
            "verl",
            "volcengine/verl verl/trainer/config/engine/fsdp.yaml: model_dtype fp32, bf16 compute, fsdp_size -1 and "
            "reshard_after_forward: divided over all ranks; model/hf_model.yaml: use_remove_padding; "
            "verl/trainer/config: use_kl_loss and use_kl_in_reward are off, rollout.tensor_model_parallel_size 2, "
            "rollout.name vllm; actor.yaml: no micro-batch size, ppo_max_token_len_per_gpu 16384; "
            "docs/perf/perf_tuning.rst: at least twice the longest sequence; "
            "docs/advance/delta_weight_sync.md: full broadcasts, 7B in 5.5 to 6 s, 72B in 28.5, "
            "235B in 246 to 266",
            full="amp-bf16",
            checkpoints=True,
            penalizes=(),
            engine="vllm",
            ranks=2,
            unpads=True,
            packs=16384,
            longest=(2,),
            broadcast=2.6e9,
            framework="fsdp",
            divides=(("fsdp", 3), ("megatron-core", 1)),
        ),
        Trainer(
            "openrlhf",
            "OpenRLHF/OpenRLHF openrlhf/utils/deepspeed: ZeRO with bf16 parameters and fp32 master copies; "
            "openrlhf/cli/train_ppo_ray.py: algo.kl.init_coef 0.01, ds.zero_stage 2, "
            "micro_train_batch_size 4; README.md: responses by vLLM",
            framework="deepspeed",
            divides=(("deepspeed", 2),),
            engine="vllm",
            micro=4,
            penalizes=(*PENALIZED, "grpo"),
        ),
        Trainer(
            "nemo-rl",
            "NVIDIA-NeMo/RL examples/configs/grpo_math_1B.yaml: generation.backend vllm, gpu_memory_utilization 0.6, "
            "bf16, reference_policy_kl_penalty 0.01, sequence_packing of 4 × 512 tokens; grpo_math_8B.yaml: of "
            "the longest sequence; nemo_rl/algorithms/grpo.py: offload_before_refit, offload_after_refit, "
            "timer policy_and_reference_logprobs; dtensor_cfg: FSDP2 around transformers' models, whose weights are "
            "loaded in float32; megatron_cfg.distributed_data_parallel_config: use_distributed_optimizer",
            full="amp-bf16",
            implementation="megatron",
            framework="megatron-core",
            also=("fsdp",),
            divides=(("megatron-core", 1), ("fsdp", 3)),
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            share=0.6,
            engine="vllm",
            away=("optimizer", "parameters"),
            unpads=True,
            packs=2048,
            longest=(1,),
            timer=("logprobs", "reference"),
            penalizes=(*PENALIZED, "grpo"),
            software="megatron-core",
        ),
        Trainer(
            "nemo-automodel",
            "NVIDIA-NeMo/Automodel: FSDP2, Transformer Engine's kernels, adapters in the model's dtype",
            adapters="bf16",
            beside_quantized="bf16",
            autocast=False,
            software="fsdp-compiled",
        ),
    )
}


def find(text: str) -> Trainer:
    """Return the library of that name; an unknown one is refused (2)."""
    word = text.strip().lower()
    if word not in TRAINERS:
        hint = did_you_mean(word, TRAINERS) or f"one of {', '.join(TRAINERS)}"
        raise NapkinError(f"--trainer: {text.strip()[:60]!r} is not known", hint)
    return TRAINERS[word]
