"""Collectives over the ranks that torchrun started: time by size, bus bandwidth, within a node and between nodes.

Every decision that changes the sequence of calls is taken together, otherwise a rank would wait for ever. With one rank
each call succeeds silently and means nothing: then no figure is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from napkin.bench.device import OutOfMemory
from napkin.bench.measurement import Measurement
from napkin.bench.modes import Mode
from napkin.bench.session import Session
from napkin.bench.stats import median
from napkin.bench.team import Torchrun
from napkin.bench.torch_device import TorchDevice
from napkin.inputs.profile_cases import Case
from napkin.inputs.profile_summary import bus_factor

if TYPE_CHECKING:
    pass

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
WARMUP = 5  # channels and switches are set up in the first calls of a size
BLOCKS = 10
MIN_BLOCK = 2e-3
MAX_CALLS = 50
FREE_SHARE = 8  # the largest tensor takes an eighth of the smallest free memory over ranks
GLOO_LARGEST = 4 << 20  # a check of the code path, never a network figure
ONE_RANK = "one rank"


def collectives(session: Session, device: TorchDevice, mode: Mode) -> None:
    """Measure every operation, size and scope; with one rank record a single case that says why there is none."""
    team = session.team
    if not isinstance(team, Torchrun) or team.world == 1:
        session.skip("collectives/all", "collectives", {"operation": "all", "ranks": 1}, ONE_RANK)
        return
    scopes = _scopes(team)
    sizes = _sizes(session, device, team, mode)
    for scope, (group, ranks) in scopes.items():
        for operation in OPERATIONS:
            for size in sizes:
                _case(session, device, team, scope, group, ranks, operation, size)


def _scopes(team: Torchrun) -> dict[str, tuple[object, int]]:
    """Return the scopes: all ranks; on several nodes also one node's ranks, and one rank of each node (the network)."""
    scopes: dict[str, tuple[object, int]] = {"all": (None, team.world)}
    local, nodes = team.local_world, team.world // team.local_world
    if nodes > 1 and local > 1 and team.world % local == 0:
        within = [list(range(node * local, (node + 1) * local)) for node in range(nodes)]
        across = [list(range(place, team.world, local)) for place in range(local)]
        scopes["intra"] = (team.group_of(within), local)
        scopes["inter"] = (team.group_of(across), nodes)
    return scopes


def _sizes(session: Session, device: TorchDevice, team: Torchrun, mode: Mode) -> list[int]:
    smallest = min(team.gather(device.free_bytes())) // FREE_SHARE
    largest = min(smallest, GLOO_LARGEST) if team.backend == "gloo" else smallest
    return [size for size in mode.collective_bytes if size <= largest]


def _case(
    session: Session,
    device: TorchDevice,
    team: Torchrun,
    scope: str,
    group: object,
    ranks: int,
    operation: str,
    size: int,
) -> Case:
    params: dict[str, str | int | float | bool | None] = {
        "operation": operation,
        "bytes": size,
        "ranks": ranks,
        "world": team.world,
        "scope": scope,
        "backend": team.backend,
        "dtype": "bf16",
    }

    def measure() -> Measurement:
        call: Callable[[], object] | None = None
        try:
            call = _call(device, team, operation, size, group, ranks)
        except RuntimeError as error:
            if not isinstance(device.explain(error), OutOfMemory):
                raise
        if not all(team.gather(call is not None)):
            raise OutOfMemory(f"{size} bytes do not fit on every rank")
        assert call is not None
        return _timed(device, team, call, operation, ranks, size)

    return session.case(f"collectives/{scope}/{operation}/{size}", "collectives", params, 1.0, measure)


def _timed(
    device: TorchDevice, team: Torchrun, call: Callable[[], object], operation: str, ranks: int, size: int
) -> Measurement:
    """Time blocks of calls with a barrier before each. The case is the maximum over ranks: the slowest decides."""
    for _ in range(WARMUP):
        call()
    device.synchronize()
    start = device.now()
    call()
    device.synchronize()
    slowest = max(team.gather(device.now() - start))
    calls = max(1, min(MAX_CALLS, int(MIN_BLOCK / max(slowest, 1e-7)) + 1))
    pairs = []
    for _ in range(BLOCKS):
        team.barrier()
        first, last = device.event(), device.event()
        first.record()
        for _ in range(calls):
            call()
        last.record()
        pairs.append((first, last))
    device.synchronize()
    mine = [last.since(first) / calls for first, last in pairs]
    every = team.gather(mine)
    by_rank = [median(one) for one in every]
    slow = max(range(len(every)), key=by_rank.__getitem__)
    return Measurement(
        unit="second",
        values=every[slow],
        calls=calls,
        figures={
            "busbw": size * bus_factor(operation, ranks) / by_rank[slow],
            "mean_over_ranks": sum(by_rank) / len(by_rank),
        },
    )


def _call(
    device: TorchDevice, team: Torchrun, operation: str, size: int, group: object, ranks: int
) -> Callable[[], object]:
    """Return the operation on `size` bytes, which nccl-tests counts as what one rank holds of the complete data."""
    torch = device.torch
    distributed = torch.distributed
    each = max(1, size // 2 // ranks)  # bf16

    def tensor(count: int) -> Any:
        return torch.randn(count, device=device.place).to(torch.bfloat16)

    whole = tensor(each * ranks)
    if operation == "all_reduce":
        return lambda: distributed.all_reduce(whole, group=group)
    if operation == "all_gather":
        part, gather = tensor(each), _newest(distributed, "all_gather_single", "all_gather_into_tensor")
        return lambda: gather(whole, part, group=group)
    if operation == "reduce_scatter":
        part, scatter = tensor(each), _newest(distributed, "reduce_scatter_single", "reduce_scatter_tensor")
        return lambda: scatter(part, whole, group=group)
    if operation == "all_to_all":
        other = torch.empty_like(whole)
        return lambda: distributed.all_to_all_single(other, whole, group=group)
    other = torch.empty_like(whole)
    members = distributed.get_process_group_ranks(group) if group is not None else list(range(ranks))
    place = members.index(team.rank)
    following, preceding = members[(place + 1) % ranks], members[(place - 1) % ranks]

    def ring() -> None:
        """Send to the next rank and receive from the previous one, as pipeline stages do."""
        moves = [
            distributed.P2POp(distributed.isend, whole, following, group=group),
            distributed.P2POp(distributed.irecv, other, preceding, group=group),
        ]
        for request in distributed.batch_isend_irecv(moves):
            request.wait()

    return ring


def _newest(distributed: Any, name: str, older: str) -> Any:
    """Return the operation by its newest name: torch 2.13 renamed these and warns on the older names."""
    return getattr(distributed, name, None) or getattr(distributed, older)
