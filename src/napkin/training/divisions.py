"""What libraries divide over ranks on the frameworks of transformers' models."""

from __future__ import annotations

from napkin.record import replace
from napkin.training.framework import Divisions
from napkin.training.trainer import Backend

UNDIVIDED = Divisions(zero=(0,), tensor=(), context=(), heads=(), staged=False)
"""Every rank holds a whole model and whole sequences."""

WHOLE = Divisions(zero=(0,), tensor=(0,), alone=True, context=(), heads=(), staged=False)
"""torch's own data parallelism next to transformers' models: tensor-parallel ranks only without data-parallel ones
(accelerate 1.15 parallelism_config.py: tp_size next to dp_replicate_size needs dp_shard_size); keys are passed on under
FSDP2 only (accelerator.py, maybe_context_parallel)."""
ON_DEEPSPEED = Divisions(tensor=(0, 1, 2), context=(), staged=False)
"""DeepSpeed in transformers' Trainer: AutoTP up to ZeRO-2 (deepspeed/runtime/engine.py,
_configure_tensor_parallel_states; transformers 5.23 trainer.py, get_tp_size: autotp_size), sequence parallelism that
exchanges heads (accelerate 1.15 parallelism_config.py: sp_backend deepspeed)."""
ON_FSDP2 = Divisions(zero=(0, 2, 3), tensor=(2, 3), context=(2, 3), heads=(), staged=False)
"""fully_shard in transformers' Trainer: tensor-parallel ranks by the class's tp_plan, and context-parallel ranks that
pass keys on (accelerate 1.15 parallelism_config.py: tp_size, cp_size; cp_backend torch)."""
ON_FSDP1 = replace(ON_FSDP2, tensor=(), context=())
"""FullyShardedDataParallel there, next to which accelerate rejects other ranks (parallelism_config.py,
_validate_accelerator: "only compatible DistributedType.FSDP (version 2)")."""
SHARDED = Backend("deepspeed", ON_DEEPSPEED, implied=(1, 2, 3))
"""DeepSpeed where libraries call its stages ZeRO, and FSDP's by other names: transformers 5.23
integrations/deepspeed.py, zero_optimization; trl/accelerate_configs/zero{1,2,3}.yaml next to fsdp{1,2}.yaml;
LLaMA-Factory examples/deepspeed/ds_z{0,2,3}_config.json; ms-swift --deepspeed zero{1,2,3}."""
TRANSFORMERS = (Backend("plain", WHOLE), SHARDED, Backend("fsdp", ON_FSDP2, first=ON_FSDP1))
"""The backends of transformers' Trainer."""
MEGATRON = Backend("megatron-core")
