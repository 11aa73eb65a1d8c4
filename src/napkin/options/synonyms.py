"""How people spell napkin's options: their own names for them, and the option names of other tools.

Names are those of Megatron-LM, DeepSpeed, accelerate, torchrun, Hugging Face's Trainer and TRL, axolotl, LLaMA-Factory,
torchtitan, torchtune, NeMo, nanotron, nanoGPT, litgpt, vLLM and slurm, in lowercase with dashes. A spelling that means
exactly what one of napkin's options means is read as that option; another is refused with a hint that begins with the
option to use. Loaded only if a line holds a name that its command does not have.
"""

from __future__ import annotations

from collections.abc import Container

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
    "zero": """zero-stage stage zero-optimization-stage zero-optimization.stage zero-level deepspeed-stage ds-stage
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
    "framework": "training-framework trainer-framework",
    "trainer": "training-library finetuning-library library",
    "implementation": "impl model-implementation model-impl",
    "compile": "torch-compile use-compile use-torch-compile compile-model enable-compile torchcompile jit",
    "async-tp": "enable-async-tensor-parallel async-tensor-parallel",
    "async-ep": "overlap-moe-expert-parallel-comm moe-a2a-overlap a2a-overlap",
    "dispatcher": "moe-token-dispatcher-type moe-flex-dispatcher-backend token-dispatcher",
    "lora-dropout": "lora-dropout-p peft-lora-dropout adapter-dropout lora.dropout",
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
        iterations num-iterations num-train-steps total-training-steps training.steps""",
    "samples": "num-samples n-samples train-samples dataset-samples num-train-samples examples num-examples",
    "epochs": "num-epochs n-epochs num-train-epochs max-epochs train-epochs epoch",
    "packing": "packed sample-packing use-packing neat-packing sequence-packing dataset-packing",
    "sample-tokens": "mean-sample-tokens avg-sample-tokens average-sample-tokens tokens-per-example",
    "tokens-field": "ids-field input-ids-field tokens-column token-field length-field",
    "mfu": """utilization utilisation efficiency flops-utilization flop-utilization model-flops-utilization
        model-flop-utilization target-mfu expected-mfu assumed-mfu hardware-utilization compute-efficiency""",
    "claimed-mfu": "reported-mfu stated-mfu",
    "within": "deadline time-limit max-time time duration max-duration time-budget target-time training-time wall-time",
    "time": "measured-time elapsed elapsed-time runtime",
    "budget": "max-cost cost-limit max-budget budget-usd usd dollars money total-budget max-price",
    "price": """cost-per-hour price-per-hour price-per-gpu-hour cost-per-gpu-hour cost-per-gpu price-per-gpu
        gpu-price gpu-cost gpu-hour-price gpu-hour-cost gpu-price-per-hour gpu-cost-per-hour hourly-rate
        hourly-cost hourly-price usd-per-gpu-hour usd-per-hour dollars-per-hour rental-price spot-price
        on-demand-price""",
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
    "snapshot": "measured measured-memory peak-memory memory-snapshot",
    "batch": "batch-size bs batchsize num-sequences sequences max-num-seqs max-batch-size concurrency num-seqs",
    "inference": "infer serve serving generate generation decode predict",
    "width": "hidden-size d-model hidden-dim dim n-embd",
    "widths": "layer-widths layer-sizes hidden-sizes",
    "depth": "num-layers n-layers n-layer layers num-hidden-layers",
    "layers": "num-layers n-layers n-layer num-hidden-layers",
    "fan-in": "in-features width hidden-size d-model",
    "compute": "compute-budget flop-budget flops-budget training-flops training-compute total-compute flops",
    "law": "scaling-law",
    "against": "vs versus with other other-side to",
    "prompt-tokens": """input-tokens input-len input-length isl prompt-len prompt-length max-input-tokens
        input-sequence-length mean-input-tokens""",
    "max-response-tokens": """max-completion-length max-response-length max-completion-tokens generate-max-len
        max-generation-length response-length-max max-resp-len""",
    "max-prompt-tokens": "max-prompt-length prompt-max-len prompt-length-max",
    "samples-per-prompt": """num-generations num-generations-per-prompt generations-per-prompt n-samples-per-prompt
        num-samples-per-prompt samples-per-question rollout-n rollout.n group-size num-return-sequences
        answers-per-prompt responses-per-prompt""",
    "rollout-tp": "vllm-tensor-parallel-size rollout-tensor-parallel-size vllm-tp",
    "reward": "reward-model reward-model-path reward-model-name reward-pretrain",
    "critic": "value-model critic-model critic-pretrain critic-model-path value-model-name",
    "reference": "ref-model reference-model ref ref-model-path ref-pretrain",
    "on-policy": "lmbda on-policy-share on-policy-fraction",
    "updates": "num-mini-batches updates-per-step",
    "response-tokens": """output-tokens output-len output-length osl max-new-tokens gen-len gen-tokens
        output-sequence-length mean-output-tokens answer-tokens""",
    "concurrency": "max-concurrency in-flight concurrent-requests num-concurrent users",
    "engine": "backend serving-engine inference-engine",
    "memory-share": "gpu-memory-utilization mem-fraction-static free-gpu-memory-fraction kv-cache-share",
    "max-tpot": "tpot itl max-itl tpot-limit",
    "max-ttft": "ttft ttft-limit",
    "served-tokens": "inference-tokens tokens-served serving-tokens lifetime-tokens",
    "unique-tokens": "distinct-tokens different-tokens dataset-tokens data-tokens unique-data",
    "restart-time": "time-to-restart recovery-time",
    "spares": "spare-gpus hot-spares",
    "write-bandwidth": "storage-bandwidth disk-bandwidth write-speed",
    "hardware-file": "hardware-spec hardware-specs hardware-config gpu-file hardware-yaml",
    "must-fit": "require-fit assert-fits fail-if-not-fit",
    "output": "out outfile output-file output-path save-to",
    "plot": "chart figure graph plot-file save-plot",
    "objective": "optimize-for goal",
    "rows": "top top-k limit-rows num-rows max-rows",
    "run": "run-file runfile",
    "search": "filter query grep find contains",
    "files": "file",
    "quiet": "silent",
    "verbose": "details full-output",
    "run-kind": "kind-of-run",
    "init": "template starter",
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

VAGUE = {"micro-batch": (("batch", "batch-size", "bs", "batchsize"), "is per GPU")}
"""Option → names that others give to another one too, and how they are read, which is said."""
INSTEAD = {"micro-batch": "batch", "quantized": "dtype"}
"""Where a model serves, a batch is the sequences in flight, and a quantization the format of its weights."""


def reading(name: str, spelling: str) -> list[str]:
    """Return how an option is read, in words, if others give its spelling to another option too."""
    names, said = VAGUE.get(name, ((), ""))
    return [f"{spelling} {said}"] if spelling.lstrip("-") in names else []


def named(spelling: str, taken: Container[str]) -> str | None:
    """Return the first option among `taken` that people call by this name."""
    for name, spellings in SAME.items():
        if name in taken and spelling in spellings.split():
            return name
    return None
