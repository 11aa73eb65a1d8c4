"""FLOPs per token under the conventions of published MFU figures.

Symbols: N active parameters, s sequence length, L layers, a heads of d elements (in MLA, 2·d is d_qk + d_v), h width.
Sums over layers run over those that have attention.

    6nd                6·N                                                     Kaplan et al. 2020, arXiv 2001.08361
    6nd_non_embedding  6·(N − token embedding − head)                              the same, their N
    palm               6·(N − input embedding) + 12·L·a·d·s                        Chowdhery et al. 2022, 2204.02311,
                       app. B
    nanogpt            6·(N − position embedding) + 12·L·h·s                       karpathy/nanoGPT, model.py
                       estimate_mfu
    megatron           6·(matrices a token passes, with logits) + 6·L·a·d·s    Narayanan et al. 2021, 2104.04473, causal
    causal             palm with attention halved
    torch              3 × the counted forward over the full square (1 × of what runs without gradient)
                                                                               torch.utils.flop_counter With tied
                                                                               embeddings the input embedding is also
                                                                               the head's matrix, so palm does not
                                                                               subtract it; it subtracts only embeddings
                                                                               that are only looked up."""

from __future__ import annotations

from collections.abc import Callable

from napkin.counting import flops
from napkin.counting.flops import EXACT, FULL, Works
from napkin.counting.params import params
from napkin.counting.six_n import six
from napkin.elementwise import Number
from napkin.operations.model import Model
from napkin.term import GIVEN, Term, add, constant, divide, leaf, multiply, subtract
from napkin.training.tasks import Passes

NAMES = ("6nd", "6nd_non_embedding", "palm", "nanogpt", "megatron", "causal", "torch")
SOURCES = {
    "6nd": "Kaplan et al. 2020, arXiv 2001.08361, table 1",
    "6nd_non_embedding": "Kaplan et al. 2020, arXiv 2001.08361, table 1, parameters without tables",
    "palm": "Chowdhery et al. 2022, arXiv 2204.02311, appendix B",
    "nanogpt": "karpathy/nanoGPT, model.py, estimate_mfu",
    "megatron": "Narayanan et al. 2021, arXiv 2104.04473, and Megatron-LM's training log, causal attention",
    "causal": "Chowdhery et al. 2022, arXiv 2204.02311, appendix B, attention halved",
    "torch": "torch.utils.flop_counter, full square",
}


def of_parameters(active: Term) -> Term:
    """Return the FLOPs per token by 6·N, if only the number of active parameters is known."""
    return multiply("flops/per_token/6nd", six(), active, source=SOURCES["6nd"])


def per_token(model: Model, over: Works, name: str, mtp: bool = False) -> Term:
    """Return the FLOPs per token, forward and backward, in a named convention."""
    counted = params(model, mtp)
    active = counted["params/active"]
    path = f"flops/per_token/{name}"
    source = SOURCES[name]
    seq = leaf("seq", _length(model, over), "token", GIVEN)
    if name == "6nd":
        return multiply(path, six(), active, source=source)
    if name == "6nd_non_embedding":
        tables = add("params/tables", counted["params/embedding"], counted["params/lm_head"])
        return multiply(path, six(), subtract("params/active_without_tables", active, tables), source=source)
    if name in ("palm", "causal"):
        table = counted.get("params/lookup_embedding") if model.tied else counted["params/embedding"]
        used = active if table is None else subtract("params/without_input_table", active, table)
        pairs = 6 if name == "palm" else 3
        return add(path, multiply(f"{path}/matrices", six(), used), _square(path, model, pairs, seq), source=source)
    if name == "nanogpt":
        positions = counted.get("params/position_embedding")
        used = active if positions is None else subtract("params/without_positions", active, positions)
        wide = leaf("layers_times_width", model.depth * model.hidden, "1", GIVEN)
        twelve = constant("12", 12, "FLOP/token^2", "2 products, 2 FLOP, 3 passes")
        return add(
            path,
            multiply(f"{path}/matrices", six(), used),
            multiply(f"{path}/attention", twelve, wide, seq),
            source=source,
        )
    if name == "megatron":
        return add(path, _matrices(path, model, over, mtp), _square(path, model, 3, seq), source=source)
    if name == "torch":
        return _counted(path, model, over, FULL, mtp)
    raise KeyError(name)


def _counted(path: str, model: Model, over: Works, pairs: str, mtp: bool) -> Term:
    step = flops.passes(f"{path}/step", model, flops.with_pairs(over, pairs), mtp)
    return divide(path, step, _tokens(over), source=SOURCES["torch"])


def counted_per_token(
    passes: Passes, over: Callable[[Model, int], Works], mtp: bool = False, pairs: str = FULL
) -> Term:
    """Return the counted FLOPs per token of the trained model and of the passes without gradients. over: as in
    `flops.forwards_of`; pairs: the pairs of tokens in attention, as in flops.py."""
    own = over(passes.trained, 1)
    found = _counted(f"flops/per_token/{'torch' if pairs == FULL else pairs}", passes.trained, own, pairs, mtp)
    others = flops.forwards_of(passes, lambda model, times: flops.with_pairs(over(model, times), pairs))
    if not others:
        return found
    each = (divide(f"{found.name}/{one.name.rpartition('/')[2]}", one, _tokens(own)) for one in others)
    return add(found.name, found.renamed(f"{found.name}/trained"), *each)


def allowed_per_token(passes: Passes, over: Callable[[Model, int], Works]) -> Term:
    """Return the counted FLOPs per token of the pairs of tokens that causality, windows and documents leave."""
    return counted_per_token(passes, over, pairs=EXACT)


SQUARES = {"palm": 2, "nanogpt": 2, "torch": 2, "causal": 1, "megatron": 1}
"""Convention → how many times it counts the pairs of tokens that causality leaves: twice by the full square."""


def share_in_windows(name: str, convention: Term, half: Term | None, allowed: Term | None) -> float:
    """Return the share of a convention's FLOPs that remain if its attention counts only the pairs that windows and
    documents leave, as often as it counts causal ones. half: the count of a step with half the square."""
    if half is None or allowed is None:
        return 1.0
    masked = max(float(half.value) - float(allowed.value), 0.0)
    return 1 - SQUARES.get(name, 0) * masked / float(convention.value)


def excess(convention: Term, allowed: Term | None) -> float:
    """Return how many times the FLOPs of the allowed pairs a convention counts, at least 1. A kernel computes little of
    the square of a long sequence with a short window, so that an MFU by the full square may exceed 1."""
    return 1.0 if allowed is None else max(float(convention.value) / float(allowed.value), 1.0)


def all_conventions(model: Model, over: Works, mtp: bool = False) -> dict[str, Term]:
    """Return the FLOPs per token by convention."""
    return {name: per_token(model, over, name, mtp) for name in NAMES}


def ratio(name: str, convention: Term, exact: Term) -> Term:
    """Return the ratio of a convention's FLOPs to the count of this step."""
    return divide(f"flops/ratio/{name}", convention, exact)


def _tokens(over: Works) -> Term:
    return leaf("tokens", flops.tokens(over), "token", GIVEN)


def _length(model: Model, over: Works) -> Number:
    """Return the sequence length of the last stack, over which the formulas' attention runs."""
    return over[model.stacks[-1].name].given.length


def heads_width(model: Model) -> int:
    """Return Σ over layers of heads · (d_qk + d_v), which is 2·L·a·d if keys and values have the same size."""
    return sum(
        int(count * op.attention_width())
        for stack in model.stacks
        for _, count, layer in stack.kinds()
        for op in layer.operations
    )


def _square(path: str, model: Model, pairs: int, seq: Term) -> Term:
    """Return the FLOP/token `pairs`·Σ a·(d_qk + d_v)·s. pairs: 6 for the full square (2 FLOP in each of 3 passes), 3
    for half of it."""
    wide = leaf("heads_times_sizes", heads_width(model), "1", GIVEN)
    return multiply(f"{path}/attention", constant(str(pairs), pairs, "FLOP/token^2"), wide, seq)


def _matrices(path: str, model: Model, over: Works, mtp: bool) -> Term:
    """Return the FLOP/token of forward and backward through the weight matrices."""
    terms = list(flops.by_operation(model, over, mtp=mtp, which=lambda product: product.weight).values())
    ahead = add(f"{path}/forward", *terms)
    three = constant("3", 3, "1", "forward, and twice it backward")
    return divide(f"{path}/matrices", multiply(f"{path}/passes", three, ahead), _tokens(over))
