"""The record of a fine-tuning library: its defaults for dtypes, checkpointing, engines and sharding."""

from __future__ import annotations

from napkin.operations.implementations import HUGGING_FACE
from napkin.record import record, replace
from napkin.training.framework import ANY, FSDP, Divisions, Framework
from napkin.training.precision import POLICIES, Precision, named
from napkin.training.recomputation import Recompute
from napkin.training.versions import Release, is_before, is_since

PENALIZED = ("rloo", "ppo")
"""Tasks that compare responses with a reference in TRL's configs (trl/trainer/rloo_config.py, beta 0.05; PPO's)."""
MICRO_BATCH, RANK, LIMIT = "micro-batch", "rank", "limit"
"""What sequences of reinforcement learning are padded to, where they are: the longest of their micro-batch, the longest
of all responses of their rank, or the longest allowed."""
UNCAST = ("int4",)
"""Formats next to which peft's prepare_model_for_kbit_training casts nothing: GPTQ's (utils/other.py)."""
CASTS_ADAPTERS = (0, 12)
"""The release of peft from which on get_peft_model casts adapters to fp32 (mapping.py, autocast_adapter_dtype; pull
request 1706). Before it they had the dtype of weights in 16 bits that they are next to (0.11.1, tuners/lora/layer.py,
update_layer: `self.to(weight.device, dtype=weight.dtype)` where that is a floating-point one)."""


@record
class Backend:
    """A framework as a library runs it.

    framework  its name
    divides    what the library divides over ranks there
    first      what it divides with FSDP's first version, None if the same
    usual      default ZeRO stage with several data-parallel ranks
    implied    ZeRO stages that mean this framework if a run names none
    """

    framework: str
    divides: Divisions = Divisions()
    first: Divisions | None = None
    usual: int = 0
    implied: tuple[int, ...] = ()

    def divides_in(self, version: int) -> Divisions:
        """Return what the library divides with a version of FSDP, 0 if none is named."""
        return self.first if version == 1 and self.first is not None else self.divides


@record
class Trainer:
    """A library on top of a framework.

    implementation  of the model that it trains, by name
    full      the policy for training all weights if a run states only "16 bits"
    loads     number format in which it loads weights if a run states no dtype; "": the checkpoint's
    adapters  number format of adapters on 16-bit weights      beside_quantized  on quantized ones
    casts     it casts adapters to fp32 itself; else peft does, in newer releases (CASTS_ADAPTERS)
    dropout   default dropout of the adapters' inputs
    nested    the scales of its 4-bit weights are quantized too by default (bnb_4bit_use_double_quant)
    experts   experts that are one tensor are quantized to 4 bits with the linear layers
    autocast  the step runs under autocast
    as_loaded  fully_shard divides weights in the dtype in which they were loaded
    widens    tensors that are not quantized are cast to fp32, and every block is checkpointed by default, next to
              quantized ones (peft's prepare_model_for_kbit_training)
    checkpoints  every block is checkpointed by default, from version `since` on
    keeps     frameworks on which none is
    loss      its cross entropy of texts (operations/losses.py) from version `loss_since` on, "" if it is the model's
    kernels   that replace parts of the class by default (kernels.py), ""
    offloads  the inputs of checkpointed blocks are copied to the host, and back as the backward pass needs them
    framework  default framework, ""        also  others, on which it runs transformers' models
    backends  the frameworks that it runs on, and what it divides there
    share     share of each GPU's memory for a colocated inference engine
    engine    family of the inference engines that it starts, "" if none or unknown
    ranks     default tensor-parallel ranks of the engine
    applies   its engine applies adapters next to its weights in every pass; else they are merged into these
    shares    adapters are trained on the engine's own copy of the other weights
    sleeps    the engine frees its memory during training
    movable   states that it can move to the host while a colocated engine generates, and back for the update
    away      those that it moves by default
    returns   its options that offload states are such moves. Elsewhere such states stay on the host, which updates the
              weights: ZeRO-Offload, FSDP's CPUOffloadPolicy, Megatron-core's optimizer_cpu_offload
    joins     frameworks on which the rows of a micro-batch of samples are one sequence without padding by default
    unpads    micro-batches of reinforcement learning have no padding by default
    pads      what their sequences are padded to where they have: MICRO_BATCH, RANK or LIMIT
    packs     default tokens of such a micro-batch, 0 if it packs none     longest  the same in multiples of the longest
              sequence, as its recipes or guides have it
    micro     default sequences of such a micro-batch if it packs none
    larger    how many times as large the micro-batches of passes without gradients are by default
    group     default responses to a prompt, where the responses of a step are the micro-batches of all ranks; 0: else
    timer     passes that its timer of log-probabilities holds
    scores    tasks with logits only for responses, not prompts
    penalizes a step of reinforcement learning uses a reference by default
    joins_steps  an engine that is steps behind takes new weights while it decodes, and starts responses of a later step
              next to the last ones of the step before
    broadcast byte/s at which it sends all weights to a separate engine, 0 if unknown
    captures  the version since which its engine captures CUDA graphs by default
    hosts     the version since which a colocated `engine` runs outside its processes; (0, 0): always
    dispatch  tokens/s at which its driver sends the sequences of a pass to the workers, 0 if unknown
    dispatches  the version since which it sends them without padding; before, padded to the limits of both lengths
    defers    FSDP reduces gradients only in a step's last micro-batch: the loop of transformers' Trainer or accelerate
              (transformers 5.23 trainer.py, sync_context; accelerate 1.15 accelerator.py, no_sync, for FSDP2 too since
              1.11)
    auto_buckets  its own ZeRO-3 file for DeepSpeed leaves reduce_bucket_size to transformers ("auto"), which sets
              the square of the model's width (integrations/deepspeed.py, trainer_config_finalize)
    own_adapters  frameworks next to whose tensor-parallel layers it has adapters of its own, divided as the layers are
    units     FSDP's versions in which each matrix of an adapter is a unit of its own. The first: peft's
              fsdp_auto_wrap_policy (utils/other.py), which wraps every leaf with a trained weight, and which
              transformers' Trainer takes (update_fsdp_plugin_peft) where it creates the optimizer after the model is
              wrapped, as the first version only (delay_optimizer_creation, transformers 4.57 and 5.24 trainer.py).
              fully_shard of a block holds its adapters with its other weights, unless the library calls it for each
    version   FSDP's version by default: the second in transformers 5 (training_args.py, _process_fsdp_args)
    prints    the figure of memory that it logs, as a framework's (framework.py); "" if it logs none or several
    software  the stack whose measured steps are most similar (evidence/software/stacks.py)
    source    citation of its code
    """

    name: str
    source: str
    implementation: str = HUGGING_FACE
    full: str = "bf16-pure"
    loads: str = ""
    adapters: str = "fp32"
    beside_quantized: str = "fp32"
    casts: bool = False
    dropout: float = 0.0
    nested: bool = False
    experts: bool = False
    autocast: bool = True
    as_loaded: bool = False
    widens: bool = False
    checkpoints: bool = False
    keeps: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 0)
    loss: str = ""
    loss_since: tuple[int, int] = (0, 0)
    kernels: str = ""
    offloads: bool = False
    framework: str = ""
    also: tuple[str, ...] = ()
    backends: tuple[Backend, ...] = ()
    share: float = 0.5
    engine: str = ""
    ranks: int = 1
    applies: bool = False
    shares: bool = False
    sleeps: bool = True
    movable: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    returns: bool = False
    scores: tuple[str, ...] = ()
    penalizes: tuple[str, ...] = PENALIZED
    joins: tuple[str, ...] = ()
    unpads: bool = False
    pads: str = MICRO_BATCH
    packs: int = 0
    longest: tuple[int, ...] = ()
    micro: int = 1
    larger: int = 1
    group: int = 0
    timer: tuple[str, ...] = ("logprobs",)
    joins_steps: bool = False
    broadcast: float = 0.0
    captures: Release = (0, 0)
    hosts: Release = (0, 0)
    dispatch: float = 0.0
    dispatches: Release = (0, 0)
    defers: bool = False
    auto_buckets: bool = False
    units: tuple[int, ...] = (1,)
    own_adapters: tuple[str, ...] = ()
    version: int = 2
    prints: str = ""
    software: str = "fsdp-eager"

    @property
    def padded(self) -> str:
        """What sequences of reinforcement learning are padded to, "" if they are not."""
        return "" if self.unpads else self.pads

    def has(self, framework: str) -> bool:
        """Return whether the library runs on the framework of this name."""
        return any(one.framework == framework for one in self.backends)

    def stack_on(self, framework: Framework) -> str:
        """Return the stack whose measured steps are most similar on a framework: the library's own, whose software is
        that of the framework it usually has, or the framework's where it runs on another."""
        own = FSDP[0] if framework.name in self.also else self.software
        other = framework.software or own
        foreign = framework.name in self.also or (framework.name != self.framework and other not in FSDP)
        return other if foreign else self.software

    def stage(self, framework: Framework) -> int:
        """Return the library's default ZeRO stage on a framework, 0 if it has none."""
        return next((one.usual for one in self.backends if one.framework == framework.name), 0)

    def implied(self, stage: int) -> str:
        """Return the name of the framework that a ZeRO stage means if a run names none, "" if the library divides
        nothing at this stage."""
        return next((one.framework for one in self.backends if stage in one.implied), "")

    def on(self, framework: Framework) -> Framework:
        """Return a framework as the library runs it."""
        degrees = (one.divides_in(framework.fsdp) for one in self.backends if one.framework == framework.name)
        divides = next(degrees, framework.divides)
        defers = framework.defers or (self.defers and framework.gathers)
        unit = framework.unit_of_adapter if framework.program else framework.fsdp in self.units
        zero = self.stage(framework) or framework.zero
        both = framework.divides_adapters and framework.name not in self.own_adapters
        found = replace(framework, defers=defers, unit_of_adapter=unit, zero=zero, divides=divides)
        found = replace(found, divides_adapters=both, bucket_of_width=self.auto_buckets and framework.interleaves)
        return self.logged(found)

    def logged(self, framework: Framework) -> Framework:
        """Return a framework with the figure of memory that the library logs, or its own."""
        return replace(framework, prints=self.prints or framework.prints)

    @property
    def of_transformers(self) -> bool:
        """Whether it trains classes of transformers where the framework has no layers of its own."""
        return self.implementation == HUGGING_FACE

    def on_none(self, loop: Framework) -> Framework:
        """Return torch's own loop as the library runs it in a run that names no framework, with the ZeRO stages that
        would mean one."""
        found = self.on(loop)
        stages = tuple(stage for stage in ANY if stage in found.divides.zero or self.implied(stage))
        return replace(found, divides=replace(found.divides, zero=stages))

    def builds(self, framework: Framework) -> str:
        """Return the name of the implementation of models on a framework: the framework's own, if it has one."""
        return self.implementation if framework.of_transformers else framework.implementation

    def moves(self, recompute: Recompute, offload: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is kept in host memory: what a run offloads, and checkpoints that the library offloads."""
        moved = self.offloads and recompute.kind == "full" and "activations" not in offload
        return (*offload, "activations") if moved else offload

    def between(self, offload: tuple[str, ...]) -> tuple[str, ...]:
        """Return the states of those that a run offloads which are back on the GPU for the update."""
        return tuple(one for one in offload if self.returns and one in self.movable)

    def micro_batches(self, longest: int) -> tuple[int, ...]:
        """Return the tokens of a micro-batch of reinforcement learning if a run does not state it, the likely number
        first; none if the library packs no sequences. longest: tokens of the longest sequence, which always fits."""
        if not self.packs:
            return ()
        found = (self.packs, *(times * longest for times in self.longest))
        return tuple(dict.fromkeys(max(tokens, longest) for tokens in found))

    def adapters_in(self, versions: str, quantized: str, narrow: str) -> str:
        """Return the number format of adapters that the versions of a run decide, "" where none does. narrow: the
        16-bit format of weights that are not quantized."""
        peft = self.adapters == "fp32" and not self.casts and not quantized
        return narrow if peft and is_before("peft", versions, CASTS_ADAPTERS) else ""

    def recomputes(self, versions: str = "", quantized: bool = False, framework: str = "") -> bool:
        """Return whether every block is checkpointed by default; versions: of software, as a run states them (`trl
        0.19.1, transformers 4.53`), the newest without the library's; quantized: of frozen weights; framework: its
        name."""
        if framework in self.keeps:
            return False
        if quantized and self.widens:
            return True
        return self.checkpoints and not is_before(self.name, versions, self.since)

    def may_keep(self, versions: str, quantized: bool) -> bool:
        """Return whether `recomputes` holds only of scripts that let peft prepare quantized weights, or of newer
        versions than a run that states none may have had."""
        if quantized and self.widens and not self.checkpoints:
            return True
        return self.checkpoints and self.since != (0, 0) and not is_since(self.name, versions, self.since)

    def launches_eagerly(self, versions: str) -> bool:
        """Return whether its engine captures no CUDA graphs by default in the version that a run states."""
        return is_before(self.name, versions, self.captures)

    def counts_engine(self, versions: str, family: str) -> bool:
        """Return whether torch's figures of its processes hold the memory of a colocated engine in the version that a
        run states: memory that a vLLM within them frees in its sleep stays counted (vllm-project/vllm issue 33625)."""
        return family == self.engine and is_before(self.name, versions, self.hosts)

    def pads_dispatch(self, versions: str) -> bool:
        """Return whether its driver sends sequences padded to the workers in a run that states these versions of
        software: runs were published before it stopped as well."""
        return self.dispatches != (0, 0) and not is_since(self.name, versions, self.dispatches)

    def loss_in(self, versions: str) -> str:
        """Return its form of the cross entropy of texts in a run that states these versions of software; "" without its
        own: runs were published before it as well."""
        return self.loss if is_since(self.name, versions, self.loss_since) else ""

    def usual_policy(self, framework: Framework, adapters: bool, quantized: str, narrow: str) -> Precision:
        """Return the policy of a run that states none. narrow: the format that the accelerator has, bf16, fp16 or fp32.

        Gradients in fp16 cannot be unscaled (torch/amp/grad_scaler.py, unscale_), so that what is trained in fp16 is
        in fp32, under autocast."""
        if narrow == "fp32":
            return POLICIES["fp32"]
        if narrow == "bf16":
            if adapters:
                return self.policy_of_adapters(framework, quantized)
            return self.policy_of_all(framework)
        wide = replace(self, full="amp-bf16", adapters="fp32", beside_quantized="fp32", autocast=True)
        if adapters:
            return wide.policy_of_adapters(framework, quantized, narrow)
        return wide.policy_of_all(framework, narrow)

    def policy_of_all(self, framework: Framework, narrow: str = "bf16", autocast: bool | None = None) -> Precision:
        """Return the policy for training all weights; narrow: the 16-bit dtype.

        Engines with master copies keep theirs (DeepSpeed, Megatron-core). accelerate casts the parameters that FSDP
        trains to fp32 if the run is under autocast (accelerator.py, prepare_model; utils/fsdp_utils.py,
        fsdp2_prepare_model)."""
        if framework.masters:
            return POLICIES[f"{narrow}-mixed"]
        casts = self.autocast if autocast is None else autocast
        casts = casts and not (self.as_loaded and framework.reduced_in)
        if self.full == "amp-bf16" or (framework.gathers and casts):
            return replace(POLICIES["amp-bf16"], name=f"amp-{narrow}", compute=narrow)
        return named(Precision(f"{narrow}-pure", narrow, narrow, narrow, narrow))

    def policy_of_adapters(
        self, framework: Framework, quantized: str, narrow: str = "bf16", autocast: bool | None = None, kept: str = ""
    ) -> Precision:
        """Return the policy for training adapters on frozen weights; quantized: the format of those in layers, "" if
        none; kept: the adapters' dtype, if known."""
        if framework.masters:
            return replace(POLICIES[f"{narrow}-mixed"], frozen=narrow)
        kept = kept or (self.beside_quantized if quantized else self.adapters)
        casts = self.autocast if autocast is None else autocast
        frozen = "fp32" if quantized and self.widens and quantized not in UNCAST else narrow
        return Precision(
            "adapters", kept, kept, narrow if casts else kept, kept, frozen="" if frozen == kept else frozen
        )
