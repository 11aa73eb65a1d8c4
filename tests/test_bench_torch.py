"""The benchmark's real code on the CPU: every format, the training step, two gloo ranks. No test asserts a speed.

The step's torch model is built from napkin's operations, so it is also a live check of them: parameters and FLOPs
against torch's own counter, saved bytes against the memory formulas, to the unit.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from napkin.architectures import implementation_of  # noqa: E402
from napkin.bench import formats, modes, torch_matmuls  # noqa: E402
from napkin.bench.bandwidth import host, memory  # noqa: E402
from napkin.bench.collectives import OPERATIONS, collectives  # noqa: E402
from napkin.bench.device import MatmulSpec, OutOfMemory, Unsupported  # noqa: E402
from napkin.bench.host_devices import CpuDevice  # noqa: E402
from napkin.bench.matmul import Matmuls  # noqa: E402
from napkin.bench.model_shapes import attentions, gemms  # noqa: E402
from napkin.bench.open_device import open_device  # noqa: E402
from napkin.bench.progress import Store  # noqa: E402
from napkin.bench.session import Session  # noqa: E402
from napkin.bench.step_plan import TINY, StepPlan, at_depth  # noqa: E402
from napkin.bench.team import Torchrun  # noqa: E402
from napkin.bench.timing import Timing  # noqa: E402
from napkin.bench.torch_model import TorchDecoder  # noqa: E402
from napkin.bench.train import train  # noqa: E402
from napkin.counting import flops  # noqa: E402
from napkin.counting.conventions import all_conventions  # noqa: E402
from napkin.counting.params import params  # noqa: E402
from napkin.errors import NapkinError  # noqa: E402
from napkin.footprint.prepared import prepare  # noqa: E402
from napkin.inputs.profile import read_profile  # noqa: E402
from napkin.inputs.profile_cases import OK, SKIPPED, UNSUPPORTED  # noqa: E402
from napkin.inputs.profile_summary import bus_factor  # noqa: E402
from napkin.operations.model import Model  # noqa: E402
from napkin.training.setup import Setup  # noqa: E402
from tests.conftest import model_of, preset  # noqa: E402
from tests.test_bench_session import header  # noqa: E402

ONCE = Timing(blocks=2, min_block=0.0, warmup=1)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads on a busy machine mostly wait for each other
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of every kind
        yield
    torch.set_num_threads(before)


@pytest.fixture
def cpu() -> CpuDevice:
    device = CpuDevice(torch)
    device.rotation_bytes = 1 << 16
    return device


def session_on(device: Any, path: str | None = None, **options: Any) -> Session:
    return Session(
        device, header(device, software=device.software(), peaks={}), Store(path) if path else None, **options
    )


def model(**changes: Any) -> Model:
    fields = {**TINY, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 160, **changes}
    return model_of(fields)


# --- kernels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(formats.FORMATS))
def test_every_format_runs_or_says_why_not(cpu: CpuDevice, dtype: str) -> None:
    matmuls = Matmuls(session_on(cpu), modes.QUICK)
    case = matmuls.blocks(MatmulSpec(dtype, 32, 64, 48), "anchor", ONCE)
    if dtype in ("tf32", "mxfp8", "mxfp4", "nvfp4"):
        assert (case.status, case.value) == (UNSUPPORTED, None)
        assert case.reason
    else:
        assert case.status == OK, case.reason
        assert case.value is not None
        assert case.value.median > 0


@pytest.mark.parametrize("changes", [{"fast_accum": True}, {"out": "fp8_e4m3"}, {"scaling": "rowwise"}])
def test_fp8s_variants_run(cpu: CpuDevice, changes: dict[str, Any]) -> None:
    kernel = cpu.matmul(replace(MatmulSpec("fp8_e4m3", 32, 64, 48), **changes))
    kernel.call(0)
    assert kernel.work == 2 * 32 * 64 * 48


def test_kernels_multiply_what_they_say(cpu: CpuDevice) -> None:
    """C of the last call is A·B of its operand set, B read as (n, k) transposed."""
    spec = MatmulSpec("fp32", 24, 40, 56)
    kernel = cpu.matmul(spec)
    assert kernel.sets == cpu.rotation_bytes // formats.spec_bytes(spec) + 1 > 1
    last = kernel.sets - 1
    kernel.call(last)
    a_size, b_size = 24 * 40, 56 * 40  # multiples of 64 elements already, so no padding between operands
    flat = cpu._flat["fp32", "normal"]
    at = last * (a_size + b_size)
    a, b = flat[at : at + a_size].view(24, 40), flat[at + a_size : at + a_size + b_size].view(56, 40)
    c_size = 24 * 56
    stride = -(-c_size // 64) * 64
    c = cpu._out["fp32"][last * stride : last * stride + c_size].view(24, 56)
    torch.testing.assert_close(c, a @ b.t())
    assert kernel.work == 2 * 24 * 40 * 56


def test_the_float32_switch_is_left_as_it_was(cpu: CpuDevice) -> None:
    assert torch.get_float32_matmul_precision() == "highest"
    torch_matmuls.call(
        torch, cpu.place, MatmulSpec("tf32", 8, 8, 8), [torch.ones(8, 8)], [torch.ones(8, 8)], [torch.empty(8, 8)]
    )(0)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("k", [15, 16, 24, 32])
@pytest.mark.parametrize("n", [8, 16, 40])
def test_the_fp8_shape_rule_is_the_one_that_torch_enforces(k: int, n: int) -> None:
    """On the meta device torch checks what CUDA's kernel does; on the CPU it takes any shape."""
    a = torch.empty(8, k, device="meta", dtype=torch.float8_e4m3fn)
    b = torch.empty(n, k, device="meta", dtype=torch.float8_e4m3fn).t()
    one = torch.empty((), device="meta")
    try:
        torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
        refused = False
    except (RuntimeError, ValueError):
        refused = True
    assert refused is (formats.illegal(MatmulSpec("fp8_e4m3", 8, k, n)) is not None)


def test_what_does_not_fit_is_out_of_memory(cpu: CpuDevice) -> None:
    with pytest.raises(OutOfMemory):
        cpu.matmul(MatmulSpec("fp32", 1 << 20, 1 << 20, 1 << 20))


def test_memory_and_host_on_the_cpu(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("napkin.bench.bandwidth.HOST_BYTES", 1 << 20)
    session = session_on(cpu)
    memory(session, modes.QUICK, None)
    host(session, modes.QUICK)
    profile = session.write(complete=True)
    assert all(profile.summary["memory"][name] > 0 for name in ("copy", "write", "read", "triad"))
    assert set(profile.summary["host"].values()) == {None}
    assert {c.status for c in profile.cases if c.group == "host"} == {UNSUPPORTED}


def test_without_cuda_the_device_is_absent() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(NapkinError) as raised:
        open_device(None)
    assert raised.value.status == 5
    assert raised.value.message == "no CUDA device"
    with pytest.raises(NapkinError):
        open_device("tpu")


# --- the model's shapes --------------------------------------------------------------------------------------------


def test_llama3_8bs_matmuls_after_an_eightfold_split() -> None:
    """Hand-derived: h 4096, 32 heads and 8 key/value heads of 128, f 14336, V 128256, over 8 ranks, 8192 tokens."""
    found = {(p.m, p.k, p.n): p.count for p in gemms(preset("llama3-8b"), 8, 1, 8192)}
    assert found[8192, 4096, 512] == 32 + 32  # q forward, and the input gradient of o
    assert found[8192, 512, 4096] == 32 + 32  # o forward, and the input gradient of q
    assert found[8192, 4096, 128] == 2 * 32  # k and v forward, one head each
    assert found[8192, 4096, 1792] == 2 * 32 + 32  # gate and up forward, and the input gradient of down
    assert found[8192, 1792, 4096] == 32 + 2 * 32
    assert found[8192, 4096, 16032] == 1  # the head
    assert found[4096, 8192, 1792] == 2 * 32  # weight gradients of gate and up
    total = sum(2 * m * k * n * count for (m, k, n), count in found.items())
    matrices = 6_979_321_856 + 525_336_576  # of the layers, of the head
    assert total == 6 * matrices * 8192 // 8


def test_key_and_value_heads_are_not_split_below_one() -> None:
    shapes = {(p.m, p.k, p.n) for p in gemms(preset("llama3-8b"), 16, 1, 4096)}
    assert (4096, 4096, 128) in shapes  # still a whole head of 128


def test_a_split_that_does_not_divide_is_refused() -> None:
    with pytest.raises(NapkinError, match="does not divide"):
        gemms(preset("llama3-8b"), 3, 1, 4096)


def test_the_attention_of_a_model_and_its_flops() -> None:
    (one,) = attentions(preset("llama3-8b"), 8, 2, 4096)
    assert (one.heads, one.kv_heads, one.count) == (4, 1, 32)
    assert one.flops == 2 * 2 * 4 * 4096**2 * 128  # half of 2·b·a·s²·(128 + 128)


def test_a_models_shapes_run_and_are_weighted_by_their_flops(cpu: CpuDevice) -> None:
    tiny = model()
    session = session_on(cpu)
    matmuls = Matmuls(session, modes.QUICK)
    matmuls.timing = ONCE
    matmuls.model("bf16", tiny.name, 2, gemms(tiny, 2, 1, 32), attentions(tiny, 2, 1, 32), 32)
    profile = session.write(complete=True)
    assert {c.status for c in profile.cases} == {OK}
    row = profile.summary["matmul"]["bf16"]["model"]
    mine = [c for c in profile.cases if c.params["kind"] == "model"]
    work = sum(c.figures["flops"] or 0 for c in mine)
    seconds = sum((c.figures["flops"] or 0) / c.value.median for c in mine if c.value)
    assert row["flops_weighted"] == pytest.approx(work / seconds)
    assert row["attention"] > 0


# --- the training step ---------------------------------------------------------------------------------------------

FAMILIES: list[dict[str, Any]] = [
    {},
    {"tie_word_embeddings": True},
    {"model_type": "qwen2"},
    {"model_type": "qwen3", "head_dim": 16},
    {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
]


@pytest.mark.parametrize("changes", FAMILIES)
def test_the_torch_model_has_the_counted_parameters(changes: dict[str, Any]) -> None:
    one = model(**changes)
    with torch.device("meta"):
        decoder = TorchDecoder(one)
    assert sum(p.numel() for p in decoder.parameters()) == params(one)["params/total"].value


@pytest.mark.parametrize("changes", FAMILIES[:4])
def test_torchs_counter_agrees_on_meta_and_misses_attention_on_the_cpu(changes: dict[str, Any]) -> None:
    """The CPU's flash kernel is not in torch's registry: whoever verifies FLOPs on a CPU misses exactly attention."""
    from torch.utils.flop_counter import FlopCounterMode

    one = model(**changes)
    over = flops.works(one, 2, 32)
    counted = {}
    for device in ("meta", "cpu"):
        with torch.device(device):
            decoder = TorchDecoder(one)
            tokens = torch.zeros(2, 32, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            decoder(tokens).backward()
        counted[device] = counter.get_total_flops()
    assert counted["meta"] == all_conventions(one, over)["torch"].value * 64
    attention = flops.attention(one, over, flops.FULL).value  # forward and backward
    assert counted["cpu"] == counted["meta"] - attention


@pytest.mark.parametrize("changes", FAMILIES[:4])
@pytest.mark.parametrize("precision", ["bf16-pure", "fp32", "amp-bf16"])
@pytest.mark.parametrize("sequences", [1, 2])
def test_saved_bytes_are_those_that_the_memory_formulas_predict(
    changes: dict[str, Any], precision: str, sequences: int
) -> None:
    """To the byte, but for the 24 of philox state that only CUDA's flash kernel keeps in each layer."""
    from napkin.footprint import memory as formulas
    from napkin.training import optimizer_names
    from napkin.training.layout import Layout
    from napkin.training.precision import precision as policy

    one, length = model(**changes), 32
    torch.set_default_dtype(torch.bfloat16 if precision == "bf16-pure" else torch.float32)
    try:
        decoder = TorchDecoder(one)
    finally:
        torch.set_default_dtype(torch.float32)
    decoder.reset()
    tokens = torch.randint(0, one.vocabulary, (sequences, length))
    own = {t.untyped_storage().data_ptr() for t in (*decoder.parameters(), tokens)}
    saved: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage
        return tensor

    cast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "amp-bf16")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), cast:
        loss = decoder(tokens)
    assert loss.isfinite()
    optimizer, _ = optimizer_names.find("adamw")
    setup = Setup(
        implementation_of("hf", one.family), Layout(seq=length, micro=sequences), policy(precision), optimizer, "fused"
    )
    rank = formulas.rank_of(prepare(one, setup), 0)
    predicted = rank.saved + rank.casts
    assert sum(storage.nbytes() for storage in saved.values()) == predicted - 24 * one.depth


def test_experts_are_the_weighted_sum_of_those_chosen() -> None:
    """Against the plainest form: every expert on every token, weighted by the router."""
    one = model(model_type="mixtral", num_local_experts=4, num_experts_per_tok=2)
    operations = {op.name: op for op in one.stacks[0].runs[0][1].operations}
    from napkin.bench.torch_operations import ForwardContext, TorchOperation

    router: Any
    experts: Any
    router, experts = TorchOperation(operations["router"]), TorchOperation(operations["experts"])
    router.reset()
    experts.reset()
    x = torch.randn(2, 8, 64)
    weights = router([x], ForwardContext({}, ()))
    assert ((weights > 0).sum(-1) == 2).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 8))
    gate, up = experts.gate_up.chunk(2, dim=1)
    plain = sum(
        weights[..., e, None] * (torch.nn.functional.silu(x @ gate[e].t()) * (x @ up[e].t()) @ experts.down[e].t())
        for e in range(4)
    )
    torch.testing.assert_close(experts([x, weights], ForwardContext({}, ())), plain, rtol=1e-4, atol=1e-6)


def plan(one: Model, **changes: Any) -> StepPlan:
    base = StepPlan(one, 32, 2, (1, 2), precision="fp32", variants=("eager",), steps=3)
    return replace(base, **changes)


@pytest.mark.parametrize("precision", ["fp32", "bf16-pure", "amp-bf16"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_step_trains_and_reports_what_it_measured(cpu: CpuDevice, precision: str, recompute: str) -> None:
    session = session_on(cpu)
    cases = train(session, cpu, plan(model(), precision=precision, recompute=recompute))
    assert [case.params["layers"] for case in cases] == [1, 2]
    figures = cases[-1].figures
    assert figures["loss_last"] < figures["loss_first"]  # type: ignore[operator]
    assert figures["allocated"] is None  # the CPU has no allocator statistics: absent, never 0
    assert figures["predicted_allocated"] > 0  # type: ignore[operator]
    assert figures["params"] == params(at_depth(model(), 2))["params/total"].value
    again = figures["hfu_flops/palm"] - figures["mfu_flops/palm"]  # type: ignore[operator]
    assert (again > 0) is (recompute == "full")
    row = session.write(complete=True).summary["train"]["eager"]
    assert row["tokens_per_second"] == pytest.approx(64 / row["step_s"])
    assert row["mfu"] == {}  # no datasheet peak for a CPU, so no MFU
    assert row["per_layer"]["time_s"] is not None


def test_the_same_parameters_whether_recomputed_or_not() -> None:
    tokens = torch.randint(0, 160, (2, 16))
    gradients = []
    for recompute in (False, True):
        decoder = TorchDecoder(model(), recompute=recompute)
        decoder.reset(seed=1)
        decoder(tokens).backward()
        gradients.append([p.grad for p in decoder.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_out_of_memory_halves_the_micro_batch(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    from napkin.bench import train as module

    def build(torch: Any, device: Any, plan: StepPlan, one: Model) -> Any:
        if plan.micro_batch > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return original(torch, device, plan, one)

    original = module.build
    monkeypatch.setattr(module, "build", build)
    session = session_on(cpu)
    cases = train(session, cpu, plan(model(), micro_batch=4, layers=(1,)))
    assert [case.params["micro_batch"] for case in cases] == [1]
    profile = session.write(complete=True)
    assert [case.status for case in profile.cases] == ["oom", "oom", "ok"]
    assert "micro-batch 4 did not fit: halved" in profile.notes


def test_a_step_that_a_host_cannot_hold_is_not_begun(cpu: CpuDevice) -> None:
    """The operating system would end the process, not the allocation."""
    session = session_on(cpu)
    big = model(hidden_size=65536, num_attention_heads=64, num_key_value_heads=64, intermediate_size=262144)
    assert train(session, cpu, plan(big, layers=(2,), micro_batch=1)) == []
    assert session.write(complete=True).cases[0].status == "oom"


def test_what_cannot_be_built_is_refused_by_name() -> None:
    with pytest.raises(NapkinError) as raised:
        TorchDecoder(at_depth(preset("mamba-2.8b"), 1))
    assert raised.value.status == 3


def test_attention_that_needs_more_than_a_causal_mask_is_refused() -> None:
    one = model(model_type="mistral", sliding_window=8)
    decoder = TorchDecoder(one)
    decoder.reset()
    with pytest.raises(NapkinError, match="cannot build this attention"):
        decoder(torch.zeros(1, 16, dtype=torch.int64))
    assert decoder(torch.zeros(1, 8, dtype=torch.int64)).isfinite()  # a window as long as the sequence is none


# --- collectives ---------------------------------------------------------------------------------------------------

SIZES = (1 << 12, 1 << 14)


def _rank(rank: int, folder: str) -> None:
    """One of two gloo processes: measure, and check that the operations do what they are called."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(os.path.join(folder, "store"), 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    device = CpuDevice(torch)
    team = Torchrun(torch, "cpu", device.place)
    path = os.path.join(folder, "p.json")
    session = session_on(device, path if rank == 0 else None, team=team)
    session.profile = replace(session.profile, world=2)
    collectives(session, device, replace(modes.QUICK, collective_bytes=SIZES))
    session.write(complete=True)
    x = torch.full((4,), float(rank + 1), dtype=torch.bfloat16)
    torch.distributed.all_reduce(x)
    assert x.tolist() == [3.0] * 4
    assert team.broadcast(rank) == 0
    assert team.gather(rank) == [0, 1]
    team.close()


def test_two_gloo_ranks_measure_every_collective_and_one_writes(tmp_path: Any) -> None:
    torch.multiprocessing.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    profile = read_profile(str(tmp_path / "p.json"))
    assert {c.status for c in profile.cases} == {OK}, [c.reason for c in profile.cases]
    found = profile.summary["collectives"]
    assert (found["world"], found["backend"]) == (2, "gloo")
    assert set(found["operations"]) == set(OPERATIONS)
    for name, row in found["operations"].items():
        assert [point[0] for point in row["points"]] == list(SIZES)
        for size, seconds, busbw in row["points"]:
            assert busbw == pytest.approx(size * bus_factor(name, 2) / seconds)
    assert profile.link_rate("all_reduce") is None  # gloo says nothing about the network


def test_one_rank_has_no_collective_figure(cpu: CpuDevice) -> None:
    session = session_on(cpu)
    collectives(session, cpu, modes.QUICK)
    (case,) = session.write(complete=True).cases
    assert (case.status, case.value, case.reason) == (SKIPPED, None, "one rank")
    assert session.current(complete=True).summary["collectives"] is None


def test_unsupported_is_an_exception_with_a_reason(cpu: CpuDevice) -> None:
    with pytest.raises(Unsupported, match="no nvfp4"):
        cpu.matmul(MatmulSpec("nvfp4", 64, 64, 64))
