"""How people spell napkin's options: their own names for them, and the option names of other tools.

Names are those of Megatron-LM, DeepSpeed, accelerate, torchrun, Hugging Face's Trainer and TRL, axolotl, LLaMA-Factory,
torchtitan, torchtune, NeMo, nanotron, nanoGPT, litgpt, vLLM and slurm, in lowercase with dashes. A spelling that means
exactly what one of napkin's options means is read as that option; another is refused with a hint that begins with the
option to use. Loaded only where a line holds a name that its command does not have.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

SAME = {
    "hardware": """gpu gpu-type gpu-name gpu-model gpu-kind device device-type device-name device-model
        accelerator accelerator-type accelerator-name chip chip-type card graphics-card hw machine-type tpu
        tpu-type""",
    "gpus": """num-gpus n-gpus ngpus ngpu num-gpu n-gpu gpu-count gpu-num number-of-gpus total-gpus gpus-total
        world-size num-processes n-processes nproc num-devices n-devices ndevices devices device-count
        num-accelerators num-chips accelerators n-accelerators ranks num-ranks gpu-number""",
    "nodes": "nnodes num-nodes n-nodes node-count number-of-nodes num-machines machines hosts num-hosts n-hosts",
    "gpus-per-node": """nproc-per-node ngpus-per-node num-gpus-per-node n-gpus-per-node gpu-per-node
        devices-per-node num-devices-per-node gpus-per-host gpus-per-machine ntasks-per-node
        accelerators-per-node local-world-size chips-per-host trainer.devices processes-per-node""",
    "tp": """tensor-parallel tensor-parallel-size tensor-parallelism tensor-parallel-degree
        tensor-model-parallel-size tensor-model-parallel tp-size tp-degree tensor-parallel-shards
        num-tensor-parallel model-parallel-size tensor-para-size tensor-par""",
    "pp": """pipeline-parallel pipeline-parallel-size pipeline-parallelism pipeline-parallel-degree pp-size
        pp-degree pipeline-model-parallel-size pipeline-model-parallel pipe-parallel-size pipeline-stages
        num-pipeline-stages pipeline-para-size pipeline-size pipeline-par""",
    "dp": """data-parallel data-parallel-size data-parallelism data-parallel-degree dp-size dp-degree
        num-replicas replicas data-par""",
    "cp": "context-parallel context-parallel-size context-parallelism context-parallel-degree cp-size cp-degree",
    "ep": """expert-parallel expert-parallel-size expert-parallelism expert-parallel-degree
        expert-model-parallel-size expert-model-parallel ep-size ep-degree moe-expert-parallel-size moe-ep-size""",
    "etp": """expert-tensor-parallel expert-tensor-parallel-size expert-tensor-parallel-degree
        moe-tensor-parallel-size etp-size""",
    "vp": """vpp vp-size vpp-size virtual-stages virtual-pipeline-stages virtual-pipeline-size
        pipeline-interleaving virtual-pipeline-parallel-size virtual-pipeline-model-parallel-size
        num-virtual-stages-per-pipeline-rank""",
    "sp": """sequence-parallel sequence-parallelism enable-sequence-parallel use-sequence-parallel
        enable-sequence-parallelism""",
    "ulysses": """ulysses-degree ulysses-size ulysses-sequence-parallel-size sequence-parallel-size sp-size
        sp-degree sequence-parallel-degree""",
    "zero": """zero-stage zero-optimization-stage zero-optimization.stage zero-level deepspeed-stage ds-stage
        deepspeed-zero-stage deepspeed-zero zero-redundancy-stage optimizer-sharding-stage""",
    "distributed-optimizer": "use-distributed-optimizer",
    "dp-shard": "sharding-group-size fsdp-group-size hsdp-group-size",
    "micro-batch": """micro-batch-size microbatch microbatch-size micro-bs mbs batch batch-size bs batchsize
        local-batch per-device-train-batch-size per-device-batch-size per-device-batch per-gpu-train-batch-size
        per-gpu-batch-size per-gpu-batch per-gpu-bs train-micro-batch-size-per-gpu micro-batch-size-per-gpu
        device-train-microbatch-size train-micro-batch-size micro-train-batch-size batch-size-per-gpu
        batch-size-per-device batch-per-gpu device-batch-size local-batch-size ppo-micro-batch-size-per-gpu
        per-rank-batch-size per-gpu-micro-batch-size per-device-micro-batch-size batch-per-device
        samples-per-gpu""",
    "global-batch": """global-batch-size gbs train-batch-size effective-batch-size global-train-batch-size
        effective-batch global-bs total-train-batch-size batch-size-global sequences-per-step""",
    "grad-accum": """gradient-accumulation-steps gradient-accumulation grad-accum-steps grad-accumulation
        grad-accumulation-steps grad-acc grad-acc-steps accumulation-steps accumulate-grad-batches gas ga-steps
        batch-accumulation-per-replica gradient-accumulation-iters accum-steps accumulate-steps update-freq
        gradient-accumulate-steps accumulate-gradients num-accumulation-steps""",
    "first-stage-layers": "decoder-first-pipeline-num-layers num-layers-in-first-pipeline-stage",
    "last-stage-layers": "decoder-last-pipeline-num-layers num-layers-in-last-pipeline-stage",
    "embedding-as-layer": "account-for-embedding-in-pipeline-split",
    "loss-as-layer": "account-for-loss-in-pipeline-split",
    "chunk-layers": "num-layers-per-virtual-pipeline-stage",
    "schedule": "pipeline-schedule pp-schedule pipeline-parallel-schedule pipeline-engine",
    "seq": """seq-len seq-length seqlen seq-size sequence sequence-length sequence-len max-seq max-seq-len
        max-seq-length max-seqlen max-sequence-length max-length max-len context context-length context-len
        context-size context-window max-context max-context-length ctx ctx-len ctx-size n-ctx cutoff-len
        max-model-len model-max-length block-size encoder-seq-length tokens-per-sequence max-tokens-per-sequence
        training.seq-len max-total-tokens packed-seq-len train-seq-len max-target-length tokens-per-sample
        sample-length""",
    "target-seq": "target-seq-len target-seq-length decoder-seq-length decoder-seq-len target-length max-target-len",
    "vocab-multiple": "make-vocab-size-divisible-by pad-vocab-size-multiple-of pad-to-multiple",
    "vocab": "vocab-size vocabulary-size vocabulary n-vocab num-tokens-in-vocab padded-vocab-size",
    "optimizer": "optim optimiser opt optimizer-type optim-type optimizer.name optimizer.type",
    "momentum": "sgd-momentum",
    "precision": "policy precision-policy dtype-policy training-precision",
    "dtype": """data-type number-format torch-dtype inference-dtype weights-dtype weight-dtype model-dtype
        load-dtype peak-dtype""",
    "cache-dtype": "kv-cache-dtype kv-dtype",
    "dropout": "dropout-prob dropout-rate hidden-dropout",
    "stack": "software software-stack",
    "framework": "training-framework trainer-framework library",
    "implementation": "impl model-implementation model-impl",
    "compile": "torch-compile use-compile use-torch-compile compile-model enable-compile torchcompile jit",
    "async-tp": "enable-async-tensor-parallel async-tensor-parallel",
    "lora-rank": "lora-r lora-dim peft-lora-rank adapter-rank lora.rank lora-matrix-rank",
    "quantized": """quantised quantize quantise quant quant-type quantization quantisation quantization-type
        bnb-4bit-quant-type base-quantization""",
    "freeze-layers": "num-frozen-layers n-frozen-layers freeze-n-layers num-layers-to-freeze",
    "ema": "use-ema ema-weights",
    "params": """parameters num-params n-params nparams num-parameters number-of-parameters n-parameters
        param-count parameter-count model-size model-params model-parameters size""",
    "active-params": "active-parameters activated-params activated-parameters num-active-params active",
    "tokens": """dataset-size dataset-tokens num-tokens n-tokens train-tokens training-tokens total-tokens
        token-count tokens-total data-tokens token-budget num-train-tokens num-training-tokens dataset data-size
        corpus-size""",
    "steps": """max-steps train-steps training-steps num-steps n-steps total-steps train-iters max-iters iters
        iterations num-iterations num-train-steps total-training-steps""",
    "samples": "num-samples n-samples train-samples dataset-samples num-train-samples examples num-examples",
    "epochs": "num-epochs n-epochs num-train-epochs max-epochs train-epochs",
    "mfu": """utilization utilisation efficiency flops-utilization flop-utilization model-flops-utilization
        model-flop-utilization target-mfu expected-mfu assumed-mfu hardware-utilization compute-efficiency""",
    "claimed-mfu": "reported-mfu stated-mfu",
    "within": "deadline time-limit max-time time duration max-duration time-budget target-time training-time wall-time",
    "time": "measured-time elapsed elapsed-time runtime",
    "budget": "max-cost cost-limit max-budget budget-usd usd dollars money total-budget max-price",
    "price": """cost-per-hour price-per-hour price-per-gpu-hour cost-per-gpu-hour cost-per-gpu price-per-gpu
        gpu-price gpu-cost gpu-hour-price gpu-hour-cost gpu-price-per-hour gpu-cost-per-hour hourly-rate
        hourly-cost hourly-price usd-per-gpu-hour usd-per-hour dollars-per-hour rental-price""",
    "tokens-per-second": """throughput tokens-per-sec tok-per-sec toks-per-sec tokens-s tok-s token-throughput
        train-tokens-per-second""",
    "tokens-per-second-per-gpu": """tps tgs tokens-per-gpu-per-second tokens-per-sec-per-gpu tps-per-gpu
        tokens-per-second-per-device tokens-per-gpu-per-sec""",
    "samples-per-second": "samples-per-sec sequences-per-second train-samples-per-second samples-s",
    "step-time": "iteration-time iter-time time-per-step time-per-iteration step-duration",
    "tflops": "tflops-per-gpu tflop-per-gpu tflops-per-device tflops-per-second-per-gpu achieved-tflops",
    "flops": "flop-convention flops-convention convention",
    "peak-flops": "peak gpu-flops gpu-peak-flops hardware-flops peak-flops-per-second",
    "memory-size": "gpu-memory gpu-mem gpu-ram vram gpu-memory-size device-memory hbm hbm-size",
    "memory-bandwidth": "hbm-bandwidth mem-bandwidth mem-bw memory-bw hbm-bw",
    "link-bandwidth": "nvlink-bandwidth intra-node-bandwidth intranode-bandwidth",
    "network-bandwidth": "inter-node-bandwidth internode-bandwidth ib-bandwidth network-bw nic-bandwidth",
    "tdp": "gpu-power power watts",
    "carbon-intensity": "co2-per-kwh carbon grid-intensity grid-carbon-intensity",
    "confidence": "interval confidence-level confidence-interval level",
    "document-lengths": "doc-lengths",
    "batch": "batch-size bs batchsize num-sequences sequences max-num-seqs max-batch-size concurrency num-seqs",
    "inference": "infer serve serving generate generation decode predict",
    "width": "hidden-size d-model hidden-dim dim n-embd",
    "widths": "layer-widths layer-sizes hidden-sizes",
    "depth": "num-layers n-layers n-layer layers num-hidden-layers",
    "layers": "num-layers n-layers n-layer num-hidden-layers",
    "fan-in": "in-features",
    "write-bandwidth": "storage-bandwidth disk-bandwidth write-speed",
    "hardware-file": "hardware-spec hardware-specs hardware-config gpu-file hardware-yaml",
    "must-fit": "require-fit assert-fits fail-if-not-fit",
    "output": "out outfile output-file output-path save save-to",
    "plot": "chart figure graph plot-file save-plot",
    "objective": "optimize-for goal",
    "rows": "top top-k limit-rows num-rows max-rows",
    "run": "run-file runfile",
    "search": "filter query grep find contains",
    "files": "file",
    "quiet": "silent",
    "verbose": "details full-output",
    "run-kind": "kind-of-run",
    "model": """model-name model-id model-path model-name-or-path pretrained-model-name-or-path pretrained-model
        pretrained base-model hf-model hf-model-id hf-path model-config config config-file config-json arch
        architecture repo-id checkpoint-dir model-type params parameters num-params n-params num-parameters
        model-size size""",
    "optimizer-name": "optimizer optim name",
    "accelerator": "hardware gpu gpu-type gpu-name device name",
    "size": "shape dims dimensions",
    "value": "number",
}
"""Option → names that mean the same and take the same value. A name listed under several options means the first of
them that the command has."""

_SHARDED = "--zero 3 --dp-shard N: shard within groups of N GPUs, replicate between them"
_POLICIES = "--precision bf16-mixed (fp32 master weights), amp-bf16 (fp32 weights, autocast) or bf16-pure"
_HALF = "--precision fp16-mixed: fp16 weights, fp32 master weights and moments"
_QLORA = "--quantized nf4 --lora-rank 16: state the rank"
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
_FLASH = {"": "--attention flash", "false": "--attention eager", "fa2": "--attention flash", "fa3": "--attention flash"}
_SDPA = "!--attention flash (what sdpa picks for bf16 and a causal mask), efficient or cudnn"
_ATTENTION = {
    "flash": "--attention flash",
    "flash-attention": "--attention flash",
    "flash-attention-2": "--attention flash",
    "flash-attention-3": "--attention flash",
    "flash-attn": "--attention flash",
    "flash-attn-2": "--attention flash",
    "fa2": "--attention flash",
    "fa3": "--attention flash",
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
_FOUR_BITS = {"": "--quantized nf4", "false": ""}
_LORA = {
    "": "!--lora-rank 16: state the rank",
    "false": "",
    "#": "--lora-rank {}",
    "lora": "!--lora-rank 16: state the rank",
    "qlora": f"!{_QLORA}",
    "full": "",
    "none": "",
    "*": "!--lora-rank 16 trains LoRA matrices; everything is trained without it",
}
_STEPS = "--tokens: steps × global batch × sequence length"
_OFFLOAD = {"": "--offload {what}", "true": "--offload {what}", "cpu": "--offload {what}", "false": "", "none": ""}
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
    "lora use-lora peft use-peft use-lora-adapters adapter adapter-type finetuning-type train-type tuner-type": _LORA,
    "qlora use-qlora": {"": f"!{_QLORA}", "#": "--quantized nf4 --lora-rank {}", "false": ""},
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
    "days": {"*": "--within {}d"},
    "hours": {"*": "--within {}h"},
    "weeks": {"*": "--within {}w"},
    "minutes": {"*": "--within {}min"},
    "years": {"*": "--within {}y"},
    "months month": {"*": "!--within 30d: a month's length in days"},
    "seconds-per-step sec-per-step step-seconds seconds-per-iteration": {"*": "--step-time {}s"},
    "step-time-ms ms-per-step elapsed-time-per-iteration iteration-time-ms": {"*": "--step-time {}ms"},
    "peak-tflops gpu-tflops hardware-tflops": {"*": "--peak-flops {}TFLOP/s"},
    "vram-gb gpu-memory-gb memory-gb gpu-mem-gb": {"*": "--memory-size {}GB"},
    "gpu-memory-utilization": {"*": "!--memory-size: the bytes that may be used of one GPU"},
    "chinchilla chinchilla-optimal compute-optimal": {"": "!--tokens {twenty}: about 20 tokens for each parameter"},
    "total-batch-size tokens-per-batch tokens-per-step batch-tokens global-batch-tokens batch-size-in-tokens "
    "global-batch-size-tokens tokens-per-iter": {
        "*": "!--global-batch counts sequences: the tokens of a step over the sequence length"
    },
    "mini-batch mini-batch-size minibatch minibatch-size": {
        "*": "!--micro-batch (one pass of one GPU) or --global-batch (one optimizer step)"
    },
    "steps max-steps train-steps training-steps num-steps n-steps total-steps train-iters max-iters iters iterations "
    "num-iterations num-train-steps total-training-steps training.steps": {"*": f"!{_STEPS}"},
    "epochs num-epochs n-epochs num-train-epochs max-epochs train-epochs epoch": {
        "*": "!--tokens {repeated}: the tokens of all epochs together"
    },
    "samples num-samples n-samples train-samples dataset-samples examples num-examples": {
        "*": "!--tokens: the samples times the tokens of one"
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
    f"ulysses {SAME['ulysses']}": {"*": "!--cp N shards the sequence; --sp belongs to tensor parallelism"},
}
"""Spellings with another form of value → {what follows: what it means}. What follows: nothing (""; also `true`), a
word, `#` a number, `*` anything (`*3*`: anything with a 3 in it), `{}` in the meaning stands for it. A meaning is other
options, or after `!` the hint of a refusal."""

VALUES: dict[str, Mapping[str, str]] = {
    "max": {"gpus": "--min gpus finds the fewest, and napkin plan the layout", "batch": "--max micro-batch"},
    "min": {"micro-batch": "--max micro-batch finds the largest", "seq": "--max seq finds the longest"},
    "precision": {"bf16": _POLICIES, "bfloat16": _POLICIES, "fp16": _HALF, "bf16-true": "--precision bf16-pure"},
}
"""Option → values that it does not have, and the hint."""

INSTEAD = {"micro-batch": "batch", "quantized": "dtype"}
"""Where a model serves, a batch is the sequences in flight, and a quantization the format of its weights."""

CHANGES_NOTHING = {
    "learning rate": """lr:1 learning-rate:1 min-lr:1 max-lr:1 lr-scheduler:1 lr-scheduler-type:1
        lr-decay-style:1 lr-decay-iters:1 lr-decay-samples:1 lr-warmup-iters:1 lr-warmup-fraction:1
        lr-warmup-samples:1 warmup:1 warmup-steps:1 warmup-ratio:1 warmup-iters:1 lr-wsd-decay-style:1
        lr-wsd-decay-iters:1 decay-lr:0 lr-warmup-init:1 override-opt-param-scheduler:0
        use-checkpoint-opt-param-scheduler:0""",
    "optimizer's constants": """weight-decay:1 wd:1 start-weight-decay:1 end-weight-decay:1
        weight-decay-incr-style:1 adam-beta1:1 adam-beta2:1 adam-eps:1 adam-epsilon:1 beta1:1 beta2:1 betas:1
        eps:1 clip-grad:1 grad-clip:1 max-grad-norm:1 gradient-clipping:1 init-method-std:1 loss-scale:1
        initial-loss-scale:1 min-loss-scale:1 loss-scale-window:1 hysteresis:1 lora-alpha:1 lora-scaling:1
        label-smoothing:1 norm-epsilon:1 layernorm-epsilon:1 moe-aux-loss-coeff:1 moe-z-loss-coeff:1
        rotary-base:1 rope-theta:1 rotary-percent:1 rope-scaling-factor:1 use-rope-scaling:0
        use-rotary-position-embeddings:0 attention-softmax-in-fp32:0 no-rope-fusion:0
        exit-on-missing-checkpoint:0 apply-layernorm-1p:0""",
    "seed": "seed:1 random-seed:1 data-seed:1 data-parallel-random-init:0 deterministic-mode:0",
    "data": """data-path:* data-paths:* train-data-path:* valid-data-path:* test-data-path:* data-cache-path:1
        split:1 data-impl:1 dataset-name:1 dataset-path:1 train-file:1 validation-file:1 tokenizer-type:1
        tokenizer-model:1 tokenizer-name-or-path:1 tokenizer:1 vocab-file:1 merge-file:1 vocab-extra-ids:1
        num-workers:1 dataloader-type:1 dataloader-num-workers:1 reset-position-ids:0 reset-attention-mask:0
        eod-mask-loss:0 mock-data:0 no-create-attention-mask-in-dataloader:0 no-mmap-bin-files:0
        num-dataset-builder-threads:1 data-args-path:1 per-split-data-args-path:1 max-train-samples:1
        preprocessing-num-workers:1 streaming:0 shuffle:0 overwrite-cache:0 template:1""",
    "evaluation": """eval-iters:1 eval-interval:1 eval-steps:1 eval-strategy:1 evaluation-strategy:1
        eval-batch-size:1 per-device-eval-batch-size:1 do-eval:0 do-train:0 full-validation:0 skip-train:0""",
    "logging": """log-interval:1 logging-steps:1 logging-dir:1 tensorboard-dir:1 tensorboard-log-interval:1
        tensorboard-queue-size:1 wandb-project:1 wandb-exp-name:1 wandb-save-dir:1 wandb-entity:1
        wandb-run-name:1 wandb:0 run-name:1 report-to:1 log-throughput:0 log-progress:0 log-params-norm:0
        log-num-zeros-in-grad:0 log-timers-to-tensorboard:0 log-memory-to-tensorboard:0
        log-validation-ppl-to-tensorboard:0 log-world-size-to-tensorboard:0 no-log-loss-scale-to-tensorboard:0
        log-batch-size-to-tensorboard:0 timing-log-level:1 timing-log-option:1 log-level:1 logging-level:1
        log-straggler:0 disable-tqdm:0 log-max-attention-logit:0 barrier-with-L1-time:0
        no-barrier-with-level-1-timing:0""",
    "files of checkpoints": """save:1 load:1 save-interval:1 save-steps:1 save-strategy:1 save-total-limit:1
        save-retain-interval:1 output-dir:1 ckpt-format:1 ckpt-dir:1 checkpoint-path:1 resume-from-checkpoint:1
        dist-ckpt-format:1 async-save:0 finetune:0 no-load-optim:0 no-load-rng:0 no-save-optim:0 no-save-rng:0
        exit-interval:1 exit-duration-in-mins:1 exit-signal-handler:0 use-dist-ckpt:0 auto-detect-ckpt-format:0
        ckpt-fully-parallel-load:0 ckpt-fully-parallel-save:0 ckpt-assume-constant-structure:0
        use-checkpoint-args:0 overwrite-output-dir:0 push-to-hub:0 hub-model-id:1""",
    "how files are loaded": "trust-remote-code:0 use-cache:0 low-cpu-mem-usage:0 revision:1 cache-dir:1 hf-token:1",
    "launcher": """master-addr:1 master-port:1 node-rank:1 machine-rank:1 main-process-ip:1 main-process-port:1
        rdzv-backend:1 rdzv-endpoint:1 rdzv-id:1 local-rank:1 rank:1 max-restarts:1 standalone:0 tee:1
        redirects:1 log-dir:1 distributed-backend:1 distributed-timeout-minutes:1 ddp-timeout:1 local-addr:1
        hostfile:1 include:1 exclude:1 ddp-backend:1 nccl-communicator-config-path:1 role:1""",
}
"""What changes neither memory nor time → its option names in other tools, each with the number of values after it."""

MEGATRON = """tensor-model-parallel-size pipeline-model-parallel-size expert-model-parallel-size
    expert-tensor-parallel-size num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank
    use-distributed-optimizer num-query-groups group-query-attention ffn-hidden-size swiglu num-attention-heads
    untie-embeddings-and-output-weights disable-bias-linear position-embedding-type normalization
    make-vocab-size-divisible-by transformer-impl use-mcore-models recompute-granularity train-iters
    train-samples moe-router-topk overlap-grad-reduce overlap-param-gather hidden-dropout attention-dropout
    lr-decay-style no-gradient-accumulation-fusion decoder-first-pipeline-num-layers
    decoder-last-pipeline-num-layers account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split
    accumulate-allreduce-grads-in-fp32"""
"""Names of Megatron-LM's options that no other tool has: a line that holds one was pasted from a Megatron launch."""

MEGATRON_MEANS: dict[str, Mapping[str, str]] = {
    "bf16": {"": "--precision param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"},
    "fp16": {"": "--precision fp16-mixed"},
    "fp8-format fp8": {"*": "--precision fp8-mixed"},
    "optimizer": {"sgd": "--optimizer sgd-momentum", "adam": "--optimizer adamw", "*": "--optimizer {}"},
    "attention-backend": {"flash": "--attention flash", "fused": "--attention cudnn", "unfused": "--attention eager"},
}
"""What Megatron-LM means by some names that mean something else, or nothing exact, elsewhere."""

MEGATRON_UNUSED = """use-mcore-models:0 use-legacy-models:0 transformer-impl:1 overlap-grad-reduce:0
    overlap-param-gather:0 overlap-param-gather-with-optimizer-step:0 no-gradient-accumulation-fusion:0
    accumulate-allreduce-grads-in-fp32:0 no-masked-softmax-fusion:0 no-bias-gelu-fusion:0
    no-bias-swiglu-fusion:0 no-bias-dropout-fusion:0 no-persist-layer-norm:0
    no-async-tensor-model-parallel-allreduce:0 tp-comm-overlap:0 defer-embedding-wgrad-compute:0 manual-gc:0
    manual-gc-interval:1 use-flash-attn:0 train-iters:1 train-samples:1 cross-entropy-loss-fusion:0
    moe-grouped-gemm:0 moe-permute-fusion:0 moe-token-dispatcher-type:1 moe-router-load-balancing-type:1
    moe-router-dtype:1 moe-router-pre-softmax:0 moe-router-score-function:1 moe-router-bias-update-rate:1
    moe-router-enable-expert-bias:0 attention-dropout:1 recompute-method:1 recompute-num-layers:1
    fp8-amax-history-len:1 fp8-amax-compute-algo:1 fp8-margin:1 fp8-recipe:1 max-position-embeddings:1
    init-method-xavier-uniform:0 empty-unused-memory-level:1 use-pytorch-profiler:0 profile:0
    profile-step-start:1 profile-step-end:1 profile-ranks:* rerun-mode:1 enable-ft-package:0
    distribute-saved-activations:0 ddp-bucket-size:1 ddp-average-in-collective:0 use-tp-pp-dp-mapping:0
    delay-grad-reduce:0 check-for-nan-in-loss-and-grad:0 no-check-for-nan-in-loss-and-grad:0
    use-cpu-initialization:0 no-initialization:0 tiktoken-pattern:1 calculate-per-token-loss:0 sgd-momentum:1
    te-rng-tracker:0 mscale:1"""
"""Megatron-LM's options that napkin does not model or need, each with the number of values that follow."""

SHAPE = """num-layers:1 hidden-size:1 ffn-hidden-size:1 num-attention-heads:1 num-query-groups:1 kv-channels:1
    group-query-attention:0 swiglu:0 squared-relu:0 untie-embeddings-and-output-weights:0 disable-bias-linear:0
    add-qkv-bias:0 position-embedding-type:1 normalization:1 qk-layernorm:0 num-experts:1 moe-router-topk:1
    moe-ffn-hidden-size:1 moe-shared-expert-intermediate-size:1 moe-layer-freq:1 vocab-size:1
    padded-vocab-size:1 multi-latent-attention:0"""
"""Megatron-LM's options that state the model's shape."""


def others(table: str) -> dict[str, str]:
    """Return name → number of values (`0`, `1`, `*`) of a table written as `name:number`."""
    return {name: values for word in table.split() for name, _, values in (word.partition(":"),)}


def named(spelling: str, taken: Container[str]) -> str | None:
    """Return the first option among `taken` that people call by this name."""
    for name, spellings in SAME.items():
        if name in taken and spelling in spellings.split():
            return name
    return None


def meanings(spelling: str, table: Mapping[str, Mapping[str, str]] = MEANS) -> Mapping[str, str] | None:
    """Return what a spelling with another form of value means, by what follows it."""
    return next((means for names, means in table.items() if spelling in names.split()), None)


def needless(spelling: str) -> str | None:
    """Return what an option of another tool states that changes neither memory nor time."""
    return next((what for what, names in CHANGES_NOTHING.items() if spelling in others(names)), None)
