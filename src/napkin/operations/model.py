"""Layers, stacks of layers, and models."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from napkin.elementwise import Number, ceil_div
from napkin.operations.base import Operation
from napkin.operations.facts import SHARED_OUTPUT
from napkin.operations.implementations import HF, Implementation
from napkin.record import record, replace


@record
class Beside:
    """Streams of a layer's size next to the one that it reads.

    held    by variables of the class while the layer runs forward; nothing saves them for backward
    waits   whose gradient waits while the layer runs backward: layers on both sides of it read them
    called  whether several layers are a module of their own, whose argument lives until all of them have run
    """

    held: int = 0
    waits: int = 0
    called: bool = False


ALONE = Beside()
"""The residual stream is the only one."""


@record
class Layer:
    """A named list of operations; equal layers compare equal.

    block   whether it is a block, which recomputation checkpoints; else what a class runs between its blocks
    beyond  the first operation after the checkpointed block; "": none
    read    whether its output is used; else no gradient reaches it
    begins  whether it is the first trained one, so that its input has no gradient
    adapted whether adapters are on its modules, where a model has any
    ranks   (module's path, rank) of its adapters with a rank of their own
    beside  streams next to the one that it reads
    """

    kind: str
    operations: tuple[Operation, ...]
    block: bool = True
    beyond: str = ""
    read: bool = True
    begins: bool = False
    adapted: bool = True
    ranks: tuple[tuple[str, int], ...] = ()
    beside: Beside = ALONE


Runs = tuple[tuple[int, Layer], ...]
"""Runs of identical layers: (number, layer)."""
Pattern = tuple[int, Runs]
"""Repeated runs: (number of repetitions, runs)."""
Numbered = tuple[int, tuple[tuple[int, int], ...]]
"""The same with each layer type by its index."""
Parts = tuple[tuple[int, Layer | Runs], ...]
"""Runs and patterns of them in order."""
ENCODER = "encoder"
"""Name of a stack that reads all tokens at once."""
LONGEST_PERIOD = 64
"""Maximum runs of a searched pattern; networks alternate with far fewer."""


@record
class Stack:
    """Layers as patterns of runs, with the operations before them (embedding) and after them (final norm, head).

    Layers that are equal are one object.

    losses  times that the head and its loss run: once more for each multi-token prediction module among the layers
    """

    name: str
    before: tuple[Operation, ...]
    patterns: tuple[Pattern, ...]
    after: tuple[Operation, ...]
    losses: int = 1

    @property
    def runs(self) -> Runs:
        """All runs in order, expanded; only for code whose cost grows with depth anyway."""
        return tuple(run for times, runs in self.patterns for _ in range(times) for run in runs)

    @property
    def depth(self) -> int:
        return sum(times * sum(count for count, _ in runs) for times, runs in self.patterns)

    @property
    def layers(self) -> list[Layer]:
        """Each distinct layer once, in order."""
        return list({id(layer): layer for _, runs in self.patterns for _, layer in runs}.values())

    @property
    def numbered(self) -> tuple[Numbered, ...]:
        """The patterns, with layers by index among the distinct ones."""
        place = {id(layer): at for at, layer in enumerate(self.layers)}
        return tuple((times, tuple((n, place[id(layer)]) for n, layer in runs)) for times, runs in self.patterns)

    def mapped(self, change: Callable[[Layer], Layer]) -> Stack:
        """Return the stack with `change` applied once to each distinct layer."""
        made = {id(layer): change(layer) for layer in self.layers}
        patterns = tuple((times, tuple((n, made[id(one)]) for n, one in runs)) for times, runs in self.patterns)
        return replace(self, patterns=patterns)

    def kinds(self) -> list[tuple[str, int, Layer]]:
        """Return each distinct layer once, with its name and its number."""
        counts: dict[int, int] = {}
        for times, runs in self.patterns:
            for count, layer in runs:
                counts[id(layer)] = counts.get(id(layer), 0) + times * count
        names: dict[str, int] = {}
        result = []
        for layer in self.layers:
            names[layer.kind] = names.get(layer.kind, 0) + 1
            name = layer.kind if names[layer.kind] == 1 else f"{layer.kind}_{names[layer.kind]}"
            result.append((name, counts[id(layer)], layer))
        return result


def stack_of(
    name: str,
    before: tuple[Operation, ...],
    runs: Iterable[tuple[int, Layer | Runs]],
    after: tuple[Operation, ...],
) -> Stack:
    """Return a stack from its runs in order."""
    return Stack(name, before, patterns_of(runs), after)


def patterns_of(parts: Iterable[tuple[int, Layer | Runs]]) -> tuple[Pattern, ...]:
    """Return runs and patterns of runs as patterns only."""
    found: list[Pattern] = []
    runs: list[tuple[int, Layer]] = []
    for times, one in parts:
        if isinstance(one, Layer):
            runs.append((times, one))
        else:
            found += [*_repeating(runs), (times, one)]
            runs = []
    return (*found, *_repeating(runs))


def _repeating(runs: Iterable[tuple[int, Layer]]) -> tuple[Pattern, ...]:
    """Return runs as patterns: equal neighbors merged, then repetitions found, the shortest period first."""
    same: dict[int, Layer] = {}
    distinct: list[Layer] = []
    joined: list[tuple[int, Layer]] = []
    for count, layer in runs:
        if id(layer) not in same:
            same[id(layer)] = next((known for known in distinct if known == layer), layer)
            if same[id(layer)] is layer:
                distinct.append(layer)
        one = same[id(layer)]
        if joined and joined[-1][1] is one:
            joined[-1] = (joined[-1][0] + count, one)
        else:
            joined.append((count, one))
    if len(joined) == 1:
        return ((1, tuple(joined)),)
    import re  # slow to load: for layers that differ only

    letters: dict[tuple[int, int], str] = {}
    text = "".join(letters.setdefault((count, id(layer)), chr(len(letters))) for count, layer in joined)
    patterns: list[Pattern] = []
    past = 0
    for found in re.finditer(rf"(.{{1,{LONGEST_PERIOD}}}?)\1+", text, re.DOTALL):
        begin, end, period = found.start(), found.end(), len(found[1])
        if begin > past:
            patterns.append((1, tuple(joined[past:begin])))
        patterns.append(((end - begin) // period, tuple(joined[begin : begin + period])))
        past = end
    if past < len(joined):
        patterns.append((1, tuple(joined[past:])))
    return tuple(patterns)


@record
class Checkpoint:
    """How a published file stores its weights if they are quantized.

    method  of quantization, as the file names it
    format  of the matrices of layers; "" where napkin does not know it
    each    bytes of a weight in it, its scales included
    kept    modules in 16 bits, as the file lists them
    unlisted  there are others, which a name alone does not tell
    """

    method: str
    format: str = ""
    each: float = 0.0
    kept: tuple[str, ...] = ()
    unlisted: bool = False

    @property
    def assumed(self) -> str:
        """How the weights of its layers are taken, in words."""
        where = " in every layer" if self.unlisted else ", as the file"
        return f"{self.format} weights{where}"


@record
class Model:
    """A network: one stack, or an encoder and a decoder.

    tied      the head shares the token embedding's weight (`tie_word_embeddings`): counted once
    shared    weights that several layers reuse (kept out of the layers): counted once
    extra     layers on request: multi-token prediction
    family    the config's model_type, which selects the reference implementation
    streams   residual streams of `hidden` elements each (hyper-connections)
    vision    the vision part of a multimodal model, if known
    outputs     of the head, if not the vocabulary (0: the vocabulary)
    max_target  maximum tokens of the decoder, if fewer than the encoder's
    checkpoint  how the published file stores its weights, if they are quantized
    missing   what of a multimodal model is not counted, in a few words
    prompt    learned tokens that the class puts before each sequence
    block     the first stack's layers run over sequences that are padded to a multiple of this many tokens
    unit      its class runs sequences of a multiple of this many tokens alone
    least     and of at least this many
    next_token  the class of an encoder that predicts the next token: its loss is that of decoders
    """

    name: str
    stacks: tuple[Stack, ...]
    tied: bool
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_length: int | None = None
    shared: tuple[Operation, ...] = ()
    extra: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()
    family: str = ""
    streams: int = 1
    vision: Vision | None = None
    max_target: int | None = None
    outputs: int = 0
    checkpoint: Checkpoint | None = None
    missing: str = ""
    prompt: int = 0
    block: int = 1
    unit: int = 1
    least: int = 1
    next_token: bool = False

    @property
    def predicting(self) -> Model:
        """The model as it is trained with its multi-token prediction modules: each is one more layer at the end, after
        which the head and its loss run once more (DeepSeek-V3, arXiv 2412.19437, section 2.2; NVIDIA/Megatron-LM
        megatron/core/transformer/multi_token_prediction.py, process_mtp_loss)."""
        *others, last = self.stacks
        more = _repeating((1, module) for module in self.extra) if self.extra else ()
        trained = replace(last, patterns=(*last.patterns, *more), losses=last.losses + len(self.extra))
        return replace(self, stacks=(*others, trained), extra=())

    @property
    def logits(self) -> int:
        """Outputs of the head for one token."""
        return self.outputs or self.vocabulary

    def added(self, length: Number) -> Number:
        """Return the tokens that the class adds to each sequence of `length` before its first stack's layers, and drops
        after them."""
        if self.prompt or self.block == 1:
            return self.prompt
        return ceil_div(length, self.block) * self.block - length

    @property
    def depth(self) -> int:
        return sum(stack.depth for stack in self.stacks)

    @property
    def decoders(self) -> tuple[Stack, ...]:
        """The stacks that run for each generated token: all except an encoder."""
        return tuple(stack for stack in self.stacks if stack.name != ENCODER)

    @property
    def operations(self) -> list[Operation]:
        """The operations of each distinct layer."""
        return [op for stack in self.stacks for layer in stack.layers for op in layer.operations]

    @property
    def shares_tensors(self) -> bool:
        """Whether layers read more of preceding layers than the residual stream."""
        before = (op for stack in self.stacks for op in stack.before)
        return any(op.pattern() == SHARED_OUTPUT for op in (*before, *self.operations))

    @property
    def shares_weights(self) -> bool:
        """Whether layers have the weights of other layers, as looped ones do, besides what `shared` counts."""
        layers = [layer.operations for stack in self.stacks for layer in stack.layers]
        every = {id(op) for op in self.operations}
        return any({id(op.owner()) for op in own} & every - {id(op) for op in own} for own in layers)

    @property
    def on_one_stage(self) -> bool:
        """Whether its layers cannot be divided among pipeline stages: the stages would depend on each other."""
        return self.shares_tensors or self.shares_weights

    @property
    def experts(self) -> set[int]:
        """Numbers of experts that a layer chooses among; none in a dense network."""
        return {op.chooses_among() for op in self.operations} - {0}


@record
class Vision:
    """The vision part of a multimodal model: patches are projected, pass through a tower, and are projected to tokens
    of the language model.

    patches, tower, projector  models of one stack each
    merged   patches per token of the language model
    added    tokens of the tower in addition to the patches
    grid     patches of an image of the config's size, 0 if the config does not fix it
    tokens   tokens of it in the language model, 0 if the config does not fix it
    implementation  the implementation of the tower
    traced   whether the saved bytes with images were measured on the class (tools/vision_bytes.py)
    across   layers of the language model attend to its output, instead of tokens in the sequence
    queries  learned queries of the projector attend to the tower's output: `tokens` of an image of any size
    """

    patches: Model
    tower: Model
    projector: Model
    merged: int = 1
    added: int = 0
    grid: int = 0
    tokens: int = 0
    implementation: Implementation = HF
    traced: bool = False
    across: bool = False
    queries: bool = False

    @property
    def parts(self) -> tuple[Model, Model, Model]:
        return self.patches, self.tower, self.projector

    def lengths(self, tokens: int = 0) -> tuple[int, int, int] | None:
        """Return the tokens of each part for an image: of the config's size, or of a size with `tokens` tokens in the
        language model; None if unknown."""
        given = tokens and not self.queries
        patches, seen = (tokens * self.merged, tokens) if given else (self.grid, self.tokens)
        return (patches, patches + self.added, seen) if patches and seen else None
