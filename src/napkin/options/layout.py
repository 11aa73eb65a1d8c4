"""Options that divide the work of a step over GPUs."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice, flag, or_none
from napkin.options.parsers import stage_layers
from napkin.record import record


@record
class Degree:
    """A number that a layout is made of. name: of its option; field: of a Layout; searched: whether `plan` tries
    several values if it is not given; bounded: whether --max-… limits them."""

    name: str
    field: str
    searched: bool = True
    bounded: bool = True


LAYOUT_DEGREES = (
    Degree("tp", "tp"),
    Degree("pp", "pp"),
    Degree("dp", "dp", bounded=False),
    Degree("cp", "cp"),
    Degree("ep", "ep"),
    Degree("etp", "etp", searched=False, bounded=False),
    Degree("vp", "vp"),
    Degree("sp", "sp", searched=False, bounded=False),
    Degree("zero", "zero"),
    Degree("micro-batch", "micro"),
)
"""Every degree; other lists of degrees are derived from this one."""
SEARCHED = tuple(one.name for one in LAYOUT_DEGREES if one.searched)
"""Degrees that `plan` searches if they are not given."""
BOUNDED = tuple(one.name for one in LAYOUT_DEGREES if one.bounded)
"""Those of them that --max-… bounds."""
OF_REPLICA = ("tp", "pp", "cp")
"""Degrees that divide one replica of the model: gpus = tp · pp · cp · dp."""
FIELDS = {one.name: one.field for one in LAYOUT_DEGREES}
"""Field of a Layout by the name of its option."""

OPTIONS = (
    Option("gpus", units.positive_count, "Total number of GPUs", "GPU", "N"),
    Option("nodes", units.degree, "Number of nodes; gpus = nodes × gpus-per-node", metavar="N"),
    Option("gpus-per-node", units.degree, "GPUs per node", "GPU", "N", default="the accelerator's own"),
    Option("tp", units.degree, "Tensor-parallel ranks", metavar="N"),
    Option("pp", units.degree, "Pipeline stages", metavar="N"),
    Option("dp", units.degree, "Data-parallel ranks", metavar="N"),
    Option("cp", units.degree, "Context-parallel ranks", metavar="N"),
    Option("ulysses", units.degree, "Context-parallel ranks that exchange heads for tokens", metavar="N"),
    Option("ep", units.degree, "Expert-parallel ranks, inside dp", metavar="N"),
    Option(
        "etp",
        units.degree,
        "Tensor-parallel ranks of the experts",
        metavar="N",
    ),
    Option(
        "expert-imbalance",
        units.at_least_one,
        "Tokens on the fullest expert-parallel rank, over the mean",
        metavar="X",
        default="1",
    ),
    Option(
        "capacity-factor",
        or_none(units.positive),
        "Capacity of an expert over its mean tokens; free slots are padded",
        metavar="X",
    ),
    Option(
        "vp",
        units.degree,
        "Model chunks per stage (interleaving)",
        metavar="N",
    ),
    flag("sp", "Sequence parallelism"),
    Option("zero", choice("0", "1", "2", "3"), "ZeRO stage; 3 is FSDP", metavar="0..3"),
    flag("distributed-optimizer", "Megatron's name for ZeRO stage 1"),
    Option("dp-shard", units.positive_count, "Sharding-group size under ZeRO", metavar="N", default="all ranks"),
    Option(
        "micro-batch",
        units.degree,
        "Sequences per GPU in one forward pass",
        metavar="N",
    ),
    Option(
        "global-batch",
        units.degree,
        "Sequences per step, all GPUs",
        metavar="N",
        default="micro-batch × dp",
    ),
    Option(
        "grad-accum",
        units.degree,
        "Micro-batches per step",
        metavar="N",
        default="global-batch / (micro-batch × dp)",
    ),
    Option(
        "schedule",
        choice("gpipe", "1f1b", "interleaved", "zero-bubble"),
        "Pipeline schedule",
        metavar="NAME",
        default="1f1b",
    ),
    Option("stage-layers", stage_layers, "Layers of each pipeline stage: 9,10,10,9 or 9,2x10,9", metavar="N,N,…"),
    Option(
        "first-stage-layers",
        units.positive_count,
        "Layers of the first pipeline stage",
        metavar="N",
    ),
    Option(
        "last-stage-layers",
        units.positive_count,
        "Layers of the last pipeline stage",
        metavar="N",
    ),
    flag("embedding-as-layer", "Count the embedding as a layer of its stage"),
    flag("loss-as-layer", "Count the head and loss as a layer of their stage"),
    Option(
        "chunk-layers",
        units.positive_count,
        "Layers per model chunk, instead of --vp",
        metavar="N",
    ),
    Option(
        "max-global-batch",
        units.positive_count,
        "Largest --global-batch",
        metavar="N",
    ),
    *(
        Option(
            f"max-{name}",
            units.positive_count,
            f"Largest --{name}",
            metavar="N",
            default="a node" if name == "tp" else "",
        )
        for name in BOUNDED
    ),
)

EXPERT_LOAD = ("expert-imbalance", "capacity-factor")
"""How many tokens experts process, where these do not spread evenly."""

MACHINE_SIZE = ("gpus", "nodes", "gpus-per-node")
"""The number of GPUs, and of GPUs per node."""
BATCH = ("micro-batch", "global-batch", "grad-accum")
"""The number of sequences in a step."""
DEGREES = (*MACHINE_SIZE, *(one.name for one in LAYOUT_DEGREES if one.name not in BATCH), *BATCH, "schedule")
"""The degrees of parallelism: options that only make sense together."""

END_LAYERS = ("first-stage-layers", "last-stage-layers")
ENDS_AS_LAYERS = ("embedding-as-layer", "loss-as-layer")
STAGE_OPTIONS = ("stage-layers", *END_LAYERS, *ENDS_AS_LAYERS, "chunk-layers")
"""How a pipeline's layers are assigned to its stages by hand."""
