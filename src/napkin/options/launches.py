"""Options of launch lines that napkin does not have: what changes neither memory nor time, and Megatron-LM's own."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.options.training import GRADIENTS, PARAMETERS_TOO

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
        rdzv-backend:1 rdzv-endpoint:1 rdzv-id:1 local-rank:1 max-restarts:1 standalone:0 tee:1
        redirects:1 log-dir:1 distributed-backend:1 distributed-timeout-minutes:1 ddp-timeout:1 local-addr:1
        hostfile:1 include:1 exclude:1 ddp-backend:1 nccl-communicator-config-path:1 role:1""",
}
"""Settings that change neither memory nor time → their option names in other tools, each with its number of values."""

TRAINING_ARGUMENTS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "max_steps",
    "gradient_checkpointing",
    "learning_rate",
    "bf16",
    "per_device_batch_size",
)
"""Fields of transformers' TrainingArguments by which a launch of its Trainer is told."""
MEGATRON = """tensor-model-parallel-size pipeline-model-parallel-size expert-model-parallel-size
    expert-tensor-parallel-size num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank
    use-distributed-optimizer num-query-groups group-query-attention ffn-hidden-size swiglu num-attention-heads
    untie-embeddings-and-output-weights disable-bias-linear position-embedding-type normalization
    make-vocab-size-divisible-by transformer-impl use-mcore-models recompute-granularity recompute-modules train-iters
    train-samples moe-router-topk overlap-grad-reduce overlap-param-gather hidden-dropout attention-dropout
    lr-decay-style no-gradient-accumulation-fusion decoder-first-pipeline-num-layers
    decoder-last-pipeline-num-layers account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split
    accumulate-allreduce-grads-in-fp32 mtp-num-layers"""
"""Names of Megatron-LM's options that no other tool has: a line that holds one was pasted from a Megatron launch."""

MEGATRON_MEANS: dict[str, Mapping[str, str]] = {
    "bf16": {"": "--precision param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"},
    "fp16": {"": "--precision fp16-mixed"},
    "fp8-format fp8": {"*": "--precision fp8-mixed"},
    "optimizer": {"sgd": "--optimizer sgd-momentum", "adam": "--optimizer adamw", "*": "--optimizer {}"},
    "no-gradient-accumulation-fusion": {"": "--separate-gradients"},
    "attention-backend": {"flash": "--attention flash", "fused": "--attention cudnn", "unfused": "--attention eager"},
}
"""What Megatron-LM means by some names that mean something else, or nothing exact, elsewhere."""

OVERLAPS = {"overlap-grad-reduce": GRADIENTS, "overlap-param-gather": PARAMETERS_TOO}
"""Megatron-core's settings of what data parallelism overlaps with compute → the value of --async-dp; the second needs
the first (megatron/training/arguments.py, validate_args)."""

MEGATRON_AMOUNT = {"train-iters": "steps", "train-samples": "samples"}
"""Megatron-LM's options for the length of a run → options of the commands about a whole run; a sample is one sequence,
filled from several documents."""

MEGATRON_UNUSED = """use-mcore-models:0 use-legacy-models:0 transformer-impl:1 overlap-grad-reduce:0
    overlap-param-gather:0 overlap-param-gather-with-optimizer-step:0
    accumulate-allreduce-grads-in-fp32:0 no-masked-softmax-fusion:0 no-bias-gelu-fusion:0
    no-bias-swiglu-fusion:0 no-bias-dropout-fusion:0 no-persist-layer-norm:0
    no-async-tensor-model-parallel-allreduce:0 tp-comm-overlap:0 defer-embedding-wgrad-compute:0 manual-gc:0
    manual-gc-interval:1 use-flash-attn:0 train-iters:1 train-samples:1 cross-entropy-loss-fusion:0
    moe-grouped-gemm:0 moe-permute-fusion:0 moe-router-load-balancing-type:1
    moe-router-dtype:1 moe-router-pre-softmax:0 moe-router-score-function:1 moe-router-bias-update-rate:1
    moe-router-enable-expert-bias:0 attention-dropout:1 recompute-method:1 recompute-num-layers:1
    fp8-amax-history-len:1 fp8-amax-compute-algo:1 fp8-margin:1 fp8-recipe:1 max-position-embeddings:1
    init-method-xavier-uniform:0 empty-unused-memory-level:1 use-pytorch-profiler:0 profile:0
    profile-step-start:1 profile-step-end:1 profile-ranks:* rerun-mode:1 enable-ft-package:0
    distribute-saved-activations:0 ddp-bucket-size:1 ddp-average-in-collective:0 use-tp-pp-dp-mapping:0
    delay-grad-reduce:0 check-for-nan-in-loss-and-grad:0 no-check-for-nan-in-loss-and-grad:0
    use-cpu-initialization:0 no-initialization:0 tiktoken-pattern:1 calculate-per-token-loss:0 sgd-momentum:1
    te-rng-tracker:0 mscale:1 mtp-loss-scaling-factor:1"""
"""Megatron-LM's options that napkin does not model or need, each with the number of values that follow."""

SHAPE = """num-layers:1 hidden-size:1 ffn-hidden-size:1 num-attention-heads:1 num-query-groups:1 kv-channels:1
    group-query-attention:0 swiglu:0 squared-relu:0 untie-embeddings-and-output-weights:0 disable-bias-linear:0
    add-qkv-bias:0 position-embedding-type:1 normalization:1 qk-layernorm:0 num-experts:1 moe-router-topk:1
    moe-ffn-hidden-size:1 moe-shared-expert-intermediate-size:1 moe-layer-freq:1 vocab-size:1
    padded-vocab-size:1 multi-latent-attention:0 q-lora-rank:1 kv-lora-rank:1 qk-head-dim:1 qk-pos-emb-head-dim:1
    v-head-dim:1 moe-shared-expert-gate:0 mtp-num-layers:1"""
"""Megatron-LM's options that state the model's shape."""


def others(table: str) -> dict[str, str]:
    """Return name → number of values (`0`, `1`, `*`) of a table written as `name:number`."""
    return {name: values for word in table.split() for name, _, values in (word.partition(":"),)}


def needless(spelling: str) -> str | None:
    """Return the setting behind an option of another tool if it changes neither memory nor time."""
    return next((what for what, names in CHANGES_NOTHING.items() if spelling in others(names)), None)
