"""The rates that machine and software reach: every measured or calibrated constant in the time of a step.

timing/ defines the record; the caller fills it in for the machine and the software stack. No module of this package has
a constant of a chip, a library or a published run."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.record import record


@record
class Rates:
    """The rates that machine and software reach; each a number or one per layout.

    host_link, pinned   byte/s of a GPU's link to its host one way; share of it that copies reach
    peak, peak_wide     dense FLOP/s of linear layers' dtype and of 16 bits (attention and head)
    peak_full           dense FLOP/s of fp32, 0 if it is not known
    bandwidth, link, network, node, units
                        byte/s of memory, of the link one way, of the network card; GPUs that the link joins; matrix
                        units
    matmul, matmul_wide share of the peak that a large matrix product sustains
    attention, attention_backward
                        share of the peak of the fused forward kernel; how much slower its backward runs per FLOP
    masked_backward     1 where its backward pass computes also the pairs that a sliding window masks
    half_keys           keys of a query that leave half of that share
    small_head, large_head
                        shares of it that heads of at most 64 and of more than 128 reach
    core, core_odd      share of `matmul_wide` that unfused attention's batched products reach; of that, with heads of
                        odd size
    score_bytes         traffic of unfused attention per score, forward and backward together
    memory, bus, wire   shares of the memory's, the link's and the network's rate that are reached
    waves, half_depth, misaligned
                        see efficiency.py
    elementwise         traffic of elementwise kernels over the least that is needed
    cast_bytes          traffic of casting per input element of a low-precision linear layer
    loss_bytes          traffic of the loss per logit
    accumulation_bytes  traffic of adding up gradients per weight and micro-batch
    tensor_latency, data_latency
                        seconds of one tensor-parallel collective, and per doubling of the data-parallel group
    link_hop, network_hop
                        seconds from one rank of a ring to the next, inside a node and between nodes
    tensor_exposed, pipeline_exposed, context_exposed, expert_exposed
                        share of that communication that nothing hides
    data_overlap, gather_overlap, data_exposed
                        1 where gradients are reduced while the last backward runs, and where parameters are gathered
                        while the first forward does; least share of both that stays exposed
    interference        slow-down of everything else by FSDP's collectives, per second of link time
    grouped             share of an ordinary product's rate that products of many experts in one kernel reach
    expert_bias_bytes   traffic of the second bias per routed token and hidden element
    clamps_apart        1 where kernels of their own clamp gate and up of experts
    permutation_bytes   traffic of permuting per routed token and hidden element
    dispatch            time of the all-to-all relative to bytes/bandwidth
    host_layer, host_experts
                        seconds in which the host launches one layer's kernels
    host_chunk          seconds in which the host takes a micro-batch through a chunk of a pipeline stage, forward and
                        backward, in addition to the launches of its layers
    host_expert         seconds in which the device waits for the launches of one expert's
    host_unit, host_module
                        seconds in which the host gathers a unit of FSDP, or a module of ZeRO-3, and gives it back
    host_fused, host_looped
                        byte/s at which a host updates the states of its accelerators, by a fused kernel and by torch's
                        chain of operations
    optimizer_slowness  time of the optimizer relative to bytes/bandwidth
    eigenvectors, orthogonal, singular
                        bytes at the memory's rate for which such a decomposition takes as long, a cube of its side
    fixed               constant seconds of a step
    straggle            seconds that a step waits for the slowest GPU, for each doubling of their number
    stops_early         share of a block's last product that recomputation skips
    stack               time of this software relative to the common constants
    """

    peak: Number
    peak_wide: Number
    peak_full: Number
    bandwidth: Number
    link: Number
    network: Number
    host_link: Number
    pinned: Number
    node: Number
    units: Number
    matmul: Number
    matmul_wide: Number
    attention: Number
    attention_backward: Number
    masked_backward: Number
    half_keys: Number
    small_head: Number
    large_head: Number
    core: Number
    core_odd: Number
    score_bytes: Number
    memory: Number
    bus: Number
    wire: Number
    waves: Number
    half_depth: Number
    misaligned: Number
    elementwise: Number
    cast_bytes: Number
    loss_bytes: Number
    accumulation_bytes: Number
    tensor_latency: Number
    data_latency: Number
    link_hop: Number
    network_hop: Number
    tensor_exposed: Number
    pipeline_exposed: Number
    context_exposed: Number
    expert_exposed: Number
    data_overlap: Number
    gather_overlap: Number
    data_exposed: Number
    interference: Number
    grouped: Number
    expert_bias_bytes: Number
    clamps_apart: Number
    permutation_bytes: Number
    dispatch: Number
    host_layer: Number
    host_experts: Number
    host_chunk: Number
    host_expert: Number
    host_unit: Number
    host_module: Number
    host_fused: Number
    host_looped: Number
    optimizer_slowness: Number
    eigenvectors: Number
    orthogonal: Number
    singular: Number
    fixed: Number
    straggle: Number
    stops_early: Number
    stack: Number
