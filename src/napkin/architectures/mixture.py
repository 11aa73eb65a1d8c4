"""A decoder's mixture of experts: the fields that describe it, and what they make of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures import blocks, reading
from napkin.architectures.blocks import Block, Operations, Routing
from napkin.architectures.layer_plans import Sparse, after_first, all_sparse
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.record import record, replace

Feed = Callable[..., Operations]
"""A feed-forward block that takes further options (blocks.gated_mlp, blocks.plain_mlp, blocks.moe, or part of one)."""


@record
class Shared:
    """Experts that every token goes through, as one gated MLP.

    width  (config, width of a routed expert) → its width, 0 for none
    field  that says so, read nowhere in a network without experts
    fused  gate and up come from one projection
    gated  the result is multiplied by σ(x·w)
    """

    width: Callable[[Config, int], int]
    field: str = ""
    fused: bool = False
    gated: bool = False


def counted(field: str, least: int = 0) -> Shared:
    """Return as many shared experts as `field` says, each as wide as a routed one."""
    return Shared(lambda config, inner: (config.optional_integer(field, least=least) or 0) * inner, field)


def as_wide_as(field: str, *, fused: bool = False, gated: bool = False) -> Shared:
    """Return one shared expert whose width `field` says."""
    return Shared(lambda config, inner: config.optional_integer(field, least=0) or 0, field, fused, gated)


Routes = Callable[[Config, Routing], Routing]
"""Reads what is particular about a model's router."""


def jittered(field: str, times: int = 1) -> Routes:
    """Noise multiplies the tokens `times` times, if the field that says how strong it is is not 0."""
    return lambda config, routing: replace(routing, jitter=times if config.real(field, required=False) else 0)


@record
class Mixture:
    """The experts of a decoder.

    experts, top_k, inner  fields: how many there are, how many a token chooses, how wide each is
    where      which layers have them
    shared     experts that every token goes through; `shares_dense`: the dense layers' own feed-forward
    score, upcast, balanced  as in operations.experts.Router
    normalize  whether the chosen scores are divided by their sum, or the field that says so
    balances   output_router_logits adds a loss on how evenly the experts are used
    function   of the experts, if it is not the dense layers'; `gated`: theirs and the shared ones' first matmul is
    routing    reads what is particular about the router
    block      blocks.moe, or what this model has instead
    """

    experts: str = "num_local_experts"
    top_k: str = "num_experts_per_tok"
    inner: str = "moe_intermediate_size"
    where: Sparse = all_sparse
    shared: Shared | None = None
    shares_dense: bool = False
    score: str = "softmax"
    normalize: reading.Switch = False
    upcast: bool = False
    balanced: str = ""
    balances: bool = False
    function: str = ""
    gated: bool = True
    routing: Routes = lambda config, routing: routing
    block: Feed = blocks.moe

    def read(self, config: Config, hidden: int, function: str, bias: reading.Switch, dense: Feed | None) -> Block:
        """Read the mixture of a layer; shared experts have the dense layers' function and biases."""
        inner = config.integer(self.inner)
        routing = self._routing(config)
        shared: Block | None = partial(dense, prefix="shared/") if self.shares_dense and dense is not None else None
        width = self.shared.width(config, inner) if self.shared is not None else 0
        if self.shared is not None and width:
            mlp: Feed = partial(blocks.gated_mlp, fused=self.shared.fused) if self.gated else blocks.plain_mlp
            biased = reading.on(config, bias)
            shared = partial(mlp, width=hidden, inner=width, function=function, bias=biased, prefix="shared/")
            shared = blocks.behind_gate(shared, hidden) if self.shared.gated else shared
        block = self.block if self.gated else partial(self.block, gated=False)
        return partial(
            block, width=hidden, inner=inner, routing=routing, function=self.function or function, shared=shared
        )

    def _routing(self, config: Config) -> Routing:
        experts, top_k = reading.chosen_experts(config, self.experts, self.top_k)
        groups, chosen_groups = reading.routing_groups(config, experts)
        normalize = self.normalize
        if isinstance(normalize, str):
            normalize = config.flag(normalize, otherwise=False)
        routing = Routing(
            experts,
            top_k,
            score=self.score,
            normalize=normalize,
            upcast=self.upcast,
            balanced=self.balanced,
            groups=groups,
            chosen_groups=chosen_groups,
        )
        return self.routing(config, routing)

    def ignore(self, config: Config) -> None:
        """Pass over the fields of experts in a network whose layers are all dense."""
        config.ignore(self.experts, self.top_k, self.inner, "norm_topk_prob")
        if self.shared is not None:
            config.ignore(self.shared.field)

    def balance_loss(self, config: Config) -> Operation | None:
        """Read whether there is a loss on how evenly the experts are used."""
        if not self.balances or not config.flag("output_router_logits", otherwise=False):
            return None
        from napkin.operations.router import BalanceLoss

        return BalanceLoss("balance_loss", (), config.integer(self.experts), config.integer(self.top_k))


SIGMOID = Mixture(
    "n_routed_experts",
    where=after_first,
    shared=counted("n_shared_experts"),
    score="sigmoid",
    normalize="norm_topk_prob",
    upcast=True,
    balanced="buffer",
)
"""DeepSeek-V3's routing (arXiv 2412.19437, section 2.1.2), which many others have."""
