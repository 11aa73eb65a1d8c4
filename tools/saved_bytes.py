"""Bytes that real Hugging Face code saves for backward, measured and compared with what napkin says.

A model of a small config runs once on the meta device: hooks see each tensor that autograd saves. CUDA is emulated by
its operators' signatures: attention kernels are called as their ATen operations, dropout is the fused kernel, autocast
casts by the operator lists of ATen/autocast_mode.h. No weights, no GPU, no download.

    python -m venv hf && hf/bin/pip install torch==2.13.0 transformers==5.23.0 pyyaml
    hf/bin/python tools/saved_bytes.py                              every model type, a few configs in every mode
    hf/bin/python tools/saved_bytes.py llama gpt2 --cases 4         these, more configs
    hf/bin/python tools/saved_bytes.py mpt --only bf16/eager --show the tensors of what differs, mine and theirs
    hf/bin/python tools/saved_bytes.py --config c.json --shape 2x64 one config in every mode
    hf/bin/python tools/saved_bytes.py llama --write                keep the result: the table that napkin reads, and
                                                                    some of the cases for the tests

A mode is precision/kernel/dropout/batch. A model type's mode is exact where every config drawn was equal.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"], os.environ["CUDA_VISIBLE_DEVICES"] = "1", ""
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import torch  # noqa: E402
import torch._meta_registrations  # noqa: E402
import torch.nn.functional as functional  # noqa: E402
import transformers  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402
from transformers.initialization import no_init_weights  # noqa: E402

from napkin.errors import NapkinError  # noqa: E402
from napkin.formulas import memory  # noqa: E402
from napkin.formulas.families import ADAPTERS, build  # noqa: E402
from napkin.formulas.implementations import ALL_KERNELS, FLASH, MANY, ONE, code_of, mode  # noqa: E402
from napkin.formulas.lowering import FLASH_HEAD  # noqa: E402
from napkin.formulas.optimizers import find  # noqa: E402
from napkin.inputs.load import Document  # noqa: E402
from napkin.inputs.model import config_from  # noqa: E402
from napkin.inputs.plan import POLICIES, Layout  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
aten = torch.ops.aten

TABLE = ROOT / "src" / "napkin" / "_tables" / "saved_bytes.py"
CASES = ROOT / "tests" / "data" / "saved_bytes.json"
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "amp-bf16"}
DROPOUT = 0.1
SHOWN = 3
"""Differing cases of a model type that are printed."""
ATTEMPTS = 6
"""Draws for each config that is wanted: some that are drawn contradict themselves."""
KEPT_CASES = 5
"""Cases of a model type that the tests keep."""


# --- CUDA, emulated -------------------------------------------------------------------------------------------------

LOWERED = re.compile(
    "addmm|addmv|addr|matmul|einsum|mm|mv|linear|addbmm|baddbmm|bmm|chain_matmul|multi_dot|conv1d|conv2d|conv3d|prelu"
    "|__r?matmul__"
)
"""Operations that autocast runs in 16 bits."""
RAISED = re.compile(
    "acos|asin|cosh|erfinv|exp|expm1|log|log10|log2|log1p|reciprocal|rsqrt|sinh|tan|pow|square|__r?pow__|softplus"
    "|(native_)?layer_norm|rms_norm|group_norm|cosine_similarity|nll_loss|kl_div|l1_loss|smooth_l1_loss|mse_loss|dist"
    "|cdist|renorm|logsumexp|binary_cross_entropy_with_logits"
)
"""Operations that autocast runs in fp32 (square calls pow)."""
SUMS = frozenset(("norm", "prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum"))
"""Operations that autocast asks for a result in fp32 where none is asked for."""


class Autocast(TorchFunctionMode):
    """torch.autocast("cuda", torch.bfloat16): what an operation gets by the list that it stands on. A weight is cast
    once and kept; `copies` are the storages of these casts."""

    active: Autocast | None = None

    def __init__(self) -> None:
        super().__init__()
        self.cast: dict[int, tuple[Any, Any]] = {}
        self.copies: set[int] = set()
        self.off = 0

    def lower(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float32:
            return x
        if not (x.is_leaf and x.requires_grad) or x._is_view():
            return x.to(torch.bfloat16)
        if id(x) not in self.cast:
            self.cast[id(x)] = (x, x.to(torch.bfloat16))
            self.copies.add(self.cast[id(x)][1].untyped_storage()._cdata)
        return self.cast[id(x)][1]

    @staticmethod
    def raise_(x: Any) -> Any:
        return x.float() if isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 else x

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        change: Callable[[Any], Any] | None = None
        if not self.off:
            if LOWERED.fullmatch(name):
                change = self.lower
            elif RAISED.fullmatch(name):
                change = self.raise_
            elif name in SUMS and kwargs.get("dtype") is None:
                x = args[0] if args else kwargs["input"]
                if x.dtype == torch.bfloat16 and not (name.endswith("softmax") and len(args) > 3 and args[3]):
                    kwargs["dtype"], args = torch.float32, args[:3]
        if change is None:
            return func(*args, **kwargs)
        with paused():
            return func(*tree_map(change, args), **tree_map(change, kwargs))

    def __enter__(self) -> Any:
        Autocast.active = self
        return super().__enter__()

    def __exit__(self, *reason: Any) -> None:
        Autocast.active = None
        super().__exit__(*reason)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """What runs here is left as it is."""
    active = Autocast.active
    if active is None:
        yield
        return
    active.off += 1
    try:
        yield
    finally:
        active.off -= 1


class Region:
    """torch.autocast as models write it, a context or a decorator: they only ever switch it off."""

    def __init__(self, device_type: str = "", dtype: Any = None, enabled: bool = True, **_: Any) -> None:
        self.context = contextlib.nullcontext() if enabled else paused()

    def __enter__(self) -> None:
        self.context.__enter__()

    def __exit__(self, *reason: Any) -> None:
        self.context.__exit__(*reason)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with paused():
                return function(*args, **kwargs)

        return inside


KERNEL = FLASH
"""The attention kernel that is asked for."""


def attend(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention on CUDA (ATen/native/transformers/attention.cpp): the flash kernel takes no mask and
    one head size, padded to a multiple of 8; the efficient one no grouped heads; a boolean mask becomes a sum's term.
    """
    kernel = KERNEL
    active = Autocast.active
    if active is not None and not active.off:
        query, key, value, attn_mask = (active.lower(t) for t in (query, key, value, attn_mask))
    if key.shape[1] != query.shape[1] and not enable_gqa:
        with paused():
            return written_out(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if kernel == FLASH and (attn_mask is not None or query.shape[-1] != value.shape[-1]):
        kernel = "efficient"
    if kernel == FLASH:
        size = query.shape[-1]
        rest = -size % FLASH_HEAD
        if rest:
            query, key, value = (functional.pad(t, [0, rest]) for t in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return out[..., :size] if rest else out
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype))
        if kernel == "efficient" and any(step % 8 for step in attn_mask.stride()[:-1]):
            attn_mask = functional.pad(attn_mask, [0, -attn_mask.shape[-1] % 8])[..., : attn_mask.shape[-1]]
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    if kernel == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, True, dropout_p, is_causal, False, scale=scale
        )[0]
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]


def written_out(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    """_scaled_dot_product_attention_math: what no kernel takes, here of heads that nobody declared to be grouped."""
    assert attn_mask is not None
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype))
    q, k, v = (t.float() for t in (query, key, value))
    root = (scale or query.shape[-1] ** -0.5) ** 0.5
    scores = torch.matmul(q * root, k.transpose(-2, -1) * root)
    weights = aten._safe_softmax(scores.add_(attn_mask), -1)
    return torch.matmul(drop(weights, dropout_p), v).to(query.dtype)


def drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """functional.dropout on CUDA: one kernel, a mask of one byte an element."""
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def grouped(mat_a: Any, mat_b: Any, *_: Any, offs: Any = None, out_dtype: Any = None, **__: Any) -> Any:
    """torch's grouped product on CUDA takes fp32 too (aten/src/ATen/native/GroupedMMUtils.h), which the meta device
    refuses; strides are multiples of 16 bytes on both."""
    for tensor in (mat_a, mat_b):
        step = tensor.stride(-2) if tensor.stride(-1) == 1 else tensor.stride(-1)
        if step * tensor.element_size() % 16:
            raise ValueError("strides should be multiple of 16 bytes")
    return torch._meta_registrations._create_grouped_mm_output_tensor(  # type: ignore[attr-defined]
        mat_a, mat_b, offs, out_dtype
    )


def emulate() -> None:
    """Put CUDA's behaviour in place of the meta device's, for this process."""
    import transformers.masking_utils
    import transformers.utils.generic

    torch._meta_registrations._meta_grouped_mm_common = grouped  # type: ignore[attr-defined]
    functional.scaled_dot_product_attention = attend
    functional.dropout = drop
    torch.autocast = Region
    torch.is_autocast_enabled = lambda device_type=None: Autocast.active is not None and not Autocast.active.off
    torch.get_autocast_dtype = lambda device_type=None: torch.bfloat16
    transformers.utils.generic.maybe_autocast = Region
    # its answer is in the data: one sequence a row
    transformers.masking_utils.find_packed_sequence_indices = lambda position_ids: None
    # and here: no padding
    transformers.masking_utils.fast_all = lambda mask: True


# --- measuring ------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One storage that autograd saved."""

    module: str
    shape: tuple[int, ...]
    dtype: str
    size: int


class Measured(NamedTuple):
    rows: list[Row]
    saved: int
    casts: int


LOOPED = ("dbrx", "jetmoe", "longcat_flash")
"""Types whose experts run one after the other on as many tokens as chose them: the CPU runs them, with numbers."""


def device_of(fields: dict[str, Any]) -> str:
    return "cpu" if fields["model_type"] in LOOPED else "meta"


def network(fields: dict[str, Any], precision: str, kernel: str) -> Any:
    """The class that a config's model_type stands for, without weights."""
    config = transformers.AutoConfig.for_model(**fields)
    config.use_cache = False
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    attention = "eager" if kernel == "eager" else "sdpa"
    with torch.device(device_of(fields)), no_init_weights():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    if device_of(fields) == "cpu":  # weights that send tokens to every expert
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return model.train()


def measure(fields: dict[str, Any], precision: str, kernel: str, sequences: int, length: int) -> Measured:
    """One forward pass and its loss."""
    global KERNEL
    KERNEL = kernel
    model = network(fields, precision, kernel)
    device = device_of(fields)
    if device == "cpu" and kernel != "eager":
        raise ValueError("kernels run on the meta device alone")
    with torch.device(device):
        ids, labels = (torch.arange(sequences * length).view(sequences, length) % 97 for _ in range(2))
    narrow_norms = {
        name
        for name, module in model.named_modules()
        if device == "cpu" and isinstance(module, torch.nn.LayerNorm) and precision == "bf16"
    }
    alive = [*model.parameters(), *model.buffers(), ids, labels]  # a storage's address is its name
    known = {tensor.untyped_storage()._cdata for tensor in alive}
    stack: list[str] = []
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: stack.append(name))
        module.register_forward_hook(lambda *_: (stack.pop(), None)[1], always_call=True)
    rows: dict[int, Row] = {}
    casts: dict[int, int] = {}
    autocast = Autocast()

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in known and key not in rows:
            alive.append(tensor)
            if key in autocast.copies:
                casts[key] = storage.nbytes()
            else:
                where, dtype = stack[-1] if stack else "", str(tensor.dtype).removeprefix("torch.")
                wide = 2 if where in narrow_norms and tensor.shape[-1] == 1 else 1  # fp32 on CUDA, bf16 on the CPU
                rows[key] = Row(where, tuple(tensor.shape), dtype, wide * storage.nbytes())
        return tensor

    with (
        torch.device(device),
        autocast if precision == "autocast" else contextlib.nullcontext(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        model(input_ids=ids, labels=labels, use_cache=False)
    found = list(rows.values())
    return Measured(found, sum(row.size for row in found), sum(casts.values()))


def layer_of(module: str) -> int | None:
    """The number of the layer that a module stands in."""
    found = re.search(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?:\.|$)", module)
    return int(found[1]) if found else None


# --- what napkin says -----------------------------------------------------------------------------------------------


def said(fields: dict[str, Any], precision: str, kernel: str, dropout: float, sequences: int, length: int) -> Any:
    """napkin's step and its only rank."""
    model = build(config_from("config", Document("config", fields), fields))
    layout = Layout(seq=length, micro=sequences)
    code = code_of("hf", model.family)
    setup = memory.Setup(code, layout, POLICIES[POLICY[precision]], find("adamw")[0], "foreach", kernel, dropout)
    step = memory.prepare(model, setup)
    return step, memory.rank_of(step, 0)


def show(step: Any, found: Measured) -> None:
    """Storages of one layer and outside that only one of both has, by their bytes."""
    last = max((n for n in (layer_of(row.module) for row in found.rows) if n is not None), default=0)
    pieces = {
        "last layer": (step.run.layers[-1][1].kept, [r for r in found.rows if layer_of(r.module) == last]),
        "outside": (
            (*step.run.before.kept, *step.run.after.kept),
            [r for r in found.rows if layer_of(r.module) is None],
        ),
    }
    for piece, (kept, rows) in pieces.items():
        mine = Counter(int(s.size * s.kept) for s in kept if s.kind == "activation")
        theirs = Counter(row.size for row in rows)
        for size in sorted(set(mine) | set(theirs)):
            if mine[size] != theirs[size]:
                labels = [f"{s.label}{' (shared)' * s.shared}" for s in kept if int(s.size * s.kept) == size]
                print(f"      {piece}, {size} bytes: mine {mine[size]} {labels}")
                named = [
                    f"{r.module.split('.', 3)[-1]} {'×'.join(map(str, r.shape))} {r.dtype}"
                    for r in rows
                    if r.size == size
                ]
                print(f"      {' ' * len(piece)}  theirs {theirs[size]} {named}")


# --- configs --------------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """What is drawn for one case."""

    fields: dict[str, Any]
    sequences: int
    length: int


WIDTH = ("hidden_size", "n_embd", "d_model")
DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
INNER = ("intermediate_size", "ffn_dim", "n_inner", "dff", "ffn_hidden_size", "intermediate_size_mlp")
LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len")
WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k")
FUNCTIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu", "gelu_fast")
UNDRAWN = (
    "add_cross_attention",
    "is_decoder",
    "is_encoder_decoder",
    "output_",
    "return_dict",
    "use_cache",
    "init",
    "summary",
)
"""Fields that make another network of it, or change nothing here (by the beginning of their names)."""

SPECIAL: dict[str, Callable[[random.Random, dict[str, Any]], dict[str, Any]]] = {}
"""Fields that the general draw cannot make, by model type."""


def special(*model_types: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    def remember(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        SPECIAL.update(dict.fromkeys(model_types, function))
        return function

    return remember


@special("gptj", "codegen")
def _rotary_dim(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"rotary_dim": rng.choice((4, 8))}


@special("apertus")
def _only_function(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"hidden_act": "xielu"}


@special("opt")
def _narrow_table(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"word_embed_proj_dim": rng.choice((drawn["hidden_size"], 40)), "_remove_final_layer_norm": False}


@special("gpt_neo")
def _kinds_of_attention(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"attention_types": [[["global", "local"], drawn["num_layers"] // 2]]}


@special("mpt")
def _attention_config(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"attn_config": {"clip_qkv": rng.choice((None, 8.0))}, "no_bias": True}


@special("dbrx")
def _blocks_of_fields(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    width, heads = drawn.pop("d_model"), drawn["n_heads"]
    drop = drawn.get("resid_pdrop", 0.0)
    kv_heads = rng.choice([n for n in (1, 2, heads) if heads % n == 0])
    return {
        "d_model": width,
        "tie_word_embeddings": False,
        "num_key_value_heads": kv_heads,
        "attn_config": {"kv_n_heads": kv_heads, "clip_qkv": 8.0, "attn_pdrop": drop, "rope_theta": 10000.0},
        "ffn_config": {
            "ffn_hidden_size": rng.choice((24, 40)),
            "hidden_size": width,
            "moe_num_experts": 3,
            "moe_top_k": rng.choice((2, 3)),
            "moe_jitter_eps": rng.choice((None, 0.01)),
        },
    }


@special("longcat_flash")
def _all_with_weights(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """How many tokens reach experts without weights is not known before the step; its code takes no single choice."""
    return {"zero_expert_num": 0, "n_routed_experts": 3, "moe_topk": 2, "num_layers": 2}


def experts_and_ranks(rng: random.Random, own: dict[str, Any], layers: int, heads: int) -> dict[str, Any]:
    """What mixtures of experts and latent attention have beside the others' sizes."""
    experts, groups = rng.choice((4, 5, 6, 7)), 1
    chosen = rng.choice((1, 2, 3, experts))
    if "n_group" in own and rng.random() < 0.4:
        experts, groups, chosen = 6, 2, min(chosen, 3)
    rotary, plain = rng.choice((8, 16)), rng.choice((8, 16, 24))
    choices: dict[str, Any] = {
        **dict.fromkeys(EXPERTS, experts),
        **dict.fromkeys(CHOSEN, chosen),
        **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), rng.choice((24, 40, 56))),
        "n_group": groups,
        "topk_group": rng.randint(1, groups),
        "topk_method": rng.choice(("greedy", "group_limited_greedy")) if groups > 1 else "greedy",
        "shared_expert_intermediate_size": rng.choice((56, 88)),
        "shared_intermediate_size": rng.choice((0, 56)),
        **dict.fromkeys(("n_shared_experts", "num_shared_experts"), rng.choice((1, 2))),
        "moe_num_shared_experts": rng.choice((0, 1, 2)),
        "decoder_sparse_step": rng.choice((1, 2)),
        "mlp_only_layers": rng.choice(([], [0])),
        "mlp_layer_types": [rng.choice(("dense", "sparse")) for _ in range(layers - 1)] + ["sparse"],
        "first_k_dense_replace": rng.choice((0, 1)),
        "moe_layer_start_index": rng.choice((0, 1)),
        "interleave_moe_layer_step": rng.choice((1, 2)),
        "no_rope_layers": [rng.choice((0, 1)) for _ in range(layers)],
        "output_router_logits": rng.random() < 0.3,
        **{name: rng.choice((0.0, 0.01)) for name in own if "jitter" in name},
        "kv_lora_rank": rng.choice((20, 24, 32)),
        "q_lora_rank": rng.choice((28, 32) if "index_topk" in own or "moe_topk" in own else (None, 28, 32)),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": plain,
        "v_head_dim": rng.choice((16, 24, plain + rotary)),
        "index_n_heads": rng.choice((2, 3)),
        "index_head_dim": rotary + rng.choice((0, 8)),
        "index_topk": rng.choice((4, 16, 128)),
        "indexer_types": rng.choice((None, ["full"] + ["shared"] * (layers - 1))),
    }
    found = {name: value for name, value in choices.items() if name in own or name == "output_router_logits"}
    if "kv_lora_rank" in own:
        found |= {"num_key_value_heads": heads, "head_dim": rotary}
    return found


def draw(model_type: str, rng: random.Random, dropout: float) -> Shape:
    """A small config of a model type, its flags and functions drawn too, and the batch it runs on."""
    config = transformers.AutoConfig.for_model(model_type)
    own = {
        name: value
        for name, value in config.to_dict().items()
        if name not in config.attribute_map and not name.startswith(UNDRAWN)
    }
    fields: dict[str, Any] = {"model_type": model_type}

    def put(names: Sequence[str], value: Any) -> None:
        fields.update((name, value) for name in names if name in own)

    heads, size, layers = rng.choice((2, 4, 6)), rng.choice((8, 12, 16, 24)), rng.choice((2, 4))
    length = rng.choice((32, 33, 40, 64))
    put(WIDTH, heads * size)
    put(DEPTH, layers)
    put(HEADS, heads)
    put(("num_key_value_heads", "num_kv_heads"), rng.choice([n for n in (1, 2, heads) if heads % n == 0]))
    if "head_dim" in own and rng.random() < 0.5:
        fields["head_dim"] = rng.choice((8, 16, 20, 24))
    put(INNER, rng.choice((72, 104, 144)))
    put(("vocab_size",), rng.choice((97, 160)))
    put(LENGTH, rng.choice((length, 128)))
    window = rng.choice((None, 16, 4096))
    put(WINDOWS, (window or 4096) if any(own.get(name) is not None for name in WINDOWS) else window)
    put(("layer_types",), [rng.choice(("full_attention", "sliding_attention")) for _ in range(layers)])
    put(("max_window_layers",), rng.choice((0, 1, layers)))
    put(("partial_rotary_factor", "rotary_pct"), rng.choice((0.25, 0.5, 1.0)))
    put(("hidden_act", "hidden_activation", "activation_function", "activation", "afn"), rng.choice(FUNCTIONS))
    put(("clip_qkv",), rng.choice((None, 4.0)))
    if any(name in own for name in (*EXPERTS, "kv_lora_rank")):
        fields.update(experts_and_ranks(rng, own, layers, heads))
    for name, value in own.items():
        if isinstance(value, bool) and name not in fields:
            fields[name] = rng.random() < 0.5 if rng.random() < 0.5 else value
        elif isinstance(value, float) and "drop" in name:
            fields[name] = 0.0 if "layer" in name else dropout
        elif name.endswith("_token_id") and isinstance(value, int):
            fields[name] = 1
    if "layer_types" in fields and not (window and fields.get("use_sliding_window", True)):
        del fields["layer_types"]
    if model_type in SPECIAL:
        fields.update(SPECIAL[model_type](rng, fields))
    return Shape(fields, 0, length)


def has_dropout(model_type: str) -> bool:
    """Whether a class has any."""
    fields = draw(model_type, random.Random(0), DROPOUT).fields
    return DROPOUT in fields.values()


# --- comparing ------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One measurement beside what napkin says of it. `problem`: why there is none."""

    mode: str
    shape: Shape
    found: Measured | None
    saved: int
    casts: int
    problem: str = ""

    @property
    def equal(self) -> bool:
        return self.found is not None and (self.saved, self.casts) == (self.found.saved, self.found.casts)


def compare(shape: Shape, precision: str, kernel: str, dropout: float, shown: bool) -> Case:
    fields, sequences, length = shape
    name = mode(precision, kernel, dropout > 0, sequences)
    try:
        found = measure(fields, precision, kernel, sequences, length)
    except Exception as problem:  # whatever a class does not run
        return Case(name, shape, None, 0, 0, f"does not run: {type(problem).__name__}: {str(problem)[:150]}")
    try:
        step, rank = said(fields, precision, kernel, dropout, sequences, length)
    except NapkinError as problem:
        return Case(name, shape, None, 0, 0, f"refused: {problem.message}")
    case = Case(name, shape, found, rank.saved, rank.casts)
    if shown and not case.equal:
        report(case)
        show(step, found)
    return case


def report(case: Case) -> None:
    assert case.found is not None
    off = case.saved - case.found.saved
    print(
        f"   {case.mode} {case.shape.sequences}×{case.shape.length}: saved {case.found.saved:,} bytes, napkin says "
        f"{off:+,} ({off / case.found.saved:+.2%}), casts {case.casts - case.found.casts:+,}"
    )
    print(f"      {json.dumps(case.shape.fields)}")


def sweep(model_type: str, count: int, seed: int, only: str, shown: bool) -> list[Case]:
    """`count` configs in every mode."""
    cases = []
    for precision in POLICY:
        for kernel in ALL_KERNELS:
            for dropout in (0.0, DROPOUT) if has_dropout(model_type) else (0.0,):
                for batch in (ONE, MANY):
                    rng = random.Random(f"{seed} {model_type} {precision} {kernel} {dropout} {batch}")
                    if not mode(precision, kernel, dropout > 0, 1 if batch == ONE else 2).startswith(only):
                        continue
                    wanted, left = count, ATTEMPTS * count
                    while wanted and left:
                        drawn = draw(model_type, rng, dropout)
                        drawn = drawn._replace(sequences=1 if batch == ONE else rng.choice((2, 3)))
                        case = compare(drawn, precision, kernel, dropout, shown)
                        wanted, left = wanted - (case.found is not None), left - 1
                        cases.append(case)
                        if [one.problem for one in cases[-3:]] == [case.problem] * 3 and case.problem:
                            break  # not for what was drawn
    return cases


def verdicts(cases: list[Case]) -> dict[str, bool]:
    """Of each mode with a measurement, whether all were equal."""
    found: dict[str, bool] = {}
    for case in cases:
        if case.found is not None:
            found[case.mode] = found.get(case.mode, True) and case.equal
    return found


# --- keeping --------------------------------------------------------------------------------------------------------


def write_table(model_type: str, cases: list[Case]) -> None:
    """The table, with this model type's entry anew."""
    table: dict[str, Any] = {}
    exec(TABLE.read_text(encoding="utf-8"), table)
    versions = (transformers.__version__, torch.__version__.split("+")[0])
    entries = table["EXACT"] if versions == (table["TRANSFORMERS"], table["TORCH"]) else {}
    kept = {t: (table["MODES"][n], many) for t, (n, many) in entries.items() if t != model_type}
    equal = tuple(sorted(name for name, exact in verdicts(cases).items() if exact))
    if equal:
        kept[model_type] = (equal, sum(case.found is not None for case in cases))
    sets = sorted({modes for modes, _ in kept.values()}, key=lambda modes: (-len(modes), modes))
    text = '"""Generated by tools/saved_bytes.py --write from measurements of the code itself."""\n\n'
    text += f"from __future__ import annotations\n\nTRANSFORMERS = {versions[0]!r}\nTORCH = {versions[1]!r}\n"
    text += "MODES: tuple[tuple[str, ...], ...] = (\n"
    for modes in sets:
        text += "    (\n" + "".join(f"        {name!r},\n" for name in modes) + "    ),\n"
    text += ")\nEXACT: dict[str, tuple[int, int]] = {\n"
    text += "".join(f"    {t!r}: ({sets.index(modes)}, {many}),\n" for t, (modes, many) in sorted(kept.items()))
    TABLE.write_text(text + "}\n", encoding="utf-8")


def write_cases(model_type: str, cases: list[Case]) -> None:
    """Equal cases for the tests, of modes drawn by chance."""
    kept = json.loads(CASES.read_text(encoding="utf-8"))["rows"] if CASES.exists() else []
    rows = [row for row in kept if row[0] != model_type]
    exact = verdicts(cases)
    by_mode = {case.mode: case for case in cases if case.found is not None and exact[case.mode]}
    for name in random.Random(model_type).sample(sorted(by_mode), min(KEPT_CASES, len(by_mode))):
        fields, sequences, length = by_mode[name].shape
        rows.append([model_type, name, sequences, length, by_mode[name].saved, by_mode[name].casts, fields])
    about = (
        f"Bytes that autograd saves for backward: Hugging Face transformers {transformers.__version__} on torch "
        f"{torch.__version__.split('+')[0]}, measured by tools/saved_bytes.py."
    )
    columns = ["model_type", "mode", "sequences", "length", "saved", "weight_casts", "config"]
    text = json.dumps({"about": about, "columns": columns})[:-1] + ', "rows": [\n'
    text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: row[:2]))
    CASES.write_text(text + "\n]}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types (default: all causal ones that napkin reads)")
    parser.add_argument("--cases", type=int, default=2, help="configs in each mode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modes that begin so: bf16/eager")
    parser.add_argument("--show", action="store_true", help="the tensors of what differs")
    parser.add_argument("--config", help="a config.json in place of drawn ones")
    parser.add_argument("--shape", default="2x64", help="its sequences and their length")
    parser.add_argument("--write", action="store_true", help="keep the verdicts and some cases")
    asked = parser.parse_args()
    emulate()
    if asked.config:
        fields = json.loads(Path(asked.config).read_text(encoding="utf-8"))
        sequences, length = map(int, asked.shape.split("x"))
        for precision in POLICY:
            for kernel in ALL_KERNELS:
                case = compare(Shape(fields, sequences, length), precision, kernel, 0.0, True)
                print(f"{case.mode}: {'equal' if case.equal else case.problem or 'differs'}")
        return 0
    causal = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    for model_type in asked.types or [name for name in ADAPTERS if name in causal]:
        cases = sweep(model_type, asked.cases, asked.seed, asked.only, asked.show)
        found = verdicts(cases)
        problems = Counter(case.problem for case in cases if case.problem)
        equal, run = sum(case.equal for case in cases), sum(case.found is not None for case in cases)
        print(f"{model_type}: {sum(found.values())} of {len(found)} modes exact, {equal} of {run} cases", flush=True)
        if not asked.show:
            for case in [case for case in cases if case.found and not case.equal][:SHOWN]:
                report(case)
        for problem, many in problems.most_common(4):
            print(f"   {many} × {problem}")
        if asked.write:
            write_table(model_type, cases)
            write_cases(model_type, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
