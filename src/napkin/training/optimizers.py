"""The known optimizers: the states and the step of each, with sources.

optimizer.py has the record, optimizer_names.py finds one by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.training.optimizer import (
    BLOCKS,
    COLUMNS,
    CUT_GRAMS,
    GRAMS,
    LOW_RANK,
    LOW_RANK_BLOCKS,
    ONE,
    PROJECTION,
    PROJECTION_INT4,
    ROWS,
    SCALAR,
    WHOLE,
    Optimizer,
    State,
)
from napkin.training.optimizer_step import (
    ADAM,
    ADAMW,
    Accesses,
    Update,
    elementwise_update,
    factored_update,
    orthogonalized_update,
)
from napkin.training.optimizer_work import orthogonalizing, preconditioning, projecting, rotating

_STEP = State("step", SCALAR)
_TORCH = "torch.optim.{} (torch 2.13)"
_ALL = ("foreach", "forloop", "fused")
_NOTHING = elementwise_update()
_MOMENTS = elementwise_update(1, ((2, 1),))
"""Root and quotient of the second moment; in turn, the quotient of the previous tensor is still live."""
_SQUARES = elementwise_update(1, ((1, 1),))
"""Only the root."""
_BITSANDBYTES = (
    "bitsandbytes/optim/optimizer.py, init_state: blocks of 256 since release 0.44, tensors under 4096 elements in fp32"
)

_ADEMAMIX = "bitsandbytes/optim/ademamix.py, init_state; Pagliardini et al. 2024, arXiv:2409.03137"
_AVERAGES = (State("state1_fast", fp32=True), State("state1_slow", fp32=True), State("state2", fp32=True))
"""state1 has both averages of the gradient, one after the other."""
_FREE = "facebookresearch/schedule_free, schedulefree; Defazio et al. 2024, arXiv:2405.15682"
_AVERAGED = "keeps the point that it averages in place of the first moment; accesses are those of its foreach step"
_TORCHAO = "torchao/optim/adam.py and subclass_4bit.py: blocks of 128, tensors under 4096 elements as the parameter is"


def _torch(
    name: str,
    cls: str,
    *states: str,
    scalars: tuple[str, ...] = ("step",),
    fused: bool = False,
    update: Update = _NOTHING,
    accesses: Accesses | None = None,
) -> Optimizer:
    kept = (*(State(s, SCALAR) for s in scalars), *(State(s) for s in states))
    forms = _ALL if fused else _ALL[:2]
    return Optimizer(name, kept, _TORCH.format(cls), forms=forms, update=update, accesses=accesses)


def _eight_bit(name: str, *states: str) -> Optimizer:
    note = "tensors under 4,096 elements keep fp32 states; the step is a number of the host program"
    kept, same = tuple(State(s, BLOCKS) for s in states), name.removesuffix("-8bit")
    return Optimizer(name, kept, _BITSANDBYTES, forms=("fused",), note=note, unquantized=same)


def _four_bit(name: str) -> Optimizer:
    note = "tensors under 4,096 elements keep fp32 states; its step is compiled"
    kept = (_STEP, *(State(one, BLOCKS, bits=4) for one in ("exp_avg", "exp_avg_sq")))
    return Optimizer(name, kept, _TORCHAO, forms=("fused",), note=note)


def _paged(name: str, *states: str, eight: bool) -> Optimizer:
    """bitsandbytes pages the states of tensors of 100,000 elements and more (get_state_buffer)."""
    note = "keeps its states in managed memory: torch's allocator does not count them, the driver moves them"
    layout = BLOCKS if eight else WHOLE
    kept, same = tuple(State(s, layout, fp32=not eight) for s in states), name.removesuffix("-8bit") if eight else ""
    return Optimizer(name, kept, _BITSANDBYTES, forms=("fused",), note=note, paged=True, unquantized=same)


RANK = 128
"""Default rank of a projection, without `:RANK` (transformers, TrainingArguments.optim_args)."""
LONGEST_CUT, LONGEST_ROTATED = 8192, 10_000
"""Longest side of a block of Shampoo in the published comparison (max_preconditioner_dim), and of SOAP's by default."""
_MATRICES = "takes the matrices of the layers; embeddings, heads and vectors stay with AdamW"

_ONE_STEP = "its decompositions are timed by one published step"


_GALORE = "galore_torch 1.0; Zhao et al. 2024, arXiv:2403.03507"
_QUANTIZED_GALORE = "q_galore_torch 1.0; Zhang et al. 2024, arXiv:2407.08296"
_APOLLO = "apollo_torch 1.0.3; Zhu et al. 2024, arXiv:2412.05270"


def _projected(
    name: str,
    source: str,
    rank: int,
    *,
    moments: str = LOW_RANK,
    projection: str = PROJECTION,
    random: bool = False,
    rest: str = "adamw",
    any_rank: bool = True,
    unquantized: str = "",
    unmodeled: str = "",
) -> Optimizer:
    """Return an optimizer with states of the gradient projected to that rank.

    moments, projection  layouts of its states         rest  optimizer of the tensors that it does not take
    random    the projection is of random numbers, not of the gradient's singular vectors, and scales the gradient
    any_rank  its name may state another rank
    """
    kept = [State("exp_avg", moments, size=rank), State("exp_avg_sq", moments, size=rank)]
    kept.append(State("ortho_matrix", projection, size=rank))
    if random:
        kept.append(State("scaled_grad", ONE))
    note = _MATRICES + (f", {unmodeled}" if unmodeled else "") + ("" if random else f"; {_ONE_STEP}")
    return Optimizer(
        name,
        tuple(kept),
        source,
        forms=("forloop",),
        only_matrices=True,
        rest=rest,
        whole=True,
        works=projecting(rank, decomposed=not random),
        note=f"{note}; rank {rank}: {name}:N takes another" if any_rank else note,
        update=elementwise_update(forloop=((1, 0),) if random else ((4, 0),)),
        unquantized=unquantized,
        unmodeled=unmodeled,
    )


_IN_8_BITS = partial(_projected, moments=LOW_RANK_BLOCKS, rest="adamw-8bit")
_INT4 = partial(_IN_8_BITS, projection=PROJECTION_INT4, unmodeled="its weights not in int8")
PROJECTED: dict[str, Callable[[int], Optimizer]] = {
    "galore-adamw": partial(_projected, "galore-adamw", _GALORE),
    "galore-adamw-8bit": partial(_IN_8_BITS, "galore-adamw-8bit", _GALORE, unquantized="galore-adamw"),
    "q-galore-adamw-8bit": partial(_INT4, "q-galore-adamw-8bit", _QUANTIZED_GALORE),
    "apollo-adamw": partial(_projected, "apollo-adamw", _APOLLO, random=True),
}
"""Name → the optimizer as a function of the rank, which a name may state."""
MOST_RANK = 1 << 20

OPTIMIZERS: dict[str, Optimizer] = {
    o.name: o
    for o in (
        _torch("sgd", "SGD", scalars=(), fused=True),
        _torch("sgd-momentum", "SGD(momentum)", "momentum_buffer", scalars=(), fused=True),
        _torch(
            "sgd-nesterov",
            "SGD(momentum, nesterov)",
            "momentum_buffer",
            scalars=(),
            fused=True,
            update=elementwise_update(forloop=((1, 0),)),
        ),
        _torch("adagrad", "Adagrad", "sum", fused=True, update=elementwise_update(2, ((1, 1),))),
        _torch("rmsprop", "RMSprop", "square_avg", update=_SQUARES),
        _torch("rmsprop-momentum", "RMSprop(momentum)", "square_avg", "momentum_buffer", update=_SQUARES),
        _torch("rmsprop-centered", "RMSprop(centered)", "square_avg", "grad_avg", update=_SQUARES),
        _torch(
            "rmsprop-momentum-centered",
            "RMSprop(momentum, centered)",
            "square_avg",
            "momentum_buffer",
            "grad_avg",
            update=_SQUARES,
        ),
        _torch("adam", "Adam", "exp_avg", "exp_avg_sq", fused=True, update=_MOMENTS, accesses=ADAM),
        _torch(
            "adam-amsgrad",
            "Adam(amsgrad)",
            "exp_avg",
            "exp_avg_sq",
            "max_exp_avg_sq",
            fused=True,
            update=_MOMENTS,
        ),
        _torch("adamw", "AdamW", "exp_avg", "exp_avg_sq", fused=True, update=_MOMENTS, accesses=ADAMW),
        _torch(
            "adamw-amsgrad",
            "AdamW(amsgrad)",
            "exp_avg",
            "exp_avg_sq",
            "max_exp_avg_sq",
            fused=True,
            update=_MOMENTS,
        ),
        _torch("adamax", "Adamax", "exp_avg", "exp_inf", update=elementwise_update(1, ((1, 0),))),
        _torch("nadam", "NAdam", "exp_avg", "exp_avg_sq", scalars=("step", "mu_product"), update=_MOMENTS),
        _torch("radam", "RAdam", "exp_avg", "exp_avg_sq", update=elementwise_update(1, ((2, 0),))),
        _torch("adadelta", "Adadelta", "square_avg", "acc_delta", update=elementwise_update(2, ((2, 1), (1, 2)))),
        _torch("rprop", "Rprop", "prev", "step_size", update=elementwise_update(1, ((3, 0),), masks=True)),
        _torch("asgd", "ASGD", "ax", scalars=("step", "eta", "mu"), update=elementwise_update(1)),
        Optimizer(
            "adafactor",
            (_STEP, State("row_var", ROWS), State("col_var", COLUMNS)),
            "torch.optim.Adafactor (torch 2.13); Shazeer and Stern 2018, arXiv:1804.04235",
            vectors=(_STEP, State("variance")),
            update=factored_update,
        ),
        Optimizer(
            "muon",
            (State("momentum_buffer"),),
            _TORCH.format("Muon"),
            only_matrices=True,
            update=orthogonalized_update,
            works=orthogonalizing,
            note="takes matrices only: embeddings, heads and vectors stay with another optimizer",
        ),
        Optimizer(
            "lion",
            (State("exp_avg"),),
            "google/automl, lion/lion_pytorch.py; Chen et al. 2023, arXiv:2302.06675",
            forms=("forloop",),
            update=elementwise_update(forloop=((3, 1),)),
        ),
        Optimizer(
            "lamb",
            (State("exp_avg"), State("exp_avg_sq")),
            "NVIDIA/apex, apex/optimizers/fused_lamb.py; You et al. 2019, arXiv:1904.00962",
            forms=("fused",),
            note="the step is a number of the host program",
        ),
        Optimizer(
            "sophia",
            (_STEP, State("exp_avg"), State("hessian")),
            "Liuhong99/Sophia, sophia.py (SophiaG); Liu et al. 2023, arXiv:2305.14342",
            forms=("forloop",),
            update=elementwise_update(forloop=((3, 1),)),
        ),
        Optimizer(
            "adan",
            (State("exp_avg"), State("exp_avg_sq"), State("exp_avg_diff"), State("neg_pre_grad")),
            "sail-sg/Adan, adan.py; Xie et al. 2022, arXiv:2208.06677",
            update=_MOMENTS,
        ),
        Optimizer(
            "came",
            (
                State("exp_avg", fp32=True),
                *(State(f"exp_avg_{kind}_row", ROWS, fp32=True) for kind in ("sq", "res")),
                *(State(f"exp_avg_{kind}_col", COLUMNS, fp32=True) for kind in ("sq", "res")),
            ),
            "yangluo7/CAME, came_pytorch/CAME.py; Luo et al. 2023, arXiv:2307.02047",
            vectors=(State("exp_avg", fp32=True), State("exp_avg_sq", fp32=True)),
            forms=("forloop",),
            update=elementwise_update(forloop=((3, 2),)),
            note="16-bit gradients are cast to fp32 first, so the states are fp32",
        ),
        Optimizer(
            "shampoo",
            (
                State("filtered_grad", fp32=True),
                State("grafting", fp32=True),
                State("factor_matrices", CUT_GRAMS, fp32=True, size=LONGEST_CUT),
                State("inv_factor_matrices", CUT_GRAMS, fp32=True, size=LONGEST_CUT),
            ),
            "facebookresearch/optimizers, distributed_shampoo (Adam grafting); Shi et al. 2023, arXiv:2309.06497",
            only_matrices=True,
            whole=True,
            works=preconditioning(LONGEST_CUT),
            note=f"{_MATRICES}; blocks of at most {LONGEST_CUT:,}, roots are recomputed every ten steps; {_ONE_STEP}",
            update=elementwise_update(3, ((3, 1),)),
        ),
        Optimizer(
            "soap",
            (
                State("exp_avg"),
                State("exp_avg_sq"),
                State("GG", GRAMS, size=LONGEST_ROTATED),
                State("Q", GRAMS, size=LONGEST_ROTATED),
            ),
            "pytorch_optimizer 4.1 (SOAP); Vyas et al. 2024, arXiv:2409.11321",
            vectors=(State("exp_avg"), State("exp_avg_sq")),
            forms=("forloop",),
            whole=True,
            works=rotating(LONGEST_ROTATED),
            note=f"sides above {LONGEST_ROTATED:,} stay as they are; bases are recomputed every ten steps; {_ONE_STEP}",
            update=elementwise_update(forloop=((3, 1),)),
        ),
        Optimizer(
            "adam-mini",
            (State("m"), State("vmean", ROWS)),
            "adam_mini 1.1.1; Zhang et al. 2024, arXiv:2406.16793",
            vectors=(State("m"), State("vmean", ONE)),
            forms=("forloop",),
            note="queries and keys keep a number for each head, counted as one for each row",
            update=elementwise_update(forloop=((2, 1),)),
        ),
        *(of_rank(RANK) for of_rank in PROJECTED.values()),
        _projected("apollo-mini", _APOLLO, 1, random=True, any_rank=False),
        Optimizer(
            "schedule-free-adamw",
            (State("z"), State("exp_avg_sq")),
            f"{_FREE}, adamw_schedulefree.py",
            update=_SQUARES,
            accesses=Accesses(5, 7, 12),
            note=_AVERAGED,
        ),
        Optimizer(
            "schedule-free-radam",
            (State("z"), State("exp_avg_sq")),
            f"{_FREE}, radam_schedulefree.py",
            update=_SQUARES,
            accesses=Accesses(5, 7, 12),
            note=_AVERAGED,
        ),
        Optimizer(
            "schedule-free-sgd",
            (State("z"),),
            f"{_FREE}, sgd_schedulefree.py",
            accesses=Accesses(5, 4, 3),
            note=_AVERAGED,
        ),
        Optimizer("ademamix", _AVERAGES, _ADEMAMIX, forms=("fused",)),
        _eight_bit("adam-8bit", "state1", "state2"),
        _eight_bit("adamw-8bit", "state1", "state2"),
        _four_bit("adamw-4bit"),
        _eight_bit("sgd-momentum-8bit", "state1"),
        _eight_bit("rmsprop-8bit", "state1"),
        Optimizer("rmsprop-32bit", (State("state1", fp32=True),), _BITSANDBYTES, forms=("fused",)),
        _eight_bit("adagrad-8bit", "state1"),
        Optimizer("lion-32bit", (State("state1", fp32=True),), _BITSANDBYTES, forms=("fused",)),
        _eight_bit("lion-8bit", "state1"),
        _eight_bit("ademamix-8bit", *(one.name for one in _AVERAGES)),
        _paged("paged-adamw", "state1", "state2", eight=False),
        _paged("paged-adamw-8bit", "state1", "state2", eight=True),
        _paged("paged-lion", "state1", eight=False),
        _paged("paged-lion-8bit", "state1", eight=True),
        _paged("paged-ademamix", *(one.name for one in _AVERAGES), eight=False),
        _paged("paged-ademamix-8bit", *(one.name for one in _AVERAGES), eight=True),
    )
}


def in_eight_bits(optimizer: Optimizer) -> Optimizer | None:
    """Return the same optimizer with states in 8 bits, if there is one."""
    return next((one for one in OPTIMIZERS.values() if one.unquantized == optimizer.name), None)
