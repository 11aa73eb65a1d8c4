"""Options of other tools whose values have another form than those of the napkin option that they mean, and values that
people expect of napkin's own options. Loaded only if a command line has one."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.options.meaning import Meaning, meaning

_SHARDED = "--zero 3 --dp-shard N: shard within groups of N GPUs, replicate between them"
_POLICIES = "--precision bf16-mixed (fp32 master weights), amp-bf16 (fp32 weights, autocast) or bf16-pure"
_HALF = "--precision fp16-mixed: fp16 weights, fp32 master weights and moments"
_QLORA = "--quantized nf4 --lora-rank 16: state the rank"
_ZERO_STAGED = ("zero", "zero-", "deepspeed-zero", "deepspeed-zero-", "deepspeed-")
_ZERO_WORDS = {
    "zero-0": "--zero 0",
    "zero-1": "--zero 1",
    "zero-2": "--zero 2",
    "zero-3": "--zero 3",
    "full-shard": "--zero 3",
    "full-shard auto-wrap": "--zero 3",
    "fully-shard": "--zero 3",
    "fsdp": "--zero 3",
    "fsdp2": "--zero 3",
    "shard-grad-op": "--zero 2",
    "shard-grad-op auto-wrap": "--zero 2",
    "no-shard": "--zero 0",
    "ddp": "--zero 0",
    "none": "--zero 0",
    "hybrid-shard": f"!{_SHARDED}",
    "hybrid-shard-zero2": "!--zero 2 --dp-shard N: shard within groups of N GPUs",
    "hsdp": f"!{_SHARDED}",
}
_FSDP = {
    "": "--zero 3",
    "1": "--zero 3",
    "2": "--zero 3",
    **_ZERO_WORDS,
    "*": "!--zero 3 shards parameters, 2 gradients",
}
_SHARDING = {
    "1": "--zero 3",
    "2": "--zero 2",
    "3": "--zero 0",
    "optim": "--zero 1",
    "optim-grads": "--zero 2",
    "optim-grads-params": "--zero 3",
    **_ZERO_WORDS,
    "*": "!--zero 3 shards parameters, 2 gradients, 1 optimizer states",
}
_DEEPSPEED = "!--zero {} with --framework deepspeed, which adds DeepSpeed's own buffers"
_BUDGET = (
    "--recompute full is the least memory and the most time, none with --compile the most memory: a compiler chooses "
    "between them what it saves, by a share of its bytes that napkin does not model"
)
_CHECKPOINTING = {
    "": "--recompute full",
    "false": "--recompute none",
    "full": "--recompute full",
    "unsloth": "!--recompute full, with --offload activations",
    "selective": "--recompute selective",
    "op": "--recompute operations",
    "none": "--recompute none",
    "off": "--recompute none",
    "disabled": "--recompute none",
    "*": "--recompute {}",
}
_FLASH = {"": "--attention flash", "false": "--attention eager", "fa2": "--attention flash", "fa3": "--attention cudnn"}
_SDPA = "!--attention flash (what sdpa picks for bf16 and a causal mask), efficient or cudnn"
_ATTENTION = {
    "flash": "--attention flash",
    "flash-attention": "--attention flash",
    "flash-attention-2": "--attention flash",
    "flash-attention-3": "--attention cudnn",
    "flash-attn": "--attention flash",
    "flash-attn-2": "--attention flash",
    "fa2": "--attention flash",
    "fa3": "--attention cudnn",
    "eager": "--attention eager",
    "unfused": "--attention eager",
    "math": "--attention eager",
    "xformers": "--attention efficient",
    "mem-efficient": "--attention efficient",
    "memory-efficient": "--attention efficient",
    "efficient": "--attention efficient",
    "fused": "--attention cudnn",
    "cudnn": "--attention cudnn",
    "sdpa": _SDPA,
    "auto": _SDPA,
    "*": "!--attention flash, eager, efficient or cudnn",
}
_MIXED = {
    "": f"!{_POLICIES}",
    "false": "",
    "bf16": f"!{_POLICIES}",
    "bfloat16": f"!{_POLICIES}",
    "fp16": f"!{_HALF}",
    "float16": f"!{_HALF}",
    "fp8": "!--precision fp8-mixed: fp8 matmuls over bf16 weights, fp32 master weights and moments",
    "no": "--precision fp32",
    "none": "--precision fp32",
    "fp32": "--precision fp32",
    "*": f"!{_POLICIES}",
}
_RANKED = "--quantized nf4 ?--lora-rank 16: state the rank"
_RANK = "?--lora-rank 16: state the rank"
_FOUR_BIT_FORMATS = "--quantized nf4 (QLoRA), nf4-dq (its scales quantized too) or int4 (GPTQ, AWQ)"
_FOUR_BITS = {"": "--quantized nf4", "false": ""}
_LORA = {
    "": _RANK,
    "false": "",
    "#": "--lora-rank {}",
    "lora": _RANK,
    "qlora": _RANKED,
    "full": "",
    "none": "",
    "*": "!--lora-rank 16 trains LoRA matrices; everything is trained without it",
}
_TASKS = {task: f"--task {task}" for task in ("sft", "dpo", "kto", "orpo", "simpo", "rm", "ppo", "grpo", "rloo")}
_OFFLOAD = {"": "--offload {what}", "true": "--offload {what}", "cpu": "--offload {what}", "false": "", "none": ""}
_ROLLOUTS = "--task grpo, rloo or ppo: which algorithm"
_FORMS = {"json": "--json", "csv": "--csv", "markdown": "--markdown", "md": "--markdown", "text": "", "table": ""}
_LOOKS = {"*": "!--zero 3, 2, 1 or 0 says what is sharded; --framework what runs it"}

MEANS: dict[str, Mapping[str, str]] = {
    "fsdp use-fsdp fsdp1 fsdp2 use-torch-fsdp2 torch-fsdp use-fsdp2 enable-fsdp fully-shard full-shard": _FSDP,
    "sharding sharding-strategy fsdp-sharding-strategy fsdp-strategy shard-strategy data-parallel-sharding-strategy": (
        _SHARDING
    ),
    "hsdp hybrid-shard data-parallel-shard-degree dp-shard-size dp-shard-degree dp-replicate-size "
    "data-parallel-replicate-degree dp-replicate": {"#": f"!{_SHARDED}", "": f"!{_SHARDED}"},
    "reshard-after-forward fsdp-reshard-after-forward": {"": "--zero 3", "false": "--zero 2"},
    "ddp use-ddp dp-only no-shard torch-ddp distributed-data-parallel": {"": "--zero 0"},
    "zero0 zero-0": {"": "--zero 0"},
    "zero1 zero-1 zero-stage-1 zero-stage1 zero-optimizer use-zero1": {"": "--zero 1"},
    "zero2 zero-2 zero-stage-2 zero-stage2": {"": "--zero 2"},
    "zero3 zero-3 zero-stage-3 zero-stage3 use-zero3": {"": "--zero 3"},
    "deepspeed use-deepspeed deepspeed-config ds-config ds": {
        "": _DEEPSPEED.format("3"),
        "*1*": _DEEPSPEED.format("1"),
        "*2*": _DEEPSPEED.format("2"),
        "*3*": _DEEPSPEED.format("3"),
        "*": _DEEPSPEED.format("1, 2 or 3"),
    },
    "use-megatron-lm megatron megatron-lm": {"": "!--framework megatron-core"},
    "strategy distributed-type parallelism distributed-strategy": {
        "deepspeed": _DEEPSPEED.format("3"),
        "deepspeed-stage-1": _DEEPSPEED.format("1"),
        "deepspeed-stage-2": _DEEPSPEED.format("2"),
        "deepspeed-stage-3": _DEEPSPEED.format("3"),
        "megatron-lm": "!--framework megatron-core",
        "multi-gpu": "--zero 0",
        **_ZERO_WORDS,
        **_LOOKS,
    },
    "dp-type data-parallel-type": {**_ZERO_WORDS, **_LOOKS},
    "enable-expert-parallel": {"": "!--ep N: the ranks that share the experts"},
    "gradient-checkpointing grad-checkpointing gradient-checkpoint grad-checkpoint activation-checkpointing "
    "activation-checkpoint act-ckpt activation-recompute activation-recomputation recomputation checkpoint-activations "
    "use-gradient-checkpointing enable-activation-checkpointing enable-gradient-checkpointing ac-mode remat "
    "fsdp-activation-checkpointing activation-checkpoint-mode activation-checkpoint.mode recompute-granularity "
    "activations-checkpoint-granularity gradient-checkpointing-enable checkpointing recompute-layer full-recompute "
    "recompute-full ac": _CHECKPOINTING,
    "activation-memory-budget activation-checkpoint.memory-budget memory-budget": {"*": f"!{_BUDGET}"},
    "disable-gradient-checkpointing disable-activation-checkpointing no-recomputation no-recompute": {
        "": "--recompute none"
    },
    "recompute-activations selective-recompute selective-checkpointing recompute-selective": {
        "": "--recompute selective",
        "false": "",
    },
    "recompute-method recompute-num-layers activations-checkpoint-method activations-checkpoint-num-layers": {
        "*": "!--recompute full, or --recompute group:N to keep one input for N layers"
    },
    "flash-attention flash-attn use-flash-attn use-flash-attention use-flash-attention-2 flash-attention-2 "
    "flash-attn-2 use-flash-attn-v2 fa2 use-fa use-fa2 flash": {**_FLASH, **_ATTENTION},
    "attn-implementation attn-impl attn-backend attention-backend attention-implementation attention-kernel "
    "attention-impl attn attn-kernel attention-type": _ATTENTION,
    "eager-attention eager no-flash-attn disable-flash-attn": {"": "--attention eager"},
    "sdpa use-sdpa": {"": _SDPA},
    "xformers xformers-attention mem-efficient-attention memory-efficient-attention": {"": "--attention efficient"},
    "cudnn-attention": {"": "--attention cudnn"},
    "use-dora dora": {"": "--adapter dora", "false": ""},
    "lora use-lora peft use-peft use-lora-adapters adapter adapter-type finetuning-type train-type tuner-type": _LORA,
    "method finetuning-method finetune-method training-method peft-method peft-type": {**_LORA, **_TASKS},
    "liger use-liger use-liger-kernel use-liger-kernels liger-kernel enable-liger-kernel enable-liger": {
        "": "--kernels liger",
        "false": "",
    },
    "max-memory-allocated memory-allocated": {"*": "--snapshot allocated={}"},
    "max-memory-reserved memory-reserved": {"*": "--snapshot reserved={}"},
    "memory-used nvidia-smi": {"*": "--snapshot used={}"},
    "rank r": {"*": "!--lora-rank N is LoRA's rank; a process's rank changes nothing: leave it out"},
    "full-finetune full-finetuning full-ft": {"": "!--task sft trains all weights without --lora-rank", "false": ""},
    "qlora use-qlora": {"": _RANKED, "#": "--quantized nf4 --lora-rank {}", "false": ""},
    "load-in-4bit use-4bit 4bit bnb-4bit in-4bit load-4bit int4 q4": _FOUR_BITS,
    "load-in-8bit use-8bit 8bit bnb-8bit int8 in-8bit load-8bit q8": {"": "--quantized int8", "false": ""},
    "use-double-quant double-quant double-quantization use-nested-quant use-bnb-nested-quant "
    "bnb-4bit-use-double-quant": {"": "--quantized nf4-dq", "false": ""},
    "quantization-bit bits load-bits": {"4": "--quantized nf4", "8": "--quantized int8", "*": "!--quantized nf4"},
    "lora-target lora-target-modules target-modules lora-modules lora-attn-modules lora-target-module": {
        "all": "",
        "all-linear": "",
        "*": "--lora-targets {}",
    },
    "lora-target-linear": {"": "", "false": "!--lora-targets q,v: the modules to adapt"},
    "bf16 bfloat16 use-bf16 bf16-mixed-precision": {"": f"!{_POLICIES}", "false": ""},
    "fp16 float16 half use-fp16": {"": f"!{_HALF}", "false": ""},
    "mixed-precision amp use-amp autocast mixed-precision-training mixed amp-dtype fp16-opt-level": _MIXED,
    "fp32 float32 full-precision": {"": "--precision fp32", "false": ""},
    "pure-bf16 bf16-pure full-bf16 bf16-full": {"": "--precision bf16-pure", "false": ""},
    "fp8 use-fp8 enable-fp8 float8": {"": "!--precision fp8-mixed", "false": "", "*": "!--precision fp8-mixed"},
    "fp4 nvfp4": {"": "!--precision nvfp4-mixed"},
    "mxfp8": {"": "!--precision mxfp8-mixed"},
    "tf32": {"": "!--precision fp32: tf32 changes no byte of it", "false": "", "true": "!--precision fp32"},
    "adam-8bit use-8bit-adam use-8bit-optimizer 8bit-adam 8bit-optimizer adam8bit bnb-optimizer": {
        "": "--optimizer adamw-8bit"
    },
    "use-muon muon": {"": "--optimizer muon"},
    "use-adafactor adafactor": {"": "--optimizer adafactor"},
    "use-lion lion": {"": "--optimizer lion"},
    "adamw": {"": "--optimizer adamw"},
    "adam": {"": "--optimizer adam"},
    "sgd": {"": "--optimizer sgd"},
    "offload-optimizer optimizer-offload offload-optimizer-state offload-optimizer-device zero-offload "
    "optimizer-cpu-offload offload-optim": {k: v.format(what="optimizer") for k, v in _OFFLOAD.items()},
    "offload-param offload-params offload-parameters offload-param-device param-offload fsdp-offload-params": {
        k: v.format(what="parameters") for k, v in _OFFLOAD.items()
    },
    "offload-activations activation-offloading enable-activation-offloading activation-offload cpu-offloading": {
        k: v.format(what="activations") for k, v in _OFFLOAD.items()
    },
    "cpu-offload offload-to-cpu fsdp-cpu-offload use-cpu-offload cpu-offload-gb": {
        "": "!--offload optimizer, parameters or activations: what is kept in host memory",
        "*": "!--offload optimizer, parameters or activations: what is kept in host memory",
    },
    "sft": {"": "--task sft"},
    "dpo": {"": "--task dpo"},
    "kto": {"": "--task kto"},
    "orpo": {"": "--task orpo"},
    "simpo": {"": "--task simpo"},
    "reward-modeling rm": {"": "--task rm"},
    "grpo": {"": "--task grpo"},
    "ppo": {"": "--task ppo"},
    "rloo": {"": "--task rloo"},
    "reinforce rlhf rl": {"": f"!{_ROLLOUTS}", "*": f"!{_ROLLOUTS}"},
    "cost total-cost": {"*": "!--price is USD per GPU-hour, --budget USD for the whole run"},
    "gpu-hours gpu-hrs device-hours": {"*": "!--within: GPU-hours over --gpus"},
    "spot preemptible on-demand": {"": "!--price: USD per GPU-hour"},
    "provider cloud instance instance-type machine-type": {
        "*": "!--hardware, --gpus-per-node and --price say what it has and costs; plan --hardware any compares prices"
    },
    "cluster cluster-size": {"#": "--gpus {}", "*": "!--hardware and --gpus"},
    "days max-days": {"*": "--within {}d"},
    "hours max-hours": {"*": "--within {}h"},
    "weeks": {"*": "--within {}w"},
    "minutes": {"*": "--within {}min"},
    "years": {"*": "--within {}y"},
    "months month": {"*": "!--within 30d: a month's length in days"},
    "seconds-per-step sec-per-step step-seconds seconds-per-iteration": {"*": "--step-time {}s"},
    "step-time-ms ms-per-step elapsed-time-per-iteration iteration-time-ms": {"*": "--step-time {}ms"},
    "peak-tflops gpu-tflops hardware-tflops": {"*": "--peak-flops {}TFLOP/s"},
    "vram-gb gpu-memory-gb memory-gb gpu-mem-gb": {"*": "--memory-size {}GB"},
    "gpu-memory-utilization": {"*": "!--memory-size: the bytes that may be used of one GPU"},
    "electricity-price electricity-cost energy-price energy-cost power-price power-cost price-per-kwh cost-per-kwh": {
        "*": "!--price, USD per GPU-hour with its power; the answer has the energy in kWh"
    },
    "chinchilla chinchilla-optimal compute-optimal": {"": "!--tokens {twenty}: about 20 tokens for each parameter"},
    "total-batch-size tokens-per-batch tokens-per-step batch-tokens global-batch-tokens batch-size-in-tokens "
    "global-batch-size-tokens tokens-per-iter": {
        "*": "!--global-batch counts sequences: the tokens of a step over the sequence length"
    },
    "prompts num-prompts n-prompts prompts-per-step num-prompts-per-step prompts-per-batch rollout-batch-size": {
        "*": "!--global-batch: the prompts of an optimizer step, for all GPUs; times --updates are generated"
    },
    "vllm-enable-sleep-mode vllm-enable-sleep enable-sleep-mode enable-sleep sleep-mode": {
        "*": "!leave it out: whether an engine sleeps while training is the library's (--trainer)",
        "": "!leave it out: whether an engine sleeps while training is the library's (--trainer)",
    },
    "ppo-mini-batch-size num-ppo-epochs ppo-epochs ppo-epoch mini-batches": {
        "*": "!--updates: optimizer steps on the responses of a step, each on --global-batch prompts of them"
    },
    "beta kl-coef kl-loss-coef init-kl-coef init-kl-coeff kl-beta": {
        "*": "!leave it out; in reinforcement learning 0 is --reference none, as no reference model runs then"
    },
    "teacher teacher-model teacher-model-name-or-path teacher-path": {"*": "--reference {}"},
    "vllm-gpu-memory-utilization rollout-gpu-memory-utilization": {"*": "--rollout colocated:{}"},
    "use-vllm vllm-mode use-sglang": {
        "": "!--rollout colocated:SHARE or separate:GPUS",
        "colocate": "--rollout colocated",
        "colocated": "--rollout colocated",
        "*": "!--rollout colocated:SHARE or separate:GPUS",
    },
    "mini-batch mini-batch-size minibatch minibatch-size": {
        "*": "!--micro-batch (one pass of one GPU) or --global-batch (one optimizer step)"
    },
    "auto-find-batch-size find-batch-size max-batch auto-batch-size find-executable-batch-size": {
        "": "!--max micro-batch finds the largest that fits"
    },
    "max-gpus min-gpus": {"": "!--min gpus finds the fewest", "*": "!--min gpus finds the fewest"},
    "json-output as-json to-json": {"": "--json"},
    "csv-output as-csv": {"": "--csv"},
    "format output-format fmt form": _FORMS,
    "causal-mask is-causal": {"": "--causal", "false": ""},
    "use-megatron-fsdp": {"": "!--zero 3"},
}
"""Spellings with another form of value → {what follows: what it means}. What follows: nothing (""; also `true`), a
word, `#` a number, `*` anything (`*3*`: anything with a 3 in it), `{}` in the meaning is replaced by it. A meaning is
other options, or after `!` the hint of a refusal; after `?` too, unless the line has the option that the hint names."""

VALUES: dict[str, Mapping[str, str]] = {
    "adapter": {"qlora": _QLORA, "*.json": "--from adapter_config.json reads peft's file"},
    "task": {
        **dict.fromkeys(("rl", "rlhf", "reinforce"), _ROLLOUTS),
        **dict.fromkeys(
            ("dapo", "gspo", "dr-grpo", "cispo", "reinforce++"), "--task grpo: another loss of the same passes"
        ),
        **dict.fromkeys(("ipo", "rdpo", "apo", "sppo"), "--task dpo: another loss of the same passes"),
        "cpo": "--task orpo: another loss of the same passes, without a reference",
        "lora": _RANK[1:],
        "qlora": _QLORA,
    },
    "trainer": {
        **dict.fromkeys(("huggingface", "hf", "transformers", "trainer"), "--trainer hf-trainer"),
        "peft": "--lora-rank 16 trains peft's adapters; --trainer hf-trainer or trl runs them",
        "llamafactory": "--trainer llama-factory",
        "swift": "--trainer ms-swift",
        **{
            f"{task}trainer": "--trainer trl" for task in ("sft", "dpo", "grpo", "orpo", "kto", "reward", "rloo", "gkd")
        },
        **dict.fromkeys(("bridge", "megatron-bridge"), "--trainer nemo"),
        "easyr1": "--trainer verl",
        "deepspeed-chat": "--framework deepspeed",
    },
    "framework": {
        **{f"{name}{stage}": f"--framework deepspeed --zero {stage}" for name in _ZERO_STAGED for stage in (1, 2, 3)},
        **dict.fromkeys(("fsdp1", "fsdp-1"), "--framework fsdp --fsdp-version 1"),
        **dict.fromkeys(("fsdp2", "fsdp-2", "fully-shard"), "--framework fsdp --fsdp-version 2"),
        **dict.fromkeys(("ddp", "torch", "pytorch"), "--framework plain"),
        **dict.fromkeys(("mcore", "megatron-lm", "megatron-bridge", "mindspeed"), "--framework megatron-core"),
        **dict.fromkeys(("neox", "gpt-neox"), "--framework megatron-deepspeed"),
        **dict.fromkeys(("composer", "llm-foundry", "mosaicml", "olmo-core"), "--framework fsdp"),
        **dict.fromkeys(("lightning", "pytorch-lightning"), "--framework fsdp or deepspeed, as its strategy is"),
        **dict.fromkeys(("huggingface", "hf", "transformers"), "--trainer hf-trainer"),
    },
    "optimizer": {
        **{
            f"{name}-layerwise": f"--optimizer {name} --optimizer-in-backward"
            for name in ("galore-adamw", "galore-adamw-8bit", "apollo-adamw")
        },
        "lomo": "--optimizer sgd --optimizer-in-backward",
    },
    "quantized": {
        **dict.fromkeys(("4bit", "4-bit", "4", "bnb", "bitsandbytes"), _FOUR_BIT_FORMATS),
        **dict.fromkeys(("8bit", "8-bit", "8"), "--quantized int8 (LLM.int8) or fp8"),
        **dict.fromkeys(("gptq", "awq", "w4a16"), "--quantized int4: weights of 4 bits with a scale for each group"),
        "fp4": "--quantized nf4: bitsandbytes' fp4 takes the same bytes",
        "mxfp4": "--quantized none: transformers does not train on mxfp4 weights but dequantizes them to 16 bits",
        "nvfp4": "--quantized nf4 for frozen weights; --precision nvfp4-mixed for matmuls of weights that are trained",
        "gguf": "--quantized none: transformers dequantizes a GGUF file as it loads it",
    },
    "max": {
        "gpus": "--min gpus finds the fewest, and napkin plan the layout",
        "batch": "--max micro-batch; of a server: napkin serve",
    },
    "min": {"micro-batch": "--max micro-batch finds the largest", "seq": "--max seq finds the longest"},
    "attention": {
        **dict.fromkeys(("sdpa", "auto"), _SDPA[1:]),
        "math": "--attention eager",
        "xformers": "--attention efficient",
    },
    "recompute": dict.fromkeys(("memory-budget", "budget"), _BUDGET),
    "zero": {f"{word}{n}": f"--zero {n}" for word in ("stage", "stage-", "zero", "zero-") for n in "0123"},
    "precision": {"bf16": _POLICIES, "bfloat16": _POLICIES, "fp16": _HALF, "bf16-true": "--precision bf16-pure"},
}
"""Option → values that it does not take, and the hint. *.json: any file of this kind."""


def meanings(spelling: str, table: Mapping[str, Mapping[str, str]] = MEANS) -> Mapping[str, str] | None:
    """Return what a spelling with another form of value means, by what follows it."""
    return next((means for names, means in table.items() if spelling in names.split()), None)


def said_by(spelling: str, value: object) -> Meaning | None:
    """Return what a setting of a file says under the name of another tool's option; None if no tool has that option, or
    the value is none or several."""
    means = meanings(spelling)
    if means is None or value is None or isinstance(value, (dict, list, tuple)):
        return None
    return meaning(means, str(value).lower() if isinstance(value, bool) else str(value), None)
