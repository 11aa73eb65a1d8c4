"""Three tiny networks written in plain torch, on the meta device: napkin's counts against torch's own counter.

Nothing here is taken from napkin: shapes, weights and products are written down again, the way a reader of the papers
would, and torch.utils.flop_counter counts them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from napkin.architectures import build
from napkin.counting import flops
from napkin.counting.params import params
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from

pytest.importorskip("torch")

import torch
from torch import nn

F = torch.nn.functional

BATCH, SEQ = 2, 24


def attend(q: Any, k: Any, v: Any) -> Any:
    """Written-out causal attention of [batch, heads, seq, size] tensors; keys and values repeat over their group."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    mask = torch.full((q.shape[2], q.shape[2]), float("-inf"), device=q.device).triu(1)
    return (scores + mask).softmax(-1) @ v


def heads(x: Any, count: int) -> Any:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return self.weight * x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()


class GPT(nn.Module):
    """Learned positions, biases, GELU, a tied head (GPT-2)."""

    h, a, layers, rows, positions = 48, 4, 3, 101, 32

    def __init__(self) -> None:
        super().__init__()
        h = self.h
        self.wte, self.wpe = nn.Embedding(self.rows, h), nn.Embedding(self.positions, h)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln1": nn.LayerNorm(h),
                    "qkv": nn.Linear(h, 3 * h),
                    "out": nn.Linear(h, h),
                    "ln2": nn.LayerNorm(h),
                    "up": nn.Linear(h, 4 * h),
                    "down": nn.Linear(4 * h, h),
                }
            )
            for _ in range(self.layers)
        )
        self.norm = nn.LayerNorm(h)

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        block: Any
        for block in self.blocks:
            q, k, v = (heads(t, self.a) for t in block["qkv"](block["ln1"](x)).chunk(3, -1))
            x = x + block["out"](attend(q, k, v).transpose(1, 2).flatten(2))
            x = x + block["down"](F.gelu(block["up"](block["ln2"](x))))
        return F.linear(self.norm(x), self.wte.weight)

    config: ClassVar[dict[str, Any]] = {
        "model_type": "gpt2",
        "n_embd": h,
        "n_head": a,
        "n_layer": layers,
        "vocab_size": rows,
        "n_positions": positions,
    }


class Mixture(nn.Module):
    """Grouped-query attention and routed SwiGLU experts (Mixtral). Each token's top-k products are made, no others."""

    h, a, kv, d, f, layers, rows, experts, top_k = 40, 5, 1, 16, 56, 2, 90, 6, 2

    def __init__(self) -> None:
        super().__init__()
        h, f, e = self.h, self.f, self.experts
        self.table = nn.Embedding(self.rows, h)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": RMSNorm(h),
                    "q": nn.Linear(h, self.a * self.d, bias=False),
                    "k": nn.Linear(h, self.kv * self.d, bias=False),
                    "v": nn.Linear(h, self.kv * self.d, bias=False),
                    "o": nn.Linear(self.a * self.d, h, bias=False),
                    "norm2": RMSNorm(h),
                    "router": nn.Linear(h, e, bias=False),
                    "experts": nn.ParameterDict(
                        {
                            "gate": torch.empty(e, h, f),
                            "up": torch.empty(e, h, f),
                            "down": torch.empty(e, f, h),
                        }
                    ),
                }
            )
            for _ in range(self.layers)
        )
        self.norm, self.head = RMSNorm(h), nn.Linear(h, self.rows, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        block: Any
        for block in self.blocks:
            y = block["norm1"](x)
            q, k, v = heads(block["q"](y), self.a), heads(block["k"](y), self.kv), heads(block["v"](y), self.kv)
            x = x + block["o"](attend(q, k, v).transpose(1, 2).flatten(2))
            y = block["norm2"](x).flatten(0, 1)
            weight, chosen = block["router"](y).softmax(-1).topk(self.top_k, -1)
            rows = y.repeat_interleave(self.top_k, 0).unsqueeze(1)
            gate, up, down = (block["experts"][name][chosen.flatten()] for name in ("gate", "up", "down"))
            made = (F.silu(rows @ gate) * (rows @ up)) @ down
            x = x + (made.unflatten(0, (-1, self.top_k)).squeeze(2) * weight.unsqueeze(-1)).sum(1).view_as(x)
        return self.head(self.norm(x))

    config: ClassVar[dict[str, Any]] = {
        "model_type": "mixtral",
        "hidden_size": h,
        "num_attention_heads": a,
        "num_key_value_heads": kv,
        "head_dim": d,
        "intermediate_size": f,
        "num_hidden_layers": layers,
        "vocab_size": rows,
        "num_local_experts": experts,
        "num_experts_per_tok": top_k,
        "tie_word_embeddings": False,
    }


class Latent(nn.Module):
    """Multi-head latent attention with a low-rank query, and a dense SwiGLU MLP (DeepSeek-V2 and V3)."""

    h, a, q_rank, kv_rank, nope, rope, v, f, layers, rows = 48, 3, 20, 12, 8, 4, 10, 64, 2, 77

    def __init__(self) -> None:
        super().__init__()
        h, a = self.h, self.a

        def plain(d_in: int, d_out: int) -> Any:
            return nn.Linear(d_in, d_out, bias=False)

        self.table = nn.Embedding(self.rows, h)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": RMSNorm(h),
                    "qa": plain(h, self.q_rank),
                    "q_norm": RMSNorm(self.q_rank),
                    "qb": plain(self.q_rank, a * (self.nope + self.rope)),
                    "kva": plain(h, self.kv_rank + self.rope),
                    "kv_norm": RMSNorm(self.kv_rank),
                    "kvb": plain(self.kv_rank, a * (self.nope + self.v)),
                    "o": plain(a * self.v, h),
                    "norm2": RMSNorm(h),
                    "gate": plain(h, self.f),
                    "up": plain(h, self.f),
                    "down": plain(self.f, h),
                }
            )
            for _ in range(self.layers)
        )
        self.norm, self.head = RMSNorm(h), plain(h, self.rows)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        block: Any
        for block in self.blocks:
            y = block["norm1"](x)
            q = heads(block["qb"](block["q_norm"](block["qa"](y))), self.a)
            latent, shared = block["kva"](y).split((self.kv_rank, self.rope), -1)
            k, v = heads(block["kvb"](block["kv_norm"](latent)), self.a).split((self.nope, self.v), -1)
            k = torch.cat((k, shared.unsqueeze(1).expand(-1, self.a, -1, -1)), -1)
            x = x + block["o"](attend(q, k, v).transpose(1, 2).flatten(2))
            y = block["norm2"](x)
            x = x + block["down"](F.silu(block["gate"](y)) * block["up"](y))
        return self.head(self.norm(x))

    config: ClassVar[dict[str, Any]] = {
        "model_type": "deepseek_v3",
        "hidden_size": h,
        "num_attention_heads": a,
        "q_lora_rank": q_rank,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": v,
        "intermediate_size": f,
        "num_hidden_layers": layers,
        "first_k_dense_replace": layers,
        "vocab_size": rows,
        "tie_word_embeddings": False,
    }


@pytest.mark.parametrize("network", [GPT, Mixture, Latent])
def test_parameters_and_flops(network: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    of = build(config_from("tiny", Document("tiny", network.config), network.config))
    with torch.device("meta"):
        real = network()
        ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    assert params(of)["params/total"].value == sum(p.numel() for p in real.parameters())
    counted = flops.step(of, flops.works(of, BATCH, SEQ))
    with FlopCounterMode(display=False) as forward:
        logits = real(ids)
    assert counted["flops/forward"].value == forward.get_total_flops()
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    assert counted["flops/backward"].value == backward.get_total_flops()
