"""What plain torch on the CPU keeps for backward, and the peak of a step that it runs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from napkin.training.layout import Layout
from tests.test_activations import LLAMA, POLICY, rank


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
