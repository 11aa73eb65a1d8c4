"""Where operations are in the reference class: the paths that LoRA targets match.

Paths are those of the classes of Hugging Face transformers 5.23.0: within a layer, or from the model's root for what
precedes and follows the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model, Stack
from napkin.record import replace

USUAL: Mapping[str, str] = {
    "embedding": "model.embed_tokens",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "qkv": "self_attn.qkv_proj",
    "q_gate": "self_attn.q_proj",
    "q_a": "self_attn.q_a_proj",
    "q_b": "self_attn.q_b_proj",
    "kv_a": "self_attn.kv_a_proj_with_mqa",
    "kv_b": "self_attn.kv_b_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "gate_up": "mlp.gate_up_proj",
    "down": "mlp.down_proj",
    "router": "mlp.gate",
    "experts": "mlp.experts",
    "shared/gate": "mlp.shared_experts.gate_proj",
    "shared/up": "mlp.shared_experts.up_proj",
    "shared/gate_up": "mlp.shared_experts.gate_up_proj",
    "shared/down": "mlp.shared_experts.down_proj",
    "shared_gate": "mlp.shared_expert_gate",
    "joined": "eh_proj",
    "indexer": "self_attn.indexer",
    "cross_q": "encoder_attn.q_proj",
    "cross_k": "encoder_attn.k_proj",
    "cross_v": "encoder_attn.v_proj",
    "cross_o": "encoder_attn.out_proj",
    "lm_head": "lm_head",
}
"""Llama's paths, those of mixtures of experts and of latent attention like DeepSeek-V3's, and of BART's attention to an
encoder."""


def located(model: Model, modules: Mapping[str, str], outer: str = "") -> Model:
    """Return the model with each module's path in the reference class. `outer`: the path of the language model within
    a multimodal class, whose `model` it is."""
    paths = {**USUAL, **modules}
    placed: dict[tuple[int, str], Operation] = {}

    def place(op: Operation, stack: str) -> Operation:
        if (id(op), stack) not in placed:
            path = paths.get(f"{stack}/{op.module}") or paths.get(op.module, op.module)
            if outer and path.startswith("model.") and not path.startswith(outer):
                path = outer + path.removeprefix("model")
            elif path == "lm_head" and outer.startswith("language_model."):  # a class with the head is inside
                path = "language_model.lm_head"
            owner = op.owner()
            changes: dict[str, object] = {"of": place(owner, stack)} if owner is not op else {}
            if op.holds():
                changes["of"] = all_of(op.holds(), stack)
            if path != op.module:
                changes["module"] = path
            placed[id(op), stack] = replace(op, **changes) if changes else op
        return placed[id(op), stack]

    def layers_of(stack: str) -> Callable[[Layer], Layer]:
        return lambda one: replace(one, operations=all_of(one.operations, stack))

    def all_of(operations: Iterable[Operation], stack: str) -> tuple[Operation, ...]:
        return tuple(place(op, stack) for op in operations)

    def stack_of(one: Stack) -> Stack:
        found = one.mapped(layers_of(one.name))
        return replace(found, before=all_of(one.before, one.name), after=all_of(one.after, one.name))

    last = model.stacks[-1].name
    return replace(
        model,
        stacks=tuple(map(stack_of, model.stacks)),
        shared=all_of(model.shared, last),
        extra=tuple(map(layers_of(last), model.extra)),
    )
