"""How many elements of adapters one rank holds, by hand, and that a step's time counts the same."""

from __future__ import annotations

from napkin.architectures import build, implementation_of
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import prepare
from napkin.inputs.model_file import load_config
from napkin.record import replace
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import run_line


def adapters_on_a_rank(line: str) -> float:
    """Return the elements of adapters on one rank: their gradients are in 16 bits."""
    return (
        float(
            run_line(f"memory {line} --precision bf16-pure --zero 0 --seq 512 --json").data["values"][
                "memory/gradients"
            ]
        )
        / 2
    )


def test_tensor_parallelism_divides_the_side_of_an_adapter_that_its_layer_divides() -> None:
    """Llama 3 8B, each of 32 layers: B of q, k, v, gate and up is divided, A of o and down."""
    column = [(4096, 4096), (4096, 1024), (4096, 1024), (4096, 14336), (4096, 14336)]
    row = [(4096, 4096), (14336, 4096)]
    elements = sum(d_in + d_out / 2 for d_in, d_out in column) + sum(d_in / 2 + d_out for d_in, d_out in row)
    assert adapters_on_a_rank("llama3-8b --lora-rank 64 --tp 2") == 32 * 64 * elements == 113_246_208


def test_megatron_core_divides_both_matrices_of_an_adapter() -> None:
    """Llama 3 8B in NeMo and Megatron Bridge (ParallelLinearAdapter): half of each, whichever side the layer divides;
    ms-swift's adapters are divided as their layers."""
    every = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    line = f"llama3-8b --framework megatron-core --lora-rank 64 --lora-targets {every}"
    assert adapters_on_a_rank(f"{line} --tp 2") == adapters_on_a_rank(f"{line} --tp 1") / 2
    swift = f"{line} --trainer ms-swift"
    row = 32 * 64 * (4096 + 4096) / 2  # B of o and down, which each rank has in full
    column = 32 * 64 * 5 * 4096 / 2  # A of q, k, v, gate and up
    assert adapters_on_a_rank(f"{swift} --tp 2") - adapters_on_a_rank(f"{line} --tp 2") == row + column


def test_dora_divides_its_vectors_as_b() -> None:
    """q, k and v are column-parallel, o is not."""
    line = "llama3-8b --lora-rank 64 --lora-targets q_proj,k_proj,v_proj,o_proj --tp 2"
    vectors = adapters_on_a_rank(f"{line} --adapter dora") - adapters_on_a_rank(line)
    assert vectors == 32 * ((4096 + 1024 + 1024) / 2 + 4096)


def test_expert_parallelism_divides_the_adapters_of_experts() -> None:
    """Mixtral 8x7B: 8 experts of three matrices of 4,096 × 14,336 in each of 32 layers, the routers' on every rank."""
    line = "mixtral-8x7b --lora-rank 16 --lora-targets"
    whole = adapters_on_a_rank(f"{line} experts.gate_up_proj,experts.down_proj")
    divided = adapters_on_a_rank(f"{line} experts.gate_up_proj,experts.down_proj --dp 8 --ep 8")
    assert divided == whole / 8
    attention = adapters_on_a_rank(f"{line} q_proj,v_proj")
    assert adapters_on_a_rank(f"{line} q_proj,v_proj --dp 8 --ep 8") == attention


def test_the_pairs_of_many_experts_are_divided_as_the_experts() -> None:
    """DeepSeek V3: 4 of 256 experts on each of 64 ranks, a gate and an up projection in one parameter with twice the
    rank, in 58 of 61 layers: 117.8 M elements."""
    of_a_rank = 58 * 4 * 16 * (2 * (7168 + 4096) + 2048 + 7168)
    line = "deepseek-v3 --lora-rank 16"
    assert adapters_on_a_rank(line) - adapters_on_a_rank(f"{line} --dp 64 --ep 64") == 63 * of_a_rank
    assert of_a_rank == 117_833_728


def test_experts_that_fsdp_ignores_are_whole_on_each_group_of_expert_parallel_ranks() -> None:
    """Mixtral 8x7B on four GPUs, experts over two: half of 32 · 8 · 3 · 4,096 · 14,336 weights on each GPU, not a
    quarter; all that is no expert is in quarters still (fms-acceleration, accelerated-moe)."""
    model = build(load_config("mixtral-8x7b"))
    layout = Layout(seq=16, dp=4, ep=2, zero=3)
    apart = replace(FRAMEWORKS["fsdp"], experts_apart=True)
    setups = [
        Setup(
            implementation_of("hf", model.family),
            layout,
            POLICIES["bf16-pure"],
            find("adamw")[0],
            "foreach",
            framework=one,
        )
        for one in (FRAMEWORKS["fsdp"], apart)
    ]
    divided, whole = (rank_of(prepare(model, setup), 0) for setup in setups)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert whole.parameters - divided.parameters == 2 * experts // 4
