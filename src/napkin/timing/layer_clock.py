"""The clock of a layer: the seconds of each kind of operation, forward and backward, by group."""

from __future__ import annotations

from collections.abc import Iterable

from napkin import term
from napkin.elementwise import holds_for_all, is_array, where
from napkin.formats import stored_bytes
from napkin.operations.base import Operation, Timer
from napkin.operations.facts import (
    AttentionCost,
    LinearLayer,
    MergedExperts,
    Reparameterization,
    RoutedExperts,
    ThinPair,
)
from napkin.operations.rewrite import FusedLinear, divided_outputs
from napkin.operations.roles import ADAPTER, COLUMN, HEADS, ROW, TABLES
from napkin.operations.work import Learning, Work
from napkin.record import replace
from napkin.term import Term
from napkin.timing.attention import core_time, score_time
from napkin.timing.clock import BYTE, IN_BACKWARD, IN_FORWARD, ONE, Clock, size, split, total

GROUPS = ("matmul", "attention", "elementwise", "casts", "accumulation", "tensor", "context", "expert", "host")
"""The groups of a layer's time. compute: matmul, attention · memory-bound: elementwise, casts, accumulation ·
communication: tensor, context, expert · overhead: host, the time that kernels wait for their launch."""

COMPUTE, MEMORY, COMMUNICATION = GROUPS[:2], GROUPS[2:5], GROUPS[5:8]


Groups = dict[str, list[Term]]
"""Seconds by group."""


class LayerClock(Timer):
    """Collects the seconds of a layer's operations by group, forward and backward."""

    def __init__(self, clock: Clock, kind: str) -> None:
        self.clock, self.kind = clock, kind
        self.forward: Groups = {group: [] for group in GROUPS}
        self.backward: Groups = {group: [] for group in GROUPS}
        self.linears: list[LinearLayer] = []
        self.routed: list[dict[str, Term]] = []
        self.adapters: dict[tuple[object, ...], ThinPair] = {}
        self.learns = True
        self.work = Work(clock.layout.micro_batch, clock.layout.sequence / clock.layout.cp)

    def add(self, forward: dict[str, Term], backward: dict[str, Term]) -> None:
        """Add seconds by group."""
        for group, seconds in forward.items():
            self.forward[group].append(seconds)
        for group, seconds in backward.items():
            self.backward[group].append(seconds)

    def attention(self, op: AttentionCost) -> None:
        """Add the attention core, for the fused kernel or eager code."""
        forward, backward = core_time(self.clock, op, f"{self.kind}/{op.name}")
        self.add({"attention": forward}, {"attention": backward} if op.learning.inputs else {})
        if not holds_for_all(self.clock.layout.masked == 0) and op.kv_heads < op.heads:
            self.repeat(op)

    def repeat(self, op: AttentionCost) -> None:
        """Add the copies of keys and values for each query head, which transformers makes where attention reads a mask,
        and the sums of their gradients (integrations/sdpa_attention.py, use_gqa_in_sdpa and repeat_kv)."""
        name = f"{self.kind}/{op.name}/repeated"
        width = (op.heads + op.kv_heads) * (op.qk_dim + op.v_dim)
        each = term.leaf(f"{name}/each", 2 * width, BYTE, term.TRUE, "16 bits: read once, written for each query head")
        tokens = term.divide(f"{name}/tokens", self.clock.tokens, self.clock.tp)
        seconds = self.clock.move(name, term.multiply(f"{name}/bytes", each, tokens))
        self.add({"elementwise": seconds}, {"elementwise": seconds} if op.learning.inputs else {})

    def experts(self, op: RoutedExperts) -> None:
        """Add routed experts, with their tokens exchanged over ep."""
        from napkin.timing.experts import expert_time

        forward, backward = expert_time(self.clock, op, f"{self.kind}/{op.name}")
        self.add(forward, backward)
        self.routed.append(forward)
        local = size(f"{self.kind}/{op.name}/local", op.experts / self.clock.layout.ep / self.clock.layout.etp)
        each = size(f"{self.kind}/{op.name}/matrices", (3 if op.gated else 2) * op.d_model * op.d_ff)
        elements = term.multiply(f"{self.kind}/{op.name}/elements", local, each)
        self.frozen(f"{self.kind}/{op.name}", elements, op.learning)
        rows = term.multiply(f"{self.kind}/{op.name}/routed_rows", self.clock.tokens, size("top_k", op.top_k))
        width = (3 if op.gated else 2) * (op.d_model + op.d_ff)
        self.returned(f"{self.kind}/{op.name}", op.learning, rows, size(f"{self.kind}/{op.name}/width", width))

    def hide_exchange(self) -> None:
        """Leave of the experts' exchange what the compute of the other pass does not hide, where both run at once."""
        if not self.forward["expert"] or holds_for_all(self.clock.rates.expert_exposed == 1):
            return
        from napkin.timing.experts import shown_exchange

        passes = (("forward", self.forward, self.backward), ("backward", self.backward, self.forward))
        shown = []
        for way, own, other in passes:
            name = f"{self.kind}/expert/{way}"
            beside = total(f"{name}/beside", (one for group in (*COMPUTE, *MEMORY) for one in other[group]))
            shown.append(shown_exchange(self.clock, name, total(f"{name}/exchange", own["expert"]), beside))
        self.forward["expert"], self.backward["expert"] = [shown[0]], [shown[1]]

    def linear(self, op: LinearLayer) -> None:
        """Add a linear layer, to be timed with those that it is fused with."""
        self.linears.append(op)

    def adapter(self, op: ThinPair) -> None:
        """Add the two thin matmuls of an adapter, each a separate kernel; for an embedding, the first is a lookup."""
        clock, name = self.clock, f"{self.kind}/{op.name}"
        rows = clock.read if op.reads_encoder else clock.tokens
        if op.copies == 1 and op.shard in (COLUMN, ROW):  # what reads the same tensor is one fused layer, gathered once
            self.adapters[op.shard, op.reads] = op
        if op.copies > 1:  # tensor-parallel ranks divide the tokens of experts, as for the experts themselves
            rows = term.divide(f"{name}/rows/own", rows, clock.tp)
        if op.used > 1:
            rows = term.multiply(f"{name}/rows", size(f"{name}/used", op.used), rows)
        d_in, d_out = size(f"{name}/d_in", op.d_in), size(f"{name}/d_out", op.d_out)
        thin, rank = size(f"{name}/thin", op.thin), size(f"{name}/rank", op.rank)
        of_b = of_a = rows
        if op.shard == ROW:
            d_in = term.divide(f"{name}/A/k", d_in, clock.tp)
            of_b = rows if op.divided else term.divide(f"{name}/B/rows", rows, clock.stream)
        elif op.divided and op.copies == 1:
            thin = term.divide(f"{name}/A/n", thin, clock.tp)
        elif op.shard == COLUMN:
            of_a = term.divide(f"{name}/A/rows", rows, clock.stream)
        if op.shard == COLUMN or (op.divided and op.copies == 1):
            d_out = term.divide(f"{name}/B/n", d_out, clock.tp)
        pairs = [clock.linear(f"{name}/B", of_b, rank, d_out)]
        if not op.looked_up:
            pairs.append(clock.linear(f"{name}/A", of_a, d_in, thin, learning=op.learning))
        for forward, backward in pairs:
            self.add({"matmul": forward}, {"matmul": backward})

    def norm_of_weight(self, op: ThinPair) -> None:
        """Add B·A·1, computed with an identity matrix, and the elementwise work on W + B·A: the scaled product, the sum
        and the norm read two, write one, read two, write one, read one (peft, tuners/lora/dora.py, forward)."""
        clock, name = self.clock, f"{self.kind}/{op.name}/norm"
        d_in, thin = size(f"{name}/d_in", op.d_in), size(f"{name}/thin", op.thin)
        rank, d_out = size(f"{name}/rank", op.rank), size(f"{name}/d_out", op.d_out)
        if op.shard == ROW:
            d_in = term.divide(f"{name}/A/k", d_in, clock.tp)
        if op.shard == COLUMN:
            d_out = term.divide(f"{name}/B/n", d_out, clock.tp)
        down, up = clock.gemm(f"{name}/A", d_in, d_in, thin), clock.gemm(f"{name}/B", d_in, rank, d_out)
        each = term.constant("bytes_of_a_norm", 14, BYTE, "16 bits: seven elements read or written")
        moved = clock.move(f"{name}/moved", term.multiply(f"{name}/bytes", each, d_in, d_out))
        self.add({"matmul": term.add(f"{name}/products", down, up), "elementwise": moved}, {})

    def reparameterized(self, op: Reparameterization) -> None:
        """Add an adapter's matmuls with the tokens and between weights, and the traffic of computing its weights."""
        clock, name = self.clock, f"{self.kind}/{op.name}"
        for one, learning in op.timed():
            rows = size(f"{name}/{one.name}/m", one.m) if one.m else clock.tokens
            k, n = size(f"{name}/{one.name}/k", one.k), size(f"{name}/{one.name}/n", one.n)
            batch = size(f"{name}/{one.name}/batch", one.batch) if one.batch > 1 else ONE
            forward, backward = clock.linear(f"{name}/{one.name}", rows, k, n, batch, learning=learning)
            self.add({"matmul": forward}, {"matmul": backward})
        ahead, back = (
            clock.move(
                f"{name}/{way}", term.leaf(f"{name}/{way}/bytes", moved, BYTE, term.TRUE, "elements of its weights")
            )
            for way, moved in zip(("made", "unmade"), op.moved(), strict=True)
        )
        self.add({"elementwise": ahead}, {"elementwise": back})

    def merged(self, op: MergedExperts) -> None:
        """Add the matmul B·A of every expert on this GPU, and its sum with the weights, which reads two elements and
        writes one."""
        clock, name = self.clock, f"{self.kind}/{op.name}"
        m, k, n = (size(f"{name}/{what}", getattr(op, what)) for what in ("d_out", "rank", "d_in"))
        copies = size(f"{name}/copies", op.copies)
        ranks = size("ep", clock.layout.ep), size("etp", clock.layout.etp)
        local = term.divide(f"{name}/local", copies, *ranks) if op.copies > 1 else copies
        forward, backward = clock.linear(name, m, k, n, local)
        each = term.constant("bytes_of_a_sum", 6, BYTE, "16 bits: two read, one written")
        added = clock.move(f"{name}/added", term.multiply(f"{name}/added/bytes", each, local, m, n))
        self.add({"matmul": forward, "elementwise": added}, {"matmul": backward})

    def frozen(self, name: str, elements: Term, learning: Learning) -> None:
        """Add what a matmul does first to frozen weights: expand those of a stored format, and cast those in fp32 under
        autocast, forward and where recomputed; autograd saves what it cast."""
        casts = self.clock.layout.frozen_casts
        if learning.stored:
            self.expand(name, elements, learning)
        elif not learning.trained and (is_array(casts) or casts):
            each = term.leaf("bytes_cast", casts, BYTE, term.TRUE, "autocast caches the casts of trained weights alone")
            self.add(
                {"casts": self.clock.move(f"{name}/cast", term.multiply(f"{name}/cast/bytes", each, elements))}, {}
            )

    def expand(self, name: str, elements: Term, learning: Learning) -> None:
        """Add the traffic of quantized weights that are expanded to 16 bits before a matmul: read as stored and written
        in 16 bits, in forward and again for the inputs' gradient (bitsandbytes/autograd/_functions.py, MatMul4Bit); or
        by elementwise operations, whose last output autograd saves for that gradient."""
        from napkin.timing.expansion import EXPANSIONS, ONE_KERNEL, decoded

        stored = term.leaf("bytes_stored", stored_bytes(learning.stored), BYTE, term.TRUE, learning.stored)
        expansion = EXPANSIONS.get(learning.stored, ONE_KERNEL)
        each = term.add(f"{name}/expanded/each", stored, expansion.written)
        moved = term.multiply(f"{name}/expanded/bytes", each, elements)
        if stored.value == 1:  # products of 8 bits take them as they are
            moved = term.choose(f"{name}/expanded/wide", self.clock.low, term.constant("no bytes", 0, BYTE), moved)
        seconds = self.clock.move(f"{name}/expanded", moved)
        if expansion.decoded:
            moving = seconds.renamed(f"{name}/expanded/moved")
            seconds = decoded(self.clock, f"{name}/expanded", elements, moving)
        self.add({"casts": seconds}, {"casts": seconds} if learning.inputs and expansion.again else {})

    def returned(self, name: str, learning: Learning, rows: Term, width: Term) -> None:
        """Add the casts of quantized linear layers that read a stream in fp32: of what they read to 16 bits and of what
        they make back, and of the gradients of both (bitsandbytes nn/modules.py, Linear4bit.forward, inp_dtype).
        width: elements of a row, read and made."""
        wide = self.clock.layout.wide_stream
        if not learning.stored or not (is_array(wide) or wide):
            return
        each = term.leaf(f"{name}/returned/cast", where(wide > 0, 6, 0), BYTE, term.TRUE, "16 and 32 bits")
        seconds = self.clock.move(f"{name}/returned", term.multiply(f"{name}/returned/bytes", each, rows, width))
        self.add({"casts": seconds}, {"casts": seconds} if learning.inputs else {})

    def gemms(self, op: Operation) -> None:
        """Add any other operation's GEMMs: routers, block-diagonal ones, chunked scans, which recipes of fewer than 16
        bits leave as they are. Tensor parallelism divides their heads or blocks."""
        clock, t = self.clock, self.clock.tp
        for one in op.products(self.work):
            name = f"{self.kind}/{one.name}"
            m, k, n = (
                term.largest(f"{name}/{axis}/at_least", size(f"{name}/{axis}", getattr(one, axis)), ONE)
                for axis in ("m", "k", "n")
            )
            batch = term.largest(f"{name}/batch", term.divide(f"{name}/batch/local", size("batch", one.batch), t), ONE)
            learning = op.learning if one.weight else replace(op.learning, weights=op.learning.inputs)
            forward, backward = clock.linear(name, m, k, n, batch, wide=True, learning=learning)
            if not one.backward:
                self.add({"matmul": forward}, {})
                continue
            if is_array(one.flops):  # a GEMM that only some of the layouts run (a last, shorter chunk)
                runs = term.leaf(f"{name}/runs", where(one.flops > 0, 1, 0), "1", term.TRUE, "1 where it is run at all")
                forward = term.multiply(f"{name}/forward", runs, forward)
                backward = term.multiply(f"{name}/backward", runs, backward)
            self.add({"matmul": forward}, {"matmul": backward})
        self.moved_scores(op)

    def moved_scores(self, op: Operation) -> None:
        """Add the memory traffic of an operation's attention scores; in backward, if its matmuls have a backward pass,
        or if a gradient flows through what it adds to the scores."""
        scores = op.scores(self.work)
        if not is_array(scores) and not scores:
            return
        name = f"{self.kind}/{op.name}"
        every = size(f"{name}/scores/all", scores)
        forward, backward = score_time(self.clock, term.divide(f"{name}/scores", every, self.clock.tp), name)
        products = op.products(self.work)
        learns = any(one.backward for one in products) if products else op.learning.runs
        self.add({"attention": forward}, {"attention": backward} if learns else {})

    def elementwise(self, operations: Iterable[Operation]) -> None:
        """Add the traffic of elementwise operations; tensors that tensor parallelism divides have 1/t of the size."""
        operations = tuple(operations)
        divided = divided_outputs(operations)
        stored = any(one.learning.stored for one in self.linears)  # what they make is as wide as the stream
        clock = self.clock
        moved: tuple[list[Term], list[Term]] = ([], [])
        exact: tuple[list[Term], list[Term]] = ([], [])
        for op in operations:
            ranks = clock.tp if op.name in divided or op.division() == HEADS else clock.stream
            if op.embeds() in TABLES:  # each rank has its rows for all tokens
                ranks = ONE
            several = holds_for_all(clock.layout.elementary > 0) and any(is_array(n) or n for n in op.elementary())
            counted = several or op.role == ADAPTER  # kernel by kernel
            traffic = op.elementary() if several else op.traffic()
            for parts, way, each in zip(exact if counted else moved, ("forward", "backward"), traffic, strict=True):
                if (is_array(each) or each) and (way == "forward" or op.learning.runs):
                    name = f"{self.kind}/{op.name}/{way}/bytes"
                    in_stream = op.normalizes() or op.residual() is not None
                    wide = where(clock.layout.wide_stream > 0, 2, 1) if (in_stream or stored) and not several else 1
                    per_token = term.leaf(
                        f"{name}/per_token", wide * each, BYTE, term.TRUE, "16 bits, under autocast 32"
                    )
                    parts.append(term.divide(name, term.multiply(f"{name}/all", clock.tokens, per_token), ranks))
        more = clock.rate("elementwise", clock.rates.elementwise)
        seconds = []
        for way, parts, kernels in zip(("forward", "backward"), moved, exact, strict=True):
            name = f"{self.kind}/elementwise/{way}"
            least = term.add(f"{name}/least", *parts) if parts else term.constant(f"{name}/least", 0, BYTE)
            every = term.multiply(f"{name}/bytes", more, least)
            seconds.append(clock.move(name, term.add(f"{name}/all", every, *kernels) if kernels else every))
        self.add({"elementwise": seconds[0]}, {"elementwise": seconds[1]})

    def fused(self, linears: Iterable[FusedLinear]) -> Term | None:
        """Add linear layers, with those that read the same tensor and are divided the same way fused into one GEMM, and
        the casts of their inputs if they run in 8 or 4 bits. Return the last one's seconds, part of which recomputation
        skips."""
        clock = self.clock
        last: Term | None = None
        inputs: list[Term] = []
        for one in linears:
            name = f"{self.kind}/{one.name}"
            rows = clock.read if one.reads_encoder else clock.tokens
            k, n = local_shape(one, name, clock.tp)
            last, backward = clock.linear(name, rows, k, n, learning=one.learning)
            self.add({"matmul": last}, {"matmul": backward})
            self.frozen(name, term.multiply(f"{name}/elements", k, n), one.learning)
            read = term.multiply(f"{name}/read", size(f"{name}/layers", one.parts), k)
            self.returned(name, one.learning, rows, term.add(f"{name}/read_and_made", read, n))
            inputs.append(term.multiply(f"{name}/inputs", rows, k))
        elements = (
            term.add(f"{self.kind}/cast_elements", *inputs)
            if inputs
            else term.constant(f"{self.kind}/cast_elements", 0)
        )
        cast = term.multiply(
            f"{self.kind}/cast",
            clock.rate("cast_bytes", clock.rates.cast_bytes, BYTE),
            clock.low,
            size("casts", clock.layout.casts),
            elements,
        )
        seconds = []
        for way, share in (("forward", IN_FORWARD), ("backward", IN_BACKWARD)):
            name = f"{self.kind}/casts/{way}"
            part = term.multiply(f"{name}/bytes", split(f"casts/{way}", share), cast)
            seconds.append(clock.move(name, part))
        self.add({"casts": seconds[0]}, {"casts": seconds[1]} if self.learns else {})
        return last


def local_shape(linear: FusedLinear, name: str, tp: Term) -> tuple[Term, Term]:
    """Return (k, n) on one rank: a row-parallel layer divides its input, a column-parallel one its output."""
    k, n = size(f"{name}/d_in", linear.d_in), size(f"{name}/d_out", linear.d_out)
    if linear.shard == ROW:
        k = term.divide(f"{name}/k", k, tp)
    if linear.shard == COLUMN:
        n = term.divide(f"{name}/n", n, tp)
    return k, n
