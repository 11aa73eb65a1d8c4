"""Write the table of docs/plan.md: where the layouts of published runs rank among all that `napkin plan` finds.

python tools/layouts.py
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from napkin.architectures import implementation_of
from napkin.errors import NapkinError
from napkin.evidence.fit.columns import UNSTATED_VOCABULARY, software_of
from napkin.evidence.fit.generic import decoder
from napkin.evidence.predictions import one_run
from napkin.evidence.rates.machines import machine
from napkin.evidence.rates.of_step import Asynchronous
from napkin.evidence.rows import facts
from napkin.evidence.rows.steps import StepRow
from napkin.evidence.software import stacks
from napkin.inputs import hardware
from napkin.operations.model import stack_of
from napkin.planning.grid import Request
from napkin.planning.search import search
from napkin.planning.verdicts import used_bytes
from napkin.record import record, replace
from napkin.timing.rates import Rates
from napkin.timing.step import step
from napkin.timing.step_layout import StepLayout
from napkin.training import optimizer_names
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.layout import Layout
from napkin.training.precision import POLICIES
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup

PAGE = Path(__file__).resolve().parent.parent / "docs" / "plan.md"
BEGIN, END = "<!-- made by tools/layouts.py -->", "<!-- end -->"
LEAST, DETAILED = 16, 128
"""GPUs below which there is hardly a layout to choose, and from which on each run has a line of its own."""


def layout_of(row: StepRow) -> Layout:
    """Return the published layout; what a row leaves open follows its software."""
    stack = software_of(row)
    zero = stack.zero if row.zero is None else row.zero
    sp = stack.sequence_parallel if row.sp is None else row.sp
    assert row.micro_batch
    assert row.global_batch
    return Layout(
        seq=row.seq,
        micro=int(row.micro_batch),
        micro_batches=int(row.global_batch / (row.micro_batch * row.dp)),
        tp=row.tp,
        pp=row.pp,
        dp=row.dp,
        cp=row.cp,
        ep=row.ep,
        vp=row.vp or 1,
        sp=int(bool(sp) and row.tp > 1),
        zero=zero if row.dp > 1 else 0,
        recompute=recompute(row.recompute),
    )


def stated(row: StepRow) -> bool:
    """Whether the row says enough of its layout to be one of those that are searched."""
    return bool(
        row.shape
        and row.measured
        and row.micro_batch
        and row.global_batch
        and not row.suspect
        and row.stack in stacks.STACKS
        and row.gpus >= LEAST
        and row.gpus == row.tp * row.pp * row.dp * row.cp
        and row.global_batch % (row.micro_batch * row.dp) == 0
        and row.recompute in ("none", "selective", "full")
        and row.shards in (None, row.dp)
        and row.seq
    )


def fastest(rows: list[StepRow]) -> Iterator[StepRow]:
    """Of the layouts that one source measured for one model on one machine, the one that it found fastest; the same
    layout once, whatever number formats and releases it was measured with."""
    best: dict[tuple[object, ...], StepRow] = {}
    for row in rows:
        assert row.measured
        key = (row.source, row.shape, row.chip, row.gpus, row.seq, row.global_batch, row.policy, row.measured.quantity)
        if key not in best or _speed(row) > _speed(best[key]):
            best[key] = row
    seen = set()
    for row in best.values():
        layout = (row.shape, row.chip, row.gpus, row.tp, row.pp, row.cp, row.ep, row.vp, row.micro_batch, row.zero)
        if layout not in seen:
            seen.add(layout)
            yield row


def published() -> list[StepRow]:
    """Return the rows whose layouts are ranked."""
    return list(fastest([row for row in facts.steps() if stated(row)]))


def _speed(row: StepRow) -> float:
    assert row.measured
    return -row.measured.value if row.measured.quantity == "step_seconds" else row.measured.value


@record
class Placed:
    """A published layout among all others. behind: its predicted time over the best's, less one."""

    row: StepRow
    layout: Layout
    used: float
    capacity: float
    rank: int
    of: int
    behind: float
    best: Layout


def placed(row: StepRow) -> Placed | None:
    """Where one row's layout stands; None if no layout at all is predicted to fit. A source that does not say what
    it recomputes is taken to recompute the least with which its layout is predicted to fit."""
    assert row.shape
    dims = row.shape if row.shape.vocab else replace(row.shape, vocab=UNSTATED_VOCABULARY)
    model = decoder(replace(dims, head_dim=int(dims.head_dim)))
    whole = tuple((int(count), layer) for count, layer in model.stacks[0].runs)
    network = model.stacks[0]
    model = replace(model, stacks=(stack_of(network.name, network.before, whole, network.after),))
    policy = POLICIES.get(row.policy, POLICIES["bf16-mixed"])
    card = hardware.find(row.chip)
    if policy.compute == "bf16" and "bf16" not in card.peaks:
        policy = POLICIES["fp16-mixed"]
    stack = software_of(row)
    at = machine(card, policy.compute, row.network, row.node)
    layout = layout_of(row)
    optimizer, _ = optimizer_names.find("adamw")
    # FSDP's stacks gather parameters in the compute type; none of them runs autocast around whole fp32 parameters
    framework = FRAMEWORKS["fsdp"] if layout.zero == 3 else PLAIN
    setup = Setup(implementation_of("megatron", ""), layout, policy, optimizer, "fused", framework=framework)

    def timed(other: Setup) -> tuple[StepLayout, Rates]:
        return one_run.timed(
            model, other, stack, at, row.attention, Asynchronous(row.async_tp, row.async_ep, row.graphs, row.async_dp)
        )

    request = Request(
        model=model,
        setup=setup,
        gpus=row.gpus,
        node=int(at.node),
        seq=row.seq,
        batch=int(row.global_batch or 0),
        most=1,
        recomputes=tuple(recompute(kind) for kind in ("none", "selective", "full")),
        only={},
        below={"tp": int(at.node)},
        deep=layout.zero == 3,
    )
    kinds = ("none", "selective", "full") if not row.recompute_stated else (row.recompute,)
    for kind in kinds:
        setup = replace(setup, layout=layout.replaced(recompute=recompute(kind)))
        used = float(used_bytes(model, setup))
        if used <= card.capacity:
            break
    else:
        setup = replace(setup, layout=layout)
        used = float(used_bytes(model, setup))
    seconds = step(model, *timed(setup)).time.value
    found = search(request, timed, card.capacity)
    if not len(found):
        return None
    ahead = int((found.seconds < seconds * (1 - 1e-9)).sum())
    behind = seconds / float(found.seconds.min()) - 1
    best = found.layout(found.ranked(1)[0])
    return Placed(row, setup.layout, used, card.capacity, ahead + 1, len(found), behind, best)


def summary(every: list[Placed]) -> list[list[str]]:
    """Return one line for each source."""
    lines = [["source", "layouts", "in the fastest tenth", "median behind the best", "predicted not to fit"]]
    sources = sorted({one.row.source for one in every})
    for source in [*sources, ""]:
        mine = [one for one in every if source in ("", one.row.source)]
        tenth = sum(10 * (one.rank - 1) <= one.of for one in mine)
        behind = statistics.median(one.behind for one in mine)
        over = sum(one.used > one.capacity for one in mine)
        lines.append([source or "all", str(len(mine)), str(tenth), f"{behind:+.1%}", str(over)])
    return lines


def details(every: list[Placed]) -> list[list[str]]:
    """Return one line for each layout that a source has run on a large machine."""
    head = ["model", "machine", "published layout", "GiB predicted, of", "rank", "behind the best", "predicted best"]
    lines = [head]
    seen = set()
    for one in sorted(
        every, key=lambda one: (one.row.shape.name.split()[0] if one.row.shape else "", one.row.gpus, one.behind)
    ):
        key = (one.row.source.partition(",")[0], one.row.chip, one.row.gpus, _short(one.layout))
        if one.row.gpus >= DETAILED and one.row.shape and key not in seen:
            seen.add(key)
            lines.append(
                [
                    one.row.shape.name,
                    f"{one.row.gpus:,} × {hardware.find(one.row.chip).slug}",
                    _short(one.layout),
                    f"{one.used / 2**30:.0f}, {one.capacity / 2**30:.0f}",
                    f"{one.rank:,} of {one.of:,}",
                    f"{one.behind:+.1%}",
                    _short(one.best),
                ]
            )
    return lines


def markdown(lines: list[list[str]]) -> str:
    head, *rest = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rest))


def _short(layout: Layout) -> str:
    degrees = [f"{n}{getattr(layout, n)}" for n in ("tp", "pp", "dp", "cp", "ep", "vp") if getattr(layout, n) > 1]
    return " ".join([*degrees, f"b{layout.micro}", f"z{layout.zero}", layout.recompute.kind])


def main() -> None:
    every = []
    for row in published():
        try:
            one = placed(row)
        except NapkinError as problem:
            print(f"{row.id}: {problem.message}", file=sys.stderr)
            continue
        if one is not None:
            every.append(one)
            print(f"{row.id}: {one.rank:,} of {one.of:,}, {one.behind:+.1%}", file=sys.stderr)
    text = f"{markdown(summary(every))}\n\nMachines of {DETAILED} GPUs and more:\n\n{markdown(details(every))}"
    page = PAGE.read_text(encoding="utf-8")
    made = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
