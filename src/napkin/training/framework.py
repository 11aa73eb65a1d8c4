"""The record of a training framework: which tensors its code keeps, and its defaults."""

from __future__ import annotations

from napkin.operations.implementations import HUGGING_FACE, Implementation
from napkin.options.training import CORE_ATTENTION
from napkin.record import record, replace
from napkin.training.precision import Precision

EVEN, FRONT, SLOTS, COST = "even", "front", "slots", "cost"
FSDP = ("fsdp-eager", "fsdp-compiled")
"""The stacks of PyTorch FSDP without and with torch.compile (evidence/software/stacks.py)."""
WORST, FIRST, ENDS = "worst", "first", "ends"
COMPUTE = "compute"


@record
class Edition:
    """A change in a framework, from year and month `since` on (202504 is April 2025).

    loss      its cross entropy (operations/losses.py)
    compiled  its cross entropy if the step is compiled
    divided   its cross entropy with a vocabulary divided over tensor-parallel ranks; "": the framework's
    """

    since: int
    loss: str
    compiled: str
    source: str
    divided: str = ""


@record
class Earlier:
    """Fields of a `Framework` in its code before a year and month (202508)."""

    before: int
    differs: tuple[tuple[str, object], ...]
    source: str


COMPILED: tuple[tuple[str, object], ...] = (
    ("norms", "fused"),
    ("swiglu", "fused"),
    ("written", False),
    ("prunes", True),
)
"""Fields of an `Implementation` under torch.compile, which recomputes elementwise chains in the backward pass from the
inputs of matmuls and norms (torch/_functorch/partitioners.py, min_cut_rematerialization_partition)."""


ANY = (0, 1, 2, 3)
"""All ZeRO stages."""


@record
class Divisions:
    """What software divides over ranks. The ranks of a kind are named by the ZeRO stages with which they exist.

    zero     ZeRO stages
    tensor   tensor-parallel ranks        alone    they exist only without data-parallel ranks
    context  context-parallel ranks that pass keys and values on        heads  those that exchange heads for tokens
    staged   pipeline stages of layers
    """

    zero: tuple[int, ...] = ANY
    tensor: tuple[int, ...] = ANY
    alone: bool = False
    context: tuple[int, ...] = ANY
    heads: tuple[int, ...] = ANY
    staged: bool = True

    def of(self, name: str, ulysses: bool) -> tuple[int, ...]:
        """Return the ZeRO stages with which there are several ranks of a degree, tp or cp."""
        if name == "tp":
            return self.tensor
        return self.heads if ulysses else self.context


@record
class Framework:
    """A training framework: the tensors that it keeps, and its defaults.

    implementation  key of its implementation of models (implementations.py)
    attention     its default attention kernel
    dropout       its default dropout
    partition     how layers are assigned to pipeline stages. even: as evenly as possible, earlier ones get more ·
                  front: ⌈L/p⌉ each, the last gets the rest · slots: embedding and head count as one layer each · cost:
                  by equal shares of the matrix weights of blocks and head
    accumulator   bytes per element of a buffer that accumulates gradients, in addition to the gradients
    step_bytes    bytes per element that the optimizer step allocates for its own shard (fp32 gradients, flat copies)
    step_most     most elements that ZeRO-3 updates at once, 0: all
    bucket        elements of the bucket for gradient reduction, in the dtype of accumulation
    masters       its optimizer keeps fp32 master copies of 16-bit weights, whatever library runs on it
    host_step     it has a kernel of its own that updates states on the host
    reducer       torch's DistributedDataParallel reduces gradients that each rank holds whole: its buckets are a second
                  copy of them all, which lives as long as the model (torch/csrc/distributed/c10d/reducer.cpp,
                  initialize_buckets; torch/nn/parallel/distributed.py, gradient_as_bucket_view: False by default)
    bucket_of_width  ZeRO-3's bucket has as many elements as a square matrix of the model's width
    interleaves   ZeRO-3 copies a full bucket, so that each rank's parts lie together, before it reduces and scatters it
    wide_gradients  gradients of 16-bit parameters are fp32, in one buffer that lives through the step
    keeps_shards  the own part of ZeRO-3's gradients is one buffer, made with the optimizer, that is never freed
    autocasts     a compiler inserts casts of fp32 weights into the layers: gradients are 16-bit, as what it casts to
    wide_copies   bytes per element of copies of all 16-bit gradients that the optimizer step makes before it updates
    planned       a compiler assigns addresses to the tensors of a whole step when it is compiled, without a
                  cache; communicators are made as operations need them, and stages pass tensors on without one
    gathers       parameters are sharded in fp32 and cast as they are gathered: layers run in the compute dtype
    ends_apart    embedding and head are separate FSDP units, gathered one at a time, and neither while layers run
                  backward
    root_last     embedding, final norm and head are FSDP's root unit, whose gradients stay unsharded until the backward
                  pass is over (accelerate utils/dataclasses.py, set_auto_wrap_policy: TRANSFORMER_BASED_WRAP wraps the
                  blocks; torch/distributed/fsdp/_fully_shard/_fsdp_state.py, _root_post_backward_final_callback)
    reduced_in    format in which fully_shard copies a block's gradients for their reduction, compute for that in which
                  they were computed; "" if nothing copies them, as in FSDP's first version, which reduces the flat
                  gradient. The copy stays until the next block's is made
                  (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, reduce_scatter_states)
    at_loss       blocks whose parameters are still gathered at the loss. 2: as many as in the passes, where nothing is
                  known · 0: all are freed after their forward pass, and the buffer of the last gather after the
                  root's (reshard_after_forward of fully_shard, torch/distributed/fsdp/_fully_shard/_fsdp_state.py,
                  _post_forward; FULL_SHARD of its predecessor, _runtime_utils.py, _post_forward_reshard)
    keeps_stage   with a pipeline the stage's parameters stay gathered and its gradients unsharded
    unsynced      gradients of a layer's flat parameter, with its frozen weights, stay unsharded until the last
                  micro-batch
    defers        gradients stay unsharded, as they are computed, until the last micro-batch of a step, the only one
                  that reduces them (torch's no_sync and set_requires_gradient_sync)
    reentrant     checkpoints are reentrant. A block whose parameters are frozen then leaves its input, and the gradient
                  of that, until the backward pass is over: FSDP's hook on the recomputed input (torch/distributed/fsdp/
                  _runtime_utils.py, _register_post_backward_reshard_only_hook) refers to it. And FSDP's first version
                  gathers no block before it is needed: a checkpoint's forward pass, without gradients, leaves nothing
                  to prefetch for (_register_pre_backward_hooks, _get_handle_to_prefetch; forward_prefetch: False)
    gathers_late  reentrant checkpoints surround the units of FSDP's first version, as those of transformers' classes do
                  (training_args.py: gradient_checkpointing "introduces a redundant AllGather"); a loop of its own has
                  them inside (torch's checkpoint_wrapper). A unit is then freed when its forward pass has run again,
                  gathered once more for its gradients, and no gather runs ahead, as no unit has a hook to prefetch for
    keeps_frozen  gathered blocks whose parameters are frozen stay gathered through the backward pass: torch's FSDP
                  before 2.1, whose hook after a block's backward pass needs a gradient (pytorch/pytorch pull request
                  101982, "Reshard frozen params in backward"; meta-llama/llama-cookbook issues 37 and 118)
    experts_apart  experts are divided over expert-parallel ranks only, and whole on each group of them: FSDP is told
                  to ignore their modules (foundation-model-stack/fms-acceleration at 876e2ed6, plugins/accelerated-moe,
                  framework_plugin_scattermoe.py, fsdp_plugin.ignored_modules; scattermoe_prepare.py replicates them
                  over world_size // ep_degree)
    fsdp          version of FSDP: 1, FullyShardedDataParallel, or 2, fully_shard; 0: it has none
    unit_of_layer  each layer is an FSDP unit (accelerate utils/dataclasses.py, TRANSFORMER_BASED_WRAP)
    unit_of_adapter  each matrix of an adapter is a separate FSDP unit (training/trainer.py, units)
    divides_adapters  tensor-parallel ranks divide both matrices of an adapter, next to any layer
    unit_of_module  ZeRO-3 gathers each module with weights through its own hooks
                  (deepspeed/runtime/zero/parameter_offload.py, _register_deepspeed_module)
    grows         its own script turns on the allocator's expandable segments, which a run by other means need not do
                  (pytorch/torchtitan run_train.sh, since a5e57e4a9 of October 2024); a row that says neither is either
    quantizer     whose quantized layers it has (operations/tuning.py)
    pads          the vocabulary is padded to a multiple of this · tp, if a launch line does not say otherwise
    reference_first  a reference model's passes over all micro-batches of a step run before those of the trained model
                     (modelscope/ms-swift swift/megatron/trainers/rlhf_base.py, _replace_data_iterator)
    engine        linear layers are TransformerEngine's, which has a workspace of its own
    recomputes    modules of a layer that its selective recomputation can name (operations/recomputed_parts.py)
    prints        the figure of memory that its scripts print, if a row does not say which: allocated or reserved; "" if
                  they print none or several
    reported      the rank whose memory its log prints: the worst, the first stage, the larger of both ends
    program       it is a training program itself; no other library runs on it
    software      the stack whose measured steps are most like its own (evidence/software/stacks.py), or ""
    zero          its default ZeRO stage with several data-parallel ranks
    pipelined     the largest ZeRO stage next to which its pipeline runs
    sharding      what its ZeRO-3 is called
    divides       what it divides over ranks
    differs       fields of the `Implementation` that the framework sets to other values
    divided_loss  its cross entropy where tensor-parallel ranks divide the vocabulary, if no edition says otherwise
    editions      later changes, oldest first; a run without a version uses the newest
    earlier       what earlier code did, newest first; a run without a version uses the newest
    """

    name: str
    says: str
    source: str
    implementation: str = HUGGING_FACE
    attention: str = "flash"
    dropout: float = 0.0
    partition: str = EVEN
    accumulator: int = 0
    step_bytes: int = 0
    step_most: int = 0
    bucket: int = 0
    masters: bool = False
    host_step: bool = False
    reducer: bool = False
    bucket_of_width: bool = False
    interleaves: bool = False
    wide_gradients: bool = False
    keeps_shards: bool = False
    autocasts: bool = False
    wide_copies: int = 0
    planned: bool = False
    gathers: bool = False
    ends_apart: bool = False
    root_last: bool = False
    reduced_in: str = ""
    at_loss: int = 2
    keeps_stage: bool = False
    unsynced: bool = False
    defers: bool = False
    reentrant: bool = False
    gathers_late: bool = False
    keeps_frozen: bool = False
    experts_apart: bool = False
    fsdp: int = 0
    unit_of_layer: bool = False
    unit_of_adapter: bool = False
    unit_of_module: bool = False
    divides_adapters: bool = False
    grows: bool = False
    quantizer: str = "transformers"
    pads: int = 0
    reference_first: bool = False
    engine: bool = False
    recomputes: tuple[str, ...] = (CORE_ATTENTION,)
    prints: str = ""
    reported: str = WORST
    program: bool = False
    software: str = ""
    zero: int = 0
    pipelined: int = 3
    sharding: str = "FSDP"
    divides: Divisions = Divisions()
    differs: tuple[tuple[str, object], ...] = ()
    divided_loss: str = ""
    editions: tuple[Edition, ...] = ()
    earlier: tuple[Earlier, ...] = ()

    @property
    def of_transformers(self) -> bool:
        """Whether it trains classes of transformers, not layers of its own."""
        return self.implementation == HUGGING_FACE

    @property
    def keeps_inputs(self) -> bool:
        """Whether linear layers that compute in 8 or 4 bits keep their inputs in 16, and no copy of their weights:
        torchao's (pytorch/ao torchao/float8/float8_linear.py, matmul_with_hp_or_float8_args; prototype/mx_formats/
        mx_linear.py, mx_mm)."""
        return self.quantizer == "torchao"

    @property
    def under_library(self) -> bool:
        """Whether it is torch's FSDP that a library calls, not a training program with FSDP in it."""
        return self.fsdp > 0 and not self.program

    @property
    def versioned(self) -> bool:
        """Whether a run chooses the version of FSDP: a training program has one of its own."""
        return self.fsdp == 2 and self.under_library

    def as_of(self, version: int | None) -> Framework:
        """Return the framework as its code of that year and month (202412) was, None for the newest."""
        changes: dict[str, object] = {}
        for one in self.earlier:
            changes |= dict(one.differs) if version is not None and version < one.before else {}
        return replace(self, **changes)

    def implements(
        self, base: Implementation, compiled: bool, divided: bool, version: int | None = None
    ) -> Implementation:
        """Return an implementation of a model with the framework's changes.

        compiled  the step runs under torch.compile
        divided   tensor-parallel ranks divide the vocabulary
        version   year and month of the framework's code (202412), None for the newest"""
        changes = dict(self.differs)
        if compiled:
            changes |= dict(COMPILED)
        edition = next((one for one in reversed(self.editions) if version is None or version >= one.since), None)
        whole = edition.divided if edition is not None and edition.divided else self.divided_loss
        if divided and whole:
            changes["loss"] = whole
        elif edition is not None:
            changes["loss"] = edition.compiled if compiled else edition.loss
        return replace(base, **changes)

    def formats(self, policy: Precision) -> Precision:
        """Return a policy with fp32 weights with the framework's formats: fp32 parameters that are cast, when gathered
        or in each step, need no master copy; or fp32 gradients with 16-bit parameters."""
        if policy.master is None and not (self.autocasts and policy.autocast):
            return policy
        if self.gathers or self.autocasts:
            narrow = policy.compute if policy.compute in ("bf16", "fp16") else "bf16"
            return replace(policy, param="fp32", grad=narrow if self.autocasts else "fp32", master=None)
        return replace(policy, grad="fp32") if self.wide_gradients else policy
