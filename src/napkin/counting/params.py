"""Parameters: a fold over the operations' weights, as a tree down to each weight's shape.

    total          token embedding + head + everything else; a tied head is the embedding, counted once
    active         total without the experts that a token does not choose; routers, shared experts and embeddings count
    non_embedding  total without token embeddings and head; learned positions count
    lookup_embedding  embeddings that are only looked up: those of per-layer inputs, and an encoder's if the head shares
the decoder's Buffers are not parameters. Runs of equal layers are counted once and multiplied, so cost does not grow
with depth."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model
from napkin.operations.queries import is_head_matrix
from napkin.operations.roles import LAYERS, POSITION, SENSES, SHARED_EXPERT, TOKEN
from napkin.operations.work import Weight
from napkin.term import GIVEN, Term, add, constant, leaf, multiply, subtract

PARAM = "param"
_DIMENSIONS = {1: ("entries",), 2: ("rows", "columns"), 3: ("blocks", "rows", "columns")}
Tree = list[Term]


class _Found:
    """Terms of a model's weights by part.

    embedding  token embeddings             lookup   embeddings that are only looked up
    positions  learned positions            outside  other weights outside of the layers
    layers     all layers                   each     one layer of each kind
    idle       experts that a token does not choose   of_kind  routers, routed and shared experts
    """

    def __init__(self) -> None:
        self.embedding: Tree = []
        self.lookup: Tree = []
        self.positions: Tree = []
        self.outside: Tree = []
        self.head: Tree = []
        self.layers: Tree = []
        self.each: Tree = []
        self.idle: Tree = []
        self.of_kind: dict[str, Tree] = {"router": [], "experts": [], "shared_experts": []}

    def add_before(self, path: str, operations: Iterable[Operation], alone: bool) -> None:
        """Add the weights before the layers. alone: the token embedding is only looked up and is not a tied head."""
        tokens = self.lookup if alone else self.embedding
        of_table = {TOKEN: tokens, POSITION: self.positions, LAYERS: self.lookup}
        for operation in operations:
            into = of_table.get(operation.embeds(), self.outside)
            into += [weight_params(f"{path}{operation.name}", weight) for weight in operation.weights()]

    def add_layers(self, name: str, times: Term, layer: Layer) -> Term:
        """Add equal layers, and return the parameters of one."""
        path = f"params/layer/{name}"
        one = layer_params(path, layer)
        self.layers.append(multiply(f"params/layers/{name}", times, one))
        for kind, parts in _kinds(path, layer).items():
            if parts:
                each = _sum(f"params/{kind}/{name}/each", parts)
                self.of_kind[kind].append(multiply(f"params/{kind}/{name}", times, each))
        if unused := _idle(path, layer):
            each = _sum(f"params/idle/{name}/each", unused)
            self.idle.append(multiply(f"params/idle/{name}", times, each))
        return one

    def add_after(self, path: str, operations: Iterable[Operation], tied: bool) -> None:
        """Add the weights after the layers. tied: the head's matrix is the token embedding."""
        for operation in (op for op in operations if op.role not in SENSES):
            for weight in operation.weights():
                is_head = is_head_matrix(operation, weight)
                if not (is_head and tied):
                    into = self.head if is_head else self.outside
                    into.append(weight_params(f"{path}{operation.name}", weight))


def params(model: Model, mtp: bool = False) -> dict[str, Term]:
    """Return every published count of parameters, by path. `mtp`: with the multi-token prediction modules."""
    found = _Found()
    last = model.stacks[-1]
    own = bool(last.before[0].embeds())  # a decoder's table, which its head may share
    for stack in model.stacks:
        prefix = f"{stack.name}/" if len(model.stacks) > 1 else ""
        found.add_before(f"params/{prefix}", stack.before, alone=model.tied and own and stack is not last)
        for name, count, layer in stack.kinds():
            times = leaf(f"{prefix}{name}_layers", count, "1", GIVEN)
            found.each.append(found.add_layers(f"{prefix}{name}", times, layer))
        found.add_after(f"params/{prefix}", stack.after, model.tied)
    shared = [weight_params(f"params/shared_layers/{op.name}", w) for op in model.shared for w in op.weights()]
    found.layers += shared
    if mtp and model.extra:
        times = leaf("prediction_modules", len(model.extra), "1", GIVEN)
        found.add_layers("multi_token_prediction", times, model.extra[0])
    return _published(found, model.tied)


def _published(of: _Found, tied: bool) -> dict[str, Term]:
    """Return the published terms, the total first."""
    alone = [_sum("params/lookup_embedding", of.lookup)] if of.lookup else []
    embedding = _sum("params/embedding", [*of.embedding, *alone], "no token table")
    head = _sum("params/lm_head", of.head, "the head's matrix is the token table" if tied else "no head")
    layers = _sum("params/layers", of.layers, "no layers")
    positions = [_sum("params/position_embedding", of.positions)] if of.positions else []
    around = [*of.outside, *positions]
    outside = [_sum("params/outside_layers", around)] if around else []
    non_embedding = _sum("params/non_embedding", [layers, *outside])
    total = add("params/total", embedding, head, non_embedding)
    active = total.renamed("params/active")
    if of.idle:
        active = subtract("params/active", total, _sum("params/idle_experts", of.idle))
    kinds = [_sum(f"params/{kind}", parts) for kind, parts in of.of_kind.items() if parts]
    runs = [term for term in of.layers if term.name.startswith("params/layers/")]
    published = (total, active, non_embedding, embedding, head, layers, *positions, *outside, *alone, *kinds, *runs)
    return {term.name: term for term in (*published, *of.each)}


def _sum(name: str, parts: Tree, where_none: str = "") -> Term:
    if not parts:
        return constant(name, 0, PARAM, where_none)
    return parts[0].renamed(name) if len(parts) == 1 else add(name, *parts)


def weight_params(path: str, weight: Weight, copies: int | Term | None = None) -> Term:
    """Return the product of a weight's dimensions; each element is one parameter."""
    names = _DIMENSIONS.get(len(weight.shape), tuple(f"dimension_{i}" for i in range(len(weight.shape))))
    name = f"{path}/{weight.name}"
    dimensions = [
        leaf(f"{name}/{dimension}", size, PARAM if last == len(names) else "1", GIVEN)
        for last, (dimension, size) in enumerate(zip(names, weight.shape, strict=True), 1)
    ]
    if isinstance(copies, Term):
        dimensions.insert(0, copies)
    elif weight.copies > 1:
        dimensions.insert(0, leaf(f"{name}/experts", weight.copies, "1", GIVEN))
    if len(dimensions) == 1:
        return Term(name, dimensions[0].value, PARAM, "given", (), "", GIVEN)
    return multiply(name, *dimensions)


def _operation(path: str, operation: Operation) -> Term | None:
    parts = [weight_params(f"{path}/{operation.name}", w) for w in operation.weights()]
    return _sum(f"{path}/{operation.name}", parts) if parts else None


def layer_params(path: str, layer: Layer) -> Term:
    """Return the parameters of one layer."""
    found = [term for op in layer.operations if (term := _operation(path, op)) is not None]
    return _sum(path, found, "a layer without weights")


def _kinds(path: str, layer: Layer) -> dict[str, Tree]:
    """Return the parameters of one layer's routers, routed experts and shared experts."""
    found: dict[str, Tree] = {"router": [], "experts": [], "shared_experts": []}
    for operation in layer.operations:
        kind = operation.expert_part()
        if operation.role == SHARED_EXPERT:
            kind = "shared_experts"
        if kind and (term := _operation(path, operation)) is not None:
            found[kind].append(term)
    return found


def _idle(path: str, layer: Layer) -> Tree:
    """Return the parameters of one layer's experts that a token is not routed to."""
    found: Tree = []
    for operation in layer.operations:
        for weight in operation.weights():
            if weight.used < weight.copies:
                name = f"{path}/{operation.name}/{weight.name}"
                experts = leaf(f"{name}/experts", weight.copies, "1", GIVEN)
                chosen = leaf(f"{name}/top_k", weight.used, "1", GIVEN)
                idle = subtract(f"{name}/idle", experts, chosen)
                found.append(weight_params(f"{path}/{operation.name}", weight, idle))
    return found
