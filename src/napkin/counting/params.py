"""Parameters: a fold over the operations' weights, as a tree down to each weight's shape.

    total          token table + head + everything else; a tied head is the table, counted once
    active         total less the experts that a token does not choose: routers, shared experts and tables are all in
    non_embedding  total less token tables and head; learned positions stay in
    lookup_embedding  of the tables, those that are looked up alone: of layers' own inputs, and an encoder's where the
                   head shares the decoder's
Buffers are no parameters. Runs of equal layers are counted once and multiplied, so cost does not grow with depth.
"""

from __future__ import annotations

from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model
from napkin.operations.roles import LAYERS, LM_HEAD, POSITION, SHARED_EXPERT, TOKEN
from napkin.operations.work import Weight
from napkin.term import GIVEN, Term, add, constant, leaf, multiply, subtract

PARAM = "param"
_DIMENSIONS = {1: ("entries",), 2: ("rows", "columns"), 3: ("blocks", "rows", "columns")}
Tree = list[Term]


def params(model: Model, mtp: bool = False) -> dict[str, Term]:
    """Return every published count of parameters, by path. `mtp`: with the multi-token prediction modules."""
    embedding: Tree = []
    positions: Tree = []
    inputs: Tree = []
    outside: Tree = []
    head: Tree = []
    layers: Tree = []
    one_layer: Tree = []
    idle: Tree = []
    of_kind: dict[str, Tree] = {"router": [], "experts": [], "shared_experts": []}
    for stack in model.stacks:
        prefix = f"{stack.name}/" if len(model.stacks) > 1 else ""
        own = bool(model.stacks[-1].before[0].embeds())  # a decoder's table, which its head may share
        tokens = inputs if model.tied and own and stack is not model.stacks[-1] else embedding
        for operation in stack.before:
            path = f"params/{prefix}{operation.name}"
            into = {TOKEN: tokens, POSITION: positions, LAYERS: inputs}.get(operation.embeds(), outside)
            into += [weight_params(path, w) for w in operation.weights()]
        for name, count, layer in stack.kinds():
            times = leaf(f"{prefix}{name}_layers", count, "1", GIVEN)
            one = layer_params(f"params/layer/{prefix}{name}", layer)
            one_layer.append(one)
            layers.append(multiply(f"params/layers/{prefix}{name}", times, one))
            for kind, parts in _kinds(f"params/layer/{prefix}{name}", layer).items():
                if parts:
                    each = _sum(f"params/{kind}/{prefix}{name}/each", parts)
                    of_kind[kind].append(multiply(f"params/{kind}/{prefix}{name}", times, each))
            unused = _idle(f"params/layer/{prefix}{name}", layer)
            if unused:
                each = _sum(f"params/idle/{prefix}{name}/each", unused)
                idle.append(multiply(f"params/idle/{prefix}{name}", times, each))
        for operation in stack.after:
            for weight in operation.weights():
                is_head = operation.role == LM_HEAD and weight.name == "weight"
                if is_head and model.tied:
                    continue
                (head if is_head else outside).append(weight_params(f"params/{prefix}{operation.name}", weight))
    layers += [weight_params(f"params/shared_layers/{op.name}", w) for op in model.shared for w in op.weights()]
    if mtp:
        layers += _predicting(model, idle, of_kind)
    return _published(model, embedding, head, positions, inputs, outside, layers, one_layer, idle, of_kind)


def _published(
    model: Model,
    embedding: Tree,
    head: Tree,
    positions: Tree,
    inputs: Tree,
    outside: Tree,
    layers: Tree,
    one_layer: Tree,
    idle: Tree,
    of_kind: dict[str, Tree],
) -> dict[str, Term]:
    tied = "the head's matrix is the token table" if model.tied else "no head"
    alone = [_sum("params/lookup_embedding", inputs)] if inputs else []
    found: list[Term] = [
        _sum("params/embedding", [*embedding, *alone], "no token table"),
        _sum("params/lm_head", head, tied),
        _sum("params/layers", layers, "no layers"),
    ]
    if positions:
        found.append(_sum("params/position_embedding", positions))
        outside = [*outside, found[-1]]
    if outside:
        found.append(_sum("params/outside_layers", outside))
    rest = [term for term in found if term.name in ("params/layers", "params/outside_layers")]
    non_embedding = _sum("params/non_embedding", rest)
    total = add("params/total", found[0], found[1], non_embedding)
    if idle:
        unused = _sum("params/idle_experts", idle)
        active = subtract("params/active", total, unused)
    else:
        active = total.renamed("params/active")
    found = [total, active, non_embedding, *found, *alone]
    found += [_sum(f"params/{kind}", parts) for kind, parts in of_kind.items() if parts]
    found += [term for term in layers if term.name.startswith("params/layers/")]
    found += one_layer
    return {term.name: term for term in found}


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
    """Routers, routed experts and shared experts of one layer."""
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


def _predicting(model: Model, idle: Tree, of_kind: dict[str, Tree]) -> Tree:
    """Return the parameters of the multi-token prediction modules, all alike."""
    if not model.extra:
        return []
    path, layer = "params/layer/multi_token_prediction", model.extra[0]
    times = leaf("prediction_modules", len(model.extra), "1", GIVEN)
    for kind, parts in (*_kinds(path, layer).items(), ("", _idle(path, layer))):
        if parts:
            name = f"params/{kind or 'idle'}/multi_token_prediction"
            each = _sum(f"{name}/each", parts)
            (of_kind[kind] if kind else idle).append(multiply(name, times, each))
    return [multiply("params/layers/multi_token_prediction", times, layer_params(path, layer))]
