"""Bytes kept for backward and live bytes of a step: measured models, real torch on the CPU, and laws."""

from __future__ import annotations

import gc
import json
import os
import weakref
from typing import Any

import numpy
import pytest
from hypothesis import strategies as st

from napkin._tables import saved_bytes as TABLE
from napkin.architectures import MODULES, WRAPPERS, implementation_of
from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.footprint.rank import Rank
from napkin.operations.frameworks import FRAMEWORKS
from napkin.operations.implementations import ALL_KERNELS, HF, TORCH, measured, mode, recomputation_of
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training.kernels import AXOLOTL, AXOLOTL_ON_LIGER, LIGER, UNSLOTH, together
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute, recompute
from napkin.training.setup import Setup
from tests.conftest import model_of


def _data(name: str) -> Any:
    with open(os.path.join(os.path.dirname(__file__), "data", name), encoding="utf-8") as file:
        return json.load(file)


VERSIONS = ("5.23.0", "5.24.0")
"""Of transformers, whose classes were run."""
MEASURED, DRAWN = _data("saved_activations.json"), _data("saved_bytes.json")
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "amp": "amp-bf16", "autocast": "amp-bf16"}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def rank(
    fields: dict[str, Any],
    layout: Layout,
    policy: str = "bf16-pure",
    attention: str = "flash",
    dropout: float = 0.0,
    form: str = "foreach",
    implementation: str = "hf",
    stage: int = 0,
) -> Rank:
    model = model_of(fields)
    code = implementation_of(implementation, model.family)
    setup = Setup(code, layout, POLICIES[policy], find("adamw")[0], form, attention, dropout)
    return memory.rank_of(prepare(model, setup), stage)


def _named(rows: list[list[Any]]) -> list[Any]:
    return [pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2]}-{row[6]}-{i}") for i, row in enumerate(rows)]


@pytest.mark.parametrize(MEASURED["columns"], _named(MEASURED["rows"]))
def test_saved_bytes_are_those_that_hooks_counted(
    family: str,
    precision: str,
    attention: str,
    sequences: int,
    length: int,
    dropout: float,
    recompute: str,
    saved: int,
    weight_casts: int | None,
    config: dict[str, Any],
) -> None:
    layout = Layout(seq=length, micro=sequences, recompute=Recompute(recompute))
    found = rank(config, layout, POLICY[precision], attention, dropout)
    assert found.saved == saved
    if weight_casts is not None:
        assert found.casts == weight_casts


@pytest.mark.parametrize(DRAWN["columns"], [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in DRAWN["rows"]])
def test_saved_bytes_of_drawn_configs_are_those_that_hooks_counted(
    model_type: str,
    mode: str,
    sequences: int,
    length: int | list[int],
    saved: int,
    weight_casts: int,
    config: dict[str, Any],
) -> None:
    precision, attention, dropout, *_ = mode.split("/")
    probability = 0.1 if dropout == "dropout" else 0.0
    seq, target = length if isinstance(length, list) else (length, 0)  # of an encoder and its decoder
    layout = Layout(seq=seq, micro=sequences, target=target, recompute=Recompute(recomputation_of(mode)))
    found = rank(config, layout, POLICY[precision], attention, probability)
    assert (found.saved, found.casts) == (saved, weight_casts)
    assert measured(HF, model_type, mode)


def test_the_table_of_what_was_measured_names_modes_and_versions() -> None:
    assert TABLE.TORCH.rsplit(".", 1)[0] == TORCH
    modes = {
        mode(precision, kernel, dropout, sequences, recompute)
        for precision in ("bf16", "fp32", "autocast")
        for kernel in ALL_KERNELS
        for dropout in (False, True)
        for sequences in (1, 2)
        for recompute in ("none", "full")
    }
    assert len(modes) == 96
    for model_type, (index, cases, version) in TABLE.EXACT.items():
        found = TABLE.MODES[index]
        assert model_type in MODULES or model_type in WRAPPERS
        assert set(found) <= modes
        assert cases >= len(found) > 0
        assert version in VERSIONS
    assert len(set(TABLE.MODES)) == len(TABLE.MODES) == len({index for index, *_ in TABLE.EXACT.values()})
    assert {row[0] for row in DRAWN["rows"]} <= set(TABLE.EXACT)


def test_only_measured_modes_are_called_exact() -> None:
    assert measured(HF, "llama", mode("bf16", "flash", False, 4))
    assert not measured(HF, "llama", mode("fp8", "flash", False, 4))
    assert not measured(HF, "no-such-type", mode("bf16", "flash", False, 4))
    assert not measured(FRAMEWORKS["megatron"], "llama", mode("bf16", "flash", False, 4))
    assert measured(FRAMEWORKS["nanogpt"], "gpt2", mode("bf16", "flash", False, 4))
    assert not measured(FRAMEWORKS["nanogpt"], "gpt2", mode("bf16", "flash", False, 4, "full"))


@pytest.mark.parametrize(MEASURED["peak_columns"], _named(MEASURED["peaks"]))
def test_the_largest_live_bytes_are_those_of_a_traced_step(
    family: str,
    precision: str,
    attention: str,
    sequences: int,
    length: int,
    dropout: float,
    recompute: str,
    live: int,
    config: dict[str, Any],
) -> None:
    layout = Layout(seq=length, micro=sequences, recompute=Recompute(recompute))
    found = rank(config, layout, POLICY[precision], attention, dropout)
    assert found.live == pytest.approx(live, rel=0.025)


def test_most_peaks_agree_to_a_thousandth() -> None:
    """A trace also sees a few small buffers (rotary frequencies); the rest is exact but for odd orders of branches."""
    errors = []
    for _, precision, attention, sequences, length, dropout, again, live, config in MEASURED["peaks"]:
        layout = Layout(seq=length, micro=sequences, recompute=Recompute(again))
        errors.append(abs(rank(config, layout, POLICY[precision], attention, dropout).live / live - 1))
    assert sorted(errors)[int(0.9 * len(errors))] < 1e-3


# Korthikanti et al. 2022, equation 2, for f = 4h: sbh·(34 + 5as/h) with dropout, and 16·T of LayerNorm statistics,
# the s² mask that nanoGPT's code makes in each layer.
@pytest.mark.parametrize(("b", "s", "a", "d"), [(2, 64, 4, 16), (3, 32, 8, 8)])
def test_a_plain_block_keeps_what_korthikanti_counted(b: int, s: int, a: int, d: int) -> None:
    h = a * d
    fields = {"model_type": "gpt2", "n_embd": h, "n_layer": 1, "n_head": a, "vocab_size": 97, "n_positions": s}
    one = rank(fields, Layout(seq=s, micro=b), "bf16-pure", "eager", 0.1, implementation="nanogpt").saved
    two = rank(
        {**fields, "n_layer": 2}, Layout(seq=s, micro=b), "bf16-pure", "eager", 0.1, implementation="nanogpt"
    ).saved
    assert two - one == s * b * h * 34 + 5 * a * s * s * b + 16 * s * b + s * s


@pytest.mark.parametrize(
    ("tp", "sp", "kind", "over_sbh"),
    [
        (1, 0, "none", 34 + 10),
        (4, 0, "none", 10 + 24 / 4 + 10 / 4),
        (4, 1, "none", 34 / 4 + 10 / 4),
        (4, 0, "selective", 10 + 24 / 4),
        (4, 1, "selective", 34 / 4),
        (4, 0, "full", 2),
        (4, 1, "full", 2 / 4),
    ],
)
def test_tensor_and_sequence_parallelism_are_korthikantis_table(tp: int, sp: int, kind: str, over_sbh: float) -> None:
    """Korthikanti et al. 2022, table 2, for 5as/h = 10: bytes of a layer over s·b·h. LayerNorm's fp32 mean and
    deviation, 16 bytes per token, are left out there."""
    s, b, a, h = 64, 2, 8, 256
    fields = {"model_type": "gpt2", "n_embd": h, "n_head": a, "vocab_size": 512, "n_positions": s}
    layout = Layout(seq=s, micro=b, tp=tp, sp=sp, recompute=Recompute(kind))
    two, one = (
        rank({**fields, "n_layer": n}, layout, "bf16-pure", "eager", 0.1, implementation="megatron").saved
        for n in (2, 1)
    )
    statistics = 0 if kind == "full" else 16 * s * b / (tp if sp else 1)
    assert (two - one - statistics) / (s * b * h) == over_sbh


def test_megatrons_fused_swiglu_keeps_gate_and_up_alone() -> None:
    layout = Layout(seq=64)
    split, fused = (
        rank(LLAMA, layout, implementation=implementation).saved for implementation in ("nanogpt", "megatron")
    )
    activation = 6 * 2 * 64 * 96  # silu's result of six layers in bf16
    loss = 2 * 64 * 128  # the same logits, the same loss
    assert split - fused >= activation
    assert split - fused < activation + loss


def with_liger(tokens: int, layers: int, **changes: Any) -> Rank:
    """A bf16 step of Llama on Liger's kernels."""
    of = model_of({**LLAMA, "num_hidden_layers": layers, "intermediate_size": 512})
    code = replace(LIGER.on(implementation_of("hf", of.family)), **changes)
    return memory.rank_of(
        prepare(of, Setup(code, Layout(seq=tokens), POLICIES["bf16-pure"], find("adamw")[0], "fused")), 0
    )


def test_a_layer_on_ligers_kernels_keeps_what_matmuls_and_norms_read() -> None:
    """Each norm its input and an fp32 statistic of each row; q, k, v, the attention's output with a statistic of each
    of 4 heads; what the products of attention and MLP read; gate and up. Flash attention keeps its seed too, 24 bytes.
    """
    h, kv, f, tokens = 64, 32, 512, 64
    norms = 2 * (2 * h + 4 + 2 * h)
    attention = 2 * h + 2 * 2 * kv + 2 * h + 4 * 4
    mlp = 3 * 2 * f
    layer = with_liger(tokens, 2).saved - with_liger(tokens, 1).saved
    assert layer == tokens * (norms + attention + mlp) + 24


def with_unsloth(tokens: int, layers: int, **changes: Any) -> Rank:
    """The same on unsloth's kernels, with LoRA of rank 4 on all linear layers."""
    of = model_of({**LLAMA, "num_hidden_layers": layers, "intermediate_size": 512})
    tuning = Tuning("lora", 4, 0.0)
    code = replace(UNSLOTH.on(replace(implementation_of("hf", of.family), tuning=tuning)), **changes)
    return memory.rank_of(
        prepare(of, Setup(code, Layout(seq=tokens), POLICIES["bf16-pure"], find("adamw")[0], "fused")), 0
    )


def test_axolotls_functions_next_to_ligers_kernels_keep_what_unsloths_do() -> None:
    """Liger's norms and rotary embedding, and one function for each MLP and its adapters: unsloth's three."""
    of = model_of({**LLAMA, "intermediate_size": 512})
    plain = replace(implementation_of("hf", of.family), tuning=Tuning("lora", 4, 0.0))
    both, unsloth = together(LIGER, AXOLOTL).on(plain), UNSLOTH.on(plain)
    assert (both.norms, both.rotary, both.swiglu, both.tuning) == (
        unsloth.norms,
        unsloth.rotary,
        unsloth.swiglu,
        unsloth.tuning,
    )
    assert together(LIGER, None) == together(LIGER, UNSLOTH) == LIGER
    eight = replace(plain, tuning=Tuning("lora", 4, 0.0, quantized="int8"))
    assert AXOLOTL_ON_LIGER.on(eight) == LIGER.on(eight)


def test_a_layer_on_unsloths_kernels_keeps_neither_thin_products_nor_what_the_mlp_makes() -> None:
    """As Liger's, less the product of gate and up, which the backward pass writes over its gradient; and of LoRA's two
    matrices nothing is kept: they are one function with the frozen one, which reads its input alone."""
    h, kv, f, tokens = 64, 32, 512, 64
    layer = with_unsloth(tokens, 2).saved - with_unsloth(tokens, 1).saved
    assert layer == tokens * (2 * (2 * h + 4 + 2 * h) + 2 * h + 4 * kv + 2 * h + 4 * 4 + 4 * f) + 24
    kept = with_unsloth(tokens, 2, swiglu="overwritten").saved - with_unsloth(tokens, 1, swiglu="overwritten").saved
    assert kept - layer == tokens * 2 * f


def test_adapters_and_their_layers_are_one_function_without_dropout_alone() -> None:
    """With dropout its mask is kept, of one byte, and what it leaves; and the thin product of rank 4. Below the first
    adapter nothing has a gradient: no mask there, and attention's result is kept for it alone."""
    of, tokens = model_of(LLAMA), 64
    saved = []
    for dropout in (0.0, 0.1):
        tuning = Tuning("lora", 4, dropout, ("o_proj",), joined=True)
        code = replace(implementation_of("hf", of.family), tuning=tuning)
        step = prepare(of, Setup(code, Layout(seq=tokens), POLICIES["bf16-pure"], find("adamw")[0], "fused"))
        saved.append(memory.rank_of(step, 0).saved)
    assert saved[1] - saved[0] == tokens * ((of.depth - 1) * (64 + 2 * 64 + 2 * 4) + 2 * 4)


def test_ligers_swiglu_writes_its_gradients_over_its_inputs() -> None:
    """Without it the peak of an MLP's backward pass is at the gradients of gate and up, next to that of their product,
    which is no longer kept: 2 + 1 - 1 tensors; with it, at the product's gradient: 1."""
    tokens, f = 2048, 512
    over, beside = (
        dict(with_liger(tokens, 2, swiglu=kind).moments[2].made["temporaries"])["layer"]
        for kind in ("overwritten", "fused")
    )
    assert beside - over == 2 * tokens * f


# --- real torch on the CPU ---


def _saved_by_torch(run: Any, known: list[Any]) -> int:
    """Bytes of the unique storages that autograd saves while `run()` runs, those of `known` left out."""
    torch = pytest.importorskip("torch")
    held = {t.untyped_storage().data_ptr() for t in known}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        alive.append(run())
    return sum(kept.values())


def _plain_llama(torch: Any, h: int, f: int, a: int, kv: int, layers: int, vocabulary: int) -> Any:
    """A decoder written in plain torch the way Hugging Face's Llama is."""
    from torch import nn
    from torch.nn import functional

    d = h // a

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(h))

        def forward(self, x: Any) -> Any:
            wide = x.float()
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.weight * wide.to(x.dtype)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.q, self.o = nn.Linear(h, a * d, bias=False), nn.Linear(a * d, h, bias=False)
            self.k, self.v = nn.Linear(h, kv * d, bias=False), nn.Linear(h, kv * d, bias=False)
            self.gate, self.up = nn.Linear(h, f, bias=False), nn.Linear(h, f, bias=False)
            self.down = nn.Linear(f, h, bias=False)

        def attend(self, y: Any, cos: Any, sin: Any) -> Any:
            b, s, _ = y.shape
            q = self.q(y).view(b, s, a, d).transpose(1, 2)
            k = self.k(y).view(b, s, kv, d).transpose(1, 2)
            v = self.v(y).view(b, s, kv, d).transpose(1, 2)
            q, k = (t * cos + torch.cat((-t[..., d // 2 :], t[..., : d // 2]), -1) * sin for t in (q, k))
            if a != kv:
                k, v = (t[:, :, None].expand(b, kv, a // kv, s, d).reshape(b, a, s, d) for t in (k, v))
            scores = torch.matmul(q, k.transpose(2, 3)) * d**-0.5
            scores = scores + 1.0  # in the causal mask's place, which keeps nothing either
            weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
            return self.o(torch.matmul(weights, v).transpose(1, 2).contiguous().reshape(b, s, a * d))

        def feed(self, y: Any) -> Any:
            return self.down(functional.silu(self.gate(y)) * self.up(y))

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            x = x + self.attend(self.first(x), cos, sin)
            return x + self.feed(self.second(x))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm = nn.Embedding(vocabulary, h), Norm()
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.head = nn.Linear(h, vocabulary, bias=False)

        def forward(self, ids: Any, labels: Any) -> Any:
            x = self.table(ids)
            angles = torch.arange(ids.shape[1]).float()[:, None] * torch.ones(d // 2)
            both = torch.cat((angles, angles), -1)
            cos, sin = (t.to(x.dtype)[None] for t in (both.cos(), both.sin()))
            for block in self.blocks:
                x = block(x, cos[:, None], sin[:, None])
            logits = self.head(self.norm(x)).float()
            shifted = functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
            return functional.cross_entropy(logits.view(-1, vocabulary), shifted.view(-1), ignore_index=-100)

    return Decoder()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("b", "kv"), [(2, 2), (1, 2), (1, 1), (3, 4)])
def test_a_llama_in_plain_torch_keeps_the_same_bytes(dtype: str, b: int, kv: int) -> None:
    torch = pytest.importorskip("torch")
    h, f, a, layers, vocabulary, s = 32, 48, 4, 2, 61, 24
    network = _plain_llama(torch, h, f, a, kv, layers, vocabulary)
    network = network.to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    ids, labels = torch.randint(0, vocabulary, (b, s)), torch.randint(0, vocabulary, (b, s))
    kept = _saved_by_torch(lambda: network(ids, labels), [*network.parameters(), ids, labels])
    fields = {
        **LLAMA,
        "hidden_size": h,
        "intermediate_size": f,
        "num_hidden_layers": layers,
        "num_attention_heads": a,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
    }
    assert kept == rank(fields, Layout(seq=s, micro=b), POLICY[dtype], "eager").saved


def _traced_step(network: Any, optimizer: Any, ids: Any, labels: Any) -> int:
    """The largest bytes of live storages over the second training step, every ATen operation seen."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    class Watch(TorchDispatchMode):
        live = peak = 0

        def __init__(self) -> None:
            super().__init__()
            self.seen: dict[int, int] = {}

        def see(self, tensor: Any) -> None:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self.seen:
                self.seen[key] = storage.nbytes()
                self.live += storage.nbytes()
                weakref.finalize(storage, self.gone, key)

        def gone(self, key: int) -> None:
            self.live -= self.seen.pop(key)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for leaf in tree_iter(out):
                if isinstance(leaf, torch.Tensor):
                    self.see(leaf)
            self.peak = max(self.peak, self.live)
            return out

    torch.set_num_threads(1)  # small tensors: threads only wait for one another
    watch = Watch()
    for tensor in (*network.parameters(), ids, labels):
        watch.see(tensor)
    gc.freeze()  # what is there already is no garbage of this step
    for _ in range(2):
        gc.collect()
        watch.peak = 0
        with watch:
            loss = network(ids, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        del loss
    return watch.peak


@pytest.mark.parametrize("form", ["foreach", "forloop", "fused"])
@pytest.mark.parametrize(
    ("vocabulary", "f", "s", "kv", "moment"),
    [(61, 48, 24, 2, "loss"), (1024, 48, 24, 4, "loss"), (11, 160, 96, 2, "backward"), (97, 512, 1, 1, "step")],
)
def test_a_training_step_in_plain_torch_has_the_same_peak(
    form: str, vocabulary: int, f: int, s: int, kv: int, moment: str
) -> None:
    torch = pytest.importorskip("torch")
    h, a, layers, b = 32, 4, 2, 2
    network = _plain_llama(torch, h, f, a, kv, layers, vocabulary)
    optimizer = torch.optim.AdamW(network.parameters(), foreach=form == "foreach", fused=form == "fused")
    ids, labels = torch.randint(0, vocabulary, (b, s)), torch.randint(0, vocabulary, (b, s))
    peak = _traced_step(network, optimizer, ids, labels)
    fields = {
        **LLAMA,
        "hidden_size": h,
        "intermediate_size": f,
        "num_hidden_layers": layers,
        "num_attention_heads": a,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
    }
    found = rank(fields, Layout(seq=s, micro=b), "fp32", "eager", form=form)
    assert found.live == peak + 2 * 4 * (h // a // 2)  # the plain network registers no inverse frequencies
    if form == "foreach":
        assert max(found.moments, key=lambda one: one.live).name == moment


@pytest.mark.parametrize(("dropout", "bias"), [(0.0, True), (0.1, True), (0.1, False)])
def test_a_gpt_block_in_plain_torch_keeps_the_same_bytes(dropout: float, bias: bool) -> None:
    """nanoGPT's block, written out here, in fp32, where the CPU's kernels keep what CUDA's keep (but for dropout,
    whose fused kernel the CPU does not have: its mask is of the activations' type there)."""
    torch = pytest.importorskip("torch")
    functional, nn = torch.nn.functional, torch.nn
    b, s, a, h = 2, 16, 4, 32
    sides = ((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h))
    qkv, out, up, down = (nn.Linear(n, m, bias=bias) for n, m in sides)
    first, second = nn.LayerNorm(h, bias=bias), nn.LayerNorm(h, bias=bias)
    mask = torch.ones(s, s).tril().view(1, 1, s, s)

    def block(x: Any) -> Any:
        q, k, v = (t.view(b, s, a, h // a).transpose(1, 2) for t in qkv(first(x)).split(h, dim=2))
        weights = (q @ k.transpose(-2, -1)) * (h // a) ** -0.5
        weights = functional.softmax(weights.masked_fill(mask == 0, float("-inf")), dim=-1)
        y = (functional.dropout(weights, dropout) @ v).transpose(1, 2).contiguous().view(b, s, h)
        x = x + functional.dropout(out(y), dropout)
        return x + functional.dropout(down(functional.gelu(up(second(x)))), dropout)

    x = torch.randn(b, s, h, requires_grad=True)
    parameters = [p for module in (qkv, out, up, down, first, second) for p in module.parameters()]
    kept = _saved_by_torch(lambda: block(x), [*(p for p in parameters if p is not None), mask])
    model_type = "gpt2" if bias else "nanogpt"
    fields = {"model_type": model_type, "n_embd": h, "n_layer": 1, "n_head": a, "vocab_size": 97, "n_positions": s}
    layouts = Layout(seq=s, micro=b)
    two, one = (
        rank({**fields, "n_layer": n}, layouts, "fp32", "eager", dropout, implementation="nanogpt").saved
        for n in (2, 1)
    )
    wider = 3 * (2 * b * s * h + b * a * s * s) if dropout else 0
    assert kept == two - one + wider


# --- laws ---

SIZES = st.integers(1, 4)


@pytest.mark.parametrize(("b", "s", "layers", "stage"), [(1, 16, 1, 0), (3, 48, 4, 1)])
def test_more_work_of_a_plain_decoder_takes_more(b: int, s: int, layers: int, stage: int) -> None:
    fields = {**LLAMA, "num_hidden_layers": layers + 1}
    base = rank(fields, Layout(seq=s, micro=b, pp=2, micro_batches=2), stage=stage).live
    assert rank(fields, Layout(seq=s, micro=b + 1, pp=2, micro_batches=2), stage=stage).live > base
    assert rank(fields, Layout(seq=2 * s, micro=b, pp=2, micro_batches=2), stage=stage).live > base
    deeper = {**fields, "num_hidden_layers": layers + 3}
    assert rank(deeper, Layout(seq=s, micro=b, pp=2, micro_batches=2), stage=stage).live > base


def test_a_pipeline_holds_micro_batches_in_flight() -> None:
    """1F1B keeps p micro-batches of L/p layers on the first stage; interleaved (p + (p − 1)/v); GPipe all of them."""
    x = 2 * 64 * 64  # a block's input: 64 tokens of width 64 in bf16
    layers = {**LLAMA, "num_hidden_layers": 8}

    def kept(stage: int = 0, **layout: Any) -> float:
        plan = Layout(seq=64, pp=4, micro_batches=16, recompute=Recompute("full"), **layout)
        forward = rank(layers, plan, stage=stage).moments[0]
        assert forward.name == "forward"
        return float(forward.activations)

    assert [kept(stage) for stage in range(3)] == [4 * 2 * x, 3 * 2 * x, 2 * 2 * x]
    assert kept(schedule="gpipe") == 16 * 2 * x
    assert kept(vp=2, schedule="interleaved") == 2 * x * (4 + 3 / 2)


def test_recomputation_orders() -> None:
    def kept(text: str) -> int:
        return int(rank(LLAMA, Layout(seq=64, micro=2, recompute=recompute(text)), attention="eager").saved)

    assert kept("full") < kept("every:2") < kept("selective") < kept("none")
    assert kept("group:3") < kept("full")
    assert kept("group:sqrt") == kept("group:3")  # ⌈√6⌉


def test_arrays_of_layouts_are_answered_as_each_alone() -> None:
    tp, dp, pp, zero = ([1, 2, 2, 4], [4, 1, 2, 1], [1, 2, 3, 2], [3, 1, 0, 2])
    fields = {**LLAMA, "num_key_value_heads": 4}
    many = Layout(
        seq=64,
        micro=numpy.array([1.0, 2, 1, 3]),
        micro_batches=numpy.array([1.0, 4, 3, 2]),
        tp=numpy.array(tp) * 1.0,
        pp=numpy.array(pp) * 1.0,
        dp=numpy.array(dp) * 1.0,
        sp=numpy.array([0.0, 1, 0, 1]),
        zero=numpy.array(zero) * 1.0,
    )
    together = rank(fields, many)
    saved, live = numpy.asarray(together.saved), numpy.asarray(together.live)
    for i in range(4):
        alone = Layout(
            seq=64, micro=[1, 2, 1, 3][i], micro_batches=[1, 4, 3, 2][i], tp=tp[i], pp=pp[i], dp=dp[i],
            sp=[0, 1, 0, 1][i], zero=zero[i],
        )  # fmt: skip
        one = rank(fields, alone)
        assert saved[i] == one.saved
        assert live[i] == pytest.approx(one.live, rel=1e-3)


def test_a_million_layers_answer_like_a_few() -> None:
    few = rank({**LLAMA, "num_hidden_layers": 10}, Layout(seq=64))
    many = rank({**LLAMA, "num_hidden_layers": 100_000}, Layout(seq=64))
    one_layer = (few.saved - rank({**LLAMA, "num_hidden_layers": 9}, Layout(seq=64)).saved) * (100_000 - 10)
    assert many.saved == few.saved + one_layer


INDEXED = {
    "model_type": "deepseek_v32",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "mlp_layer_types": ["dense", "sparse"],
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 32,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("sequences", "recompute", "live"),
    [(1, "none", 10_810_584), (2, "none", 30_550_232), (1, "full", 10_132_032), (2, "full", 29_111_872)],
)
def test_scores_of_an_indexer_come_and_go_at_the_peak(sequences: int, recompute: str, live: int) -> None:
    """Live bytes that a trace of transformers 5.24.0's DeepSeek-V3.2 counted in a step with AdamW, foreach."""
    layout = Layout(seq=256, micro=sequences, recompute=Recompute(recompute))
    assert rank(INDEXED, layout, attention="efficient").live == live


def test_no_gradient_reaches_an_indexer() -> None:
    """Its weights are held, without gradients and states: H·D·q + D·h + 2·D + H·h of each of two layers."""
    layout = Layout(seq=64, micro=1)
    with_it = rank(INDEXED, layout, attention="efficient")
    without = rank(INDEXED | {"index_n_heads": 8}, layout, attention="efficient")
    fewer = 2 * (8 * 32 * 32 + 8 * 64)
    assert with_it.parameters - without.parameters == 2 * fewer
    assert (with_it.gradients, with_it.optimizer) == (without.gradients, without.optimizer)


def test_jitter_keeps_its_noise_and_an_even_load_is_a_loss_of_its_own() -> None:
    """Noise: T·h numbers a layer. The loss: in each layer softmax (T·E numbers), and 4·E bytes in all; the choice,
    through which no gradient passes, is gone by then."""
    mixture = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    layout = Layout(seq=64, micro=3)
    tokens, plain = 3 * 64, rank(mixture, layout).saved
    assert rank(mixture | {"router_jitter_noise": 0.01}, layout).saved - plain == 6 * tokens * 64 * 2
    balanced = 6 * tokens * 4 * 2 + 4 * 4
    assert rank(mixture | {"output_router_logits": True}, layout).saved - plain == balanced
