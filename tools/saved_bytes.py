"""Bytes that real Hugging Face code saves for backward, measured and compared with what napkin says.

A model of a small config runs once on the meta device: hooks see each tensor that autograd saves. CUDA is emulated by
its operators' signatures: attention kernels are called as their ATen operations, dropout is the fused kernel, autocast
casts by the operator lists of ATen/autocast_mode.h. Kernels of recurrent layers are stood in for by what they save
(recurrent_kernels.py). No weights, no GPU, no download.

    python -m venv hf && hf/bin/pip install torch==2.13.0 transformers==5.23.0 pyyaml
    hf/bin/python tools/saved_bytes.py                              every model type, a few configs in every mode
    hf/bin/python tools/saved_bytes.py llama bert --cases 4         these, more configs
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
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"], os.environ["CUDA_VISIBLE_DEVICES"] = "1", ""
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import recurrent_kernels  # noqa: E402
import torch  # noqa: E402
import torch._meta_registrations  # noqa: E402
import torch.nn.functional as functional  # noqa: E402
import transformers  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402
from transformers.initialization import no_init_weights  # noqa: E402

from napkin.architectures import MODULES, WRAPPERS, build, implementation_of  # noqa: E402
from napkin.errors import NapkinError  # noqa: E402
from napkin.footprint import memory  # noqa: E402
from napkin.footprint.prepared import prepare  # noqa: E402
from napkin.footprint.setup import Setup  # noqa: E402
from napkin.inputs.load import Document  # noqa: E402
from napkin.inputs.model import config_from  # noqa: E402
from napkin.operations.attention import AttentionCore  # noqa: E402
from napkin.operations.attention_kernels import FLASH_HEAD, FLASH_LARGEST  # noqa: E402
from napkin.operations.implementations import ALL_KERNELS, FLASH, MANY, ONE, mode  # noqa: E402
from napkin.training.layout import Layout  # noqa: E402
from napkin.training.optimizers import find  # noqa: E402
from napkin.training.precision import POLICIES  # noqa: E402

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
KEPT_CASES = 4
"""Cases of a model type that the tests keep."""


# --- CUDA, emulated -------------------------------------------------------------------------------------------------

LOWERED = re.compile(
    "addmm|addmv|addr|matmul|einsum|mm|mv|linear|addbmm|baddbmm|bmm|chain_matmul|multi_dot|conv1d|conv2d|conv3d|prelu"
    "|__r?matmul__"
)
"""Operations that autocast runs in 16 bits."""
RAISED = re.compile(
    "acos|asin|cosh|erfinv|exp|expm1|log|log10|log2|log1p|reciprocal|rsqrt|sinh|tan|pow|square|__r?pow__|softplus"
    "|(native_)?layer_norm|rms_norm|group_norm|cosine_similarity|cross_entropy|nll_loss|kl_div|l1_loss|smooth_l1_loss|mse_loss"
    "|dist|cdist|renorm|logsumexp|binary_cross_entropy_with_logits"
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
    """Leave what runs here as it is."""
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
    unlike = query.shape[-1] != value.shape[-1] or query.shape[-1] > FLASH_LARGEST
    if kernel == FLASH and (attn_mask is not None or unlike):
        kernel = "efficient"
    if kernel == FLASH:
        size = query.shape[-1]
        rest = -size % FLASH_HEAD
        if rest:
            query, key, value = (functional.pad(t, [0, rest]) for t in (query, key, value))
        flash = aten._scaled_dot_product_flash_attention
        out = fused(flash, (query, key, value, dropout_p, is_causal, False), scale)
        return out[..., :size] if rest else out
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype))
        if kernel == "efficient" and any(step % 8 for step in attn_mask.stride()[:-1]):
            attn_mask = functional.pad(attn_mask, [0, -attn_mask.shape[-1] % 8])[..., : attn_mask.shape[-1]]
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    if kernel == "cudnn":
        cudnn = aten._scaled_dot_product_cudnn_attention
        return fused(cudnn, (query, key, value, attn_mask, True, dropout_p, is_causal, False), scale)
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    efficient = aten._scaled_dot_product_efficient_attention
    return fused(efficient, (query, key, value, attn_mask, True, dropout_p, is_causal), scale)


def fused(kernel: Any, args: tuple[Any, ...], scale: float | None) -> Any:
    """Return a kernel's result. Where there are numbers, which CUDA's kernels cannot make here: any that differ from
    token to token, as the kernel lays its result out."""
    if args[0].device.type == "meta":
        return kernel(*args, scale=scale)[0]
    with paused():
        return _WithNumbers.apply(kernel, scale, *args)


class _WithNumbers(torch.autograd.Function):
    """The kernel runs on the meta device, where hooks tell what it saves; here the same is saved in its place."""

    @staticmethod
    def forward(ctx: Any, kernel: Any, scale: float | None, *args: Any) -> Any:
        given = [x.detach().to("meta") if isinstance(x, torch.Tensor) else x for x in args]
        for x in given[:3]:
            x.requires_grad_()
        saved: list[Any] = []
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x):
            made = kernel(*given, scale=scale)[0]
        any_numbers = torch.randn(made.shape, generator=torch.Generator().manual_seed(2), device="cpu")
        out = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device="cpu").copy_(any_numbers)
        pairs = zip((*given, made), (*args, out), strict=True)
        known = {x.untyped_storage()._cdata: here for x, here in pairs if isinstance(x, torch.Tensor)}
        kept = [known.get(x.untyped_storage()._cdata) for x in saved]
        others = (torch.empty(x.shape, dtype=x.dtype, device="cpu") for x in saved)
        ctx.save_for_backward(*(other if x is None else x for x, other in zip(kept, others, strict=True)))
        return out

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError


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


class LogSigmoid(torch.autograd.Function):
    """log_sigmoid_forward of CUDA, which keeps its input alone; other devices keep a buffer of its size too."""

    @staticmethod
    def forward(ctx: Any, input: Any) -> Any:
        ctx.save_for_backward(input)
        return torch.empty_like(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.empty_like(ctx.saved_tensors[0])


class FusedNorm(torch.autograd.Function):
    """_fused_rms_norm of CUDA, which keeps its input and the reciprocal root mean squares in fp32; other devices write
    it out."""

    @staticmethod
    def forward(ctx: Any, input: Any, shape: Any, weight: Any, eps: float | None) -> Any:
        rstd = input.new_empty((*input.shape[: -len(shape)], *(1 for _ in shape)), dtype=torch.float32)
        ctx.save_for_backward(input, weight, rstd)
        return torch.empty_like(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        input, weight, _ = ctx.saved_tensors
        return torch.empty_like(input), None, None if weight is None else torch.empty_like(weight), None


def normed(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """functional.rms_norm, which autocast runs in fp32."""
    active = Autocast.active
    if active is not None and not active.off:
        input, weight = active.raise_(input), active.raise_(weight)
    with paused():
        return FusedNorm.apply(input, normalized_shape, weight, eps)


def grouped(mat_a: Any, mat_b: Any, *_: Any, offs: Any = None, out_dtype: Any = None, **__: Any) -> Any:
    """torch's grouped product on CUDA takes fp32 too (aten/src/ATen/native/GroupedMMUtils.h), which the meta device
    refuses; strides are multiples of 16 bytes on both."""
    for tensor in (mat_a, mat_b):
        step = tensor.stride(-2) if tensor.stride(-1) == 1 else tensor.stride(-1)
        if step * tensor.element_size() % 16:
            raise ValueError("strides should be multiple of 16 bytes")
    return torch._meta_registrations._create_grouped_mm_output_tensor(mat_a, mat_b, offs, out_dtype)


def is_lowering(device_type: str | None = None) -> bool:
    """As torch.is_autocast_enabled."""
    return Autocast.active is not None and not Autocast.active.off


def lowered_dtype(device_type: str | None = None) -> torch.dtype:
    """As torch.get_autocast_dtype."""
    return torch.bfloat16


def emulate() -> None:
    """Put CUDA's behaviour in place of the meta device's, for this process."""
    import transformers.masking_utils
    import transformers.utils.generic

    torch._meta_registrations._meta_grouped_mm_common = grouped
    functional.scaled_dot_product_attention = attend
    functional.dropout = drop
    functional.logsigmoid = LogSigmoid.apply
    functional.rms_norm = normed
    torch.autocast = Region  # type: ignore[assignment,misc]
    torch.is_autocast_enabled = is_lowering
    torch.get_autocast_dtype = lowered_dtype
    transformers.utils.generic.maybe_autocast = Region
    # their answers are in the data: one sequence a row, nothing masked, no layer left out, shares between 0 and 1
    torch.distributions.Distribution.set_default_validate_args(False)
    masks = transformers.masking_utils
    masks.find_packed_sequence_indices = lambda position_ids: None
    masks.fast_all = lambda mask: True
    both_ways = masks._ignore_bidirectional_mask_sdpa
    masks._ignore_bidirectional_mask_sdpa = lambda mask, *others: both_ways(None, *others)
    transformers.PreTrainedModel.warn_if_padding_and_no_attention_mask = lambda *_: None
    # a number that the class holds as a tensor, and reads
    spans = transformers.models.deberta.modeling_deberta
    spans.compute_attention_span = lambda query, key, reach: min(max(query.shape[-2], key.shape[-2]), reach)
    rand = torch.rand
    torch.rand = lambda *size, **how: rand([], device="cpu") if size == ([],) else rand(*size, **how)


# --- measuring ------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One storage that autograd saved."""

    module: str
    shape: tuple[int, ...]
    dtype: str
    size: int


class Held:
    """A tensor that autograd saved, for as long as the graph that wants it back lives."""

    def __init__(self, tensor: Any, key: int) -> None:
        self.tensor, self.key = tensor, key


class Measured(NamedTuple):
    """What one run of a class kept for backward."""

    rows: list[Row]
    saved: int
    casts: int


LOOPED = ("dbrx", "jetmoe", "led", "longcat_flash", "longformer", "nllb-moe", "switch_transformers")
"""Types whose experts run one after the other on as many tokens as chose them: the CPU runs them, with numbers."""


def device_of(fields: dict[str, Any]) -> str:
    return "cpu" if fields["model_type"] in LOOPED else "meta"


MASKED, WHOLE = transformers.AutoModelForMaskedLM, transformers.AutoModelForImageTextToText
HOLDERS = {text: holder for holder, text in reversed(WRAPPERS.items())} | {"mistral4": "mistral3"}
"""Language models → the class that holds them, for those that have no head of their own."""
BORROWED = {"kimi_k2": "deepseek_v3"}
"""Model types that are published to run by another's class (`architectures` of their config.json)."""


def head_of(model_type: str) -> Any:
    """Return the automatic class with the head that a model type is trained with."""
    if model_type in WRAPPERS:
        return WHOLE
    where = MODULES[model_type]
    if where in ("bart", "t5", "t5gemma"):
        return transformers.AutoModelForSeq2SeqLM
    masked = transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if model_type in masked:
        return transformers.AutoModelForMaskedLM
    causal = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return WHOLE if model_type in HOLDERS and model_type not in causal else transformers.AutoModelForCausalLM


def configured(fields: dict[str, Any]) -> Any:
    """Return the configuration of the class that is run: the language model's own, or one that holds it beside other
    senses, which are made small and see nothing."""
    model_type = fields["model_type"]
    if head_of(model_type) is not WHOLE:
        return transformers.AutoConfig.for_model(**fields | {"model_type": BORROWED.get(model_type, model_type)})
    whole = fields
    if model_type in HOLDERS:
        tied = {"tie_word_embeddings": fields["tie_word_embeddings"]}
        whole = {"model_type": HOLDERS[model_type], "text_config": fields, **tied}
    config = transformers.AutoConfig.for_model(**whole)
    vision = getattr(config, "vision_config", None)
    for holder, name, least in ((vision, "depth", 1), (vision, "num_hidden_layers", 1), (config, "image_token_id", 0)):
        if hasattr(holder, name):  # the id stands in the vocabulary, as a published one does
            setattr(holder, name, least)
    config.text_config.use_cache = False
    return config


def narrowed(weight: Any) -> Any:
    """Return a weight as autocast passes it to a matmul."""
    active = Autocast.active
    return weight if weight is None or active is None or active.off else active.lower(weight)


def attends(fields: dict[str, Any]) -> bool:
    """Whether any layer has attention."""
    layers = (layer for stack in reading(fields).stacks for _, layer in stack.runs)
    return any(isinstance(op, AttentionCore) for layer in layers for op in layer.operations)


def reading(fields: dict[str, Any]) -> Any:
    """napkin's model of a config."""
    return build(config_from("config", Document("config", fields), fields))


def network(fields: dict[str, Any], precision: str, kernel: str) -> Any:
    """Build the class of a config's model_type, without weights."""
    config = configured(fields)
    config.use_cache = False
    model_type = fields["model_type"]
    classes = [head_of(model_type)._model_mapping[type(config)]]
    if head_of(model_type) is WHOLE:
        classes.append(transformers.AutoModel._model_mapping[type(config.text_config)])
    for module in (sys.modules[one.__module__] for one in classes):
        recurrent_kernels.install(module, recurrent_kernels.stand_ins(narrowed, paused))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    attention = "eager" if kernel == "eager" or not attends(fields) else "sdpa"
    device = device_of(fields)
    with torch.device(device), no_init_weights():
        model = head_of(model_type).from_config(config, dtype=dtype, attn_implementation=attention)
    if device == "cpu":  # weights that send tokens to every expert
        generator = torch.Generator().manual_seed(1)
        model.tie_weights()
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    else:
        model = model.to("meta")
        model.tie_weights()
        # some classes fix the type of a few weights, which loading a checkpoint undoes but where they insist on fp32
        insists = tuple(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
        for name, weight in model.named_parameters():
            weight.data = weight.data.to(torch.float32 if any(part in name for part in insists) else dtype)
    return model.train()


def measure(
    fields: dict[str, Any], precision: str, kernel: str, sequences: int, length: int, target: int = 0
) -> Measured:
    """One forward pass and its loss; `target`: tokens of the decoder's sequences, where they are others."""
    global KERNEL
    KERNEL = kernel
    model = network(fields, precision, kernel)
    device = device_of(fields)
    with torch.device(device):
        ids, labels = (torch.arange(sequences * n).view(sequences, n) % 97 for n in (length, target or length))
    narrow_norms = {
        name
        for name, module in model.named_modules()
        if device == "cpu" and isinstance(module, torch.nn.LayerNorm) and precision == "bf16"
    }
    if "router_dtype" in fields:  # the first pass casts the router's weights
        with torch.no_grad():
            model(input_ids=ids, labels=labels)
    alive = [*model.parameters(), *model.buffers(), ids, labels]  # a storage's address is its name
    known = {tensor.untyped_storage()._cdata for tensor in alive}
    stack: list[str] = []
    hit: set[str] = set()
    experts = {name for name, _ in model.named_modules() if re.search(r"\.expert_\d+$", name)}
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: stack.append(name))
        if name in experts:
            module.register_forward_pre_hook(lambda *_, name=name: hit.add(name))
        module.register_forward_hook(lambda *_: (stack.pop(), None)[1], always_call=True)
    rows: dict[int, Row] = {}
    casts: dict[int, int] = {}
    held: weakref.WeakSet[Held] = weakref.WeakSet()
    autocast = Autocast()

    def pack(tensor: Any) -> Held:
        storage = tensor.untyped_storage()
        key = storage._cdata
        tensor = tensor.detach()  # a result that is kept would keep its own graph
        if key not in known and key not in rows and key not in casts:
            alive.append(tensor)
            if key in autocast.copies:
                casts[key] = storage.nbytes()
            else:
                where, dtype = stack[-1] if stack else "", str(tensor.dtype).removeprefix("torch.")
                wide = 2 if where in narrow_norms and tensor.shape[-1] == 1 else 1  # fp32 on CUDA, bf16 on the CPU
                rows[key] = Row(where, tuple(tensor.shape), dtype, wide * storage.nbytes())
        one = Held(tensor, key)
        held.add(one)
        return one

    with (
        torch.device(device),
        autocast if precision == "autocast" else contextlib.nullcontext(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one.tensor),
    ):
        made = model(
            input_ids=ids, labels=labels, **({} if head_of(fields["model_type"]) is MASKED else {"use_cache": False})
        )
    if hit < experts:
        raise ValueError("an expert got no token")
    kept = {one.key for one in held}  # what no gradient passes through is gone by now
    del made
    found = [row for key, row in rows.items() if key in kept]
    return Measured(found, sum(row.size for row in found), sum(size for key, size in casts.items() if key in kept))


def layer_of(module: str) -> int | None:
    """Return the number of the layer that a module is in."""
    found = re.search(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?:\.|$)", module)
    return int(found[1]) if found else None


# --- what napkin says -----------------------------------------------------------------------------------------------


def said(
    fields: dict[str, Any], precision: str, kernel: str, dropout: float, sequences: int, length: int, target: int = 0
) -> Any:
    """napkin's step and its only rank."""
    model = reading(fields)
    layout = Layout(seq=length, micro=sequences, target=target)
    code = implementation_of("hf", model.family)
    setup = Setup(code, layout, POLICIES[POLICY[precision]], find("adamw")[0], "foreach", kernel, dropout)
    step = prepare(model, setup)
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
    target: int = 0


WIDTH = ("hidden_size", "n_embd", "d_model", "dim")
DEPTH = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
)
INNER = (
    "intermediate_size",
    "ffn_dim",
    "n_inner",
    "dff",
    "ffn_hidden_size",
    "intermediate_size_mlp",
    "d_ff",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "hidden_dim",
)
LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len")
WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k")
FUNCTIONS = (
    *("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu", "gelu_fast", "gelu_10"),
    *("gelu_python", "gelu_python_tanh", "gelu_accurate", "mish", "leaky_relu", "relu6", "sigmoid", "tanh", "linear"),
)
UNDRAWN = (
    "add_cross_attention",
    "is_decoder",
    "is_encoder_decoder",
    "output_",
    "return_dict",
    "use_cache",
    "use_bidirectional",
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


@special("gptj")
def _rotary_dim(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"rotary_dim": rng.choice((4, 8))}


@special("codegen")
def _heads_in_fours(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    heads = rng.choice((4, 8))
    return {"n_head": heads, "n_embd": heads * rng.choice((8, 16)), "rotary_dim": rng.choice((4, 8))}


@special("granite_swa", "granitemoe_swa")
def _rotary_bases(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    bases = [rng.choice((0, 1e4, 5e5)) for _ in range(drawn["num_hidden_layers"])]
    return {"layer_rope_theta": rng.choice((None, bases))}


@special("diffllama")
def _even_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"num_key_value_heads": rng.choice((2, drawn["num_attention_heads"]))}


@special("doge")
def _dynamic_mask(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"keep_window_size": rng.choice((16, 2048)), "is_moe": rng.random() < 0.5, "output_router_logits": False}
    return own | {"num_experts": rng.choice((16, 30)), "num_experts_per_tok": rng.choice((1, 2, 5))}


@special("gpt_neox_japanese")
def _times_as_wide(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    turned = {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": rng.choice((0.5, 1.0))}
    return {"intermediate_multiple_size": rng.choice((2, 3, 4)), "rope_parameters": turned}


@special("flint")
def _dense_first(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"mlp_only_layers": rng.choice((None, [], [1]))}


@special("gpt_bigcode")
def _said_by_multi_query(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    del drawn["num_key_value_heads"]
    return {}


@special("openai-gpt")
def _its_own_functions(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"afn": rng.choice(("gelu", "relu", "silu"))}


@special("apertus")
def _only_function(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"hidden_act": "xielu"}


@special("helium", "hunyuan_v1_dense", "ministral")
def _stated_head(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Give the size that these classes do not derive."""
    return {"head_dim": drawn["hidden_size"] // drawn["num_attention_heads"]}


@special("internlm3")
def _one_flag(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"mlp_bias": drawn["attention_bias"]}


@special("opt")
def _narrow_table(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"word_embed_proj_dim": rng.choice((drawn["hidden_size"], 40))}


def _by_attention(rng: random.Random, none: bool = False) -> dict[str, Any]:
    """Rotary positions of each kind of attention."""
    shares = {kind: rng.choice((0.25, 0.5, 1.0)) for kind in ("full_attention", "sliding_attention")}
    parts = {k: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": v} for k, v in shares.items()}
    return parts | {"full_attention": None} if none and rng.random() < 0.7 else parts


@special("mimo_v2_flash")
def _twice_in_windows(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    heads = rng.choice((2, 4, 8))
    own = {"num_attention_heads": heads, "num_key_value_heads": rng.choice([n for n in (1, 2) if heads % (2 * n) == 0])}
    own |= {"v_head_dim": rng.choice((8, 16, 24)), "head_dim": rng.choice((16, 24, 32)), "sliding_window": 16}
    return own | {"rope_parameters": rng.choice((None, _by_attention(rng)))}


@special("laguna")
def _heads_by_layer(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kv_heads = drawn["num_key_value_heads"]
    heads = [kv_heads * rng.choice((1, 2, 3)) for _ in range(drawn["num_hidden_layers"])]
    own: dict[str, Any] = {
        "num_attention_heads_per_layer": rng.choice((None, heads)),
        "head_dim": rng.choice((8, 16, 24)),
    }
    own |= {"gating": rng.choice((True, "per-head", "per-element")), "moe_apply_router_weight_on_input": False}
    own |= {"moe_router_logit_softcapping": rng.choice((0.0, 30.0)), "sliding_window": rng.choice((16, 4096))}
    return own | {"rope_parameters": rng.choice((None, _by_attention(rng)))}


@special("afmoe")
def _first_dense(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"num_dense_layers": rng.choice((0, 1)), "sliding_window": rng.choice((16, 4096))}


@special("aria_text")
def _some_shared(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"moe_num_shared_experts": rng.choice((1, 2))}


@special("beam")
def _unrotated_in_full(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"rope_parameters": rng.choice((None, _by_attention(rng, True))), "sliding_window": rng.choice((16, 4096))}
    return own | {"head_dim": rng.choice((8, 16, 24))}


@special("cohere2_moe")
def _dense_prefix(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"expert_selection_fn": rng.choice(("softmax", "sigmoid")), "rms_norm_eps": rng.choice((None, 1e-6))}
    own |= {"shared_expert_combination_strategy": rng.choice(("average", "sum"))}
    own |= {"num_shared_experts": rng.choice((0, 2))}
    own |= {"prefix_dense_intermediate_size": rng.choice((None, 56)), "sliding_window": rng.choice((16, 4096))}
    own |= {"prefix_dense_sliding_window_pattern": rng.choice((1, 2)), "head_dim": rng.choice((8, 16, 24))}
    if rng.random() < 0.5:
        del drawn["mlp_layer_types"]
        own["first_k_dense_replace"] = rng.choice((0, 1, 2))
    return own


@special("cohere_compass_text")
def _three_axes(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    part = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    kinds = {"full_attention": rng.choice((None, part)), "sliding_attention": part}
    drawn.pop("head_dim", None)
    return {"rope_parameters": kinds, "sliding_window": rng.choice((16, 4096))}


@special("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm4v_moe_text")
def _parts_of_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Angles of a head in three parts: time, height and width."""
    drawn.pop("head_dim", None)
    heads, share = drawn["num_attention_heads"], 0.5 if drawn["model_type"].startswith("glm") else 1.0
    angles = int(drawn["hidden_size"] // heads * share) // 2
    part = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
    return {"rope_parameters": part | {"mrope_section": [angles - 2 * (angles // 3), angles // 3, angles // 3]}}


@special("qwen3_vl_moe_text")
def _no_window(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    del drawn["sliding_window"]
    return {}


@special("mistral4")
def _whole_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Its rotary part is a share of this."""
    return {"head_dim": drawn["qk_nope_head_dim"] + drawn["qk_rope_head_dim"]}


@special("phi4_multimodal")
def _little_senses(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = {**size, "image_size": 28, "patch_size": 14}
    audio = {**{k: v for k, v in size.items() if k != "num_hidden_layers"}, "num_blocks": 1, "nemo_conv_channels": 32}
    return {"vision_config": vision, "audio_config": audio, "num_key_value_heads": drawn["num_key_value_heads"]}


@special("gpt_neo")
def _kinds_of_attention(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"attention_types": [[["global", "local"], drawn["num_layers"] // 2]]}


@special("mpt")
def _attention_config(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"attn_config": {"clip_qkv": rng.choice((None, 8.0))}, "no_bias": True}


@special("llama4_text")
def _chunks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = [rng.choice(("full_attention", "chunked_attention")) for _ in range(drawn["num_hidden_layers"])]
    return {"layer_types": rng.choice((None, kinds))}


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


@special("deepseek_v4")
def _streams_and_runs(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], drawn["num_attention_heads"]
    kinds = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
    own: dict[str, Any] = {"layer_types": rng.choice((None, [rng.choice(kinds) for _ in range(layers)]))}
    own |= {"mlp_layer_types": rng.choice((None, [rng.choice(("hash_moe", "moe")) for _ in range(layers)]))}
    own |= {"compress_rates": {kinds[1]: rng.choice((4, 6)), kinds[2]: rng.choice((16, 20))}}
    own |= {"head_dim": rng.choice((16, 24, 32)), "partial_rotary_factor": 0.25, "sliding_window": 16}
    own |= {"index_head_dim": rng.choice((8, 12)), "hc_mult": rng.choice((1, 2, 4)), "hc_sinkhorn_iters": 3}
    own |= {"o_groups": rng.choice((1, 2, heads)), "o_lora_rank": rng.choice((12, 20)), "norm_topk_prob": True}
    if own["mlp_layer_types"] is None or "moe" not in own["mlp_layer_types"]:
        own |= {"output_router_logits": False, "num_hash_layers": 1, "mlp_layer_types": None}
    return own


@special("minimax_m3_vl_text")
def _blocks_of_keys(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], drawn["num_attention_heads"]
    drawn.pop("partial_rotary_factor", None)
    own: dict[str, Any] = {"layer_types": [rng.choice(("full_attention", "minimax_m3_sparse")) for _ in range(layers)]}
    own |= {"index_n_heads": rng.choice((1, 2)) if heads % 2 == 0 else 1, "index_head_dim": rng.choice((24, 32))}
    own |= {"index_block_size": 8, "index_topk_blocks": rng.choice((2, 4)), "index_local_blocks": 1}
    own |= {"head_dim": rng.choice((16, 24)), "dense_intermediate_size": rng.choice((72, 104))}
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": rng.choice((0.5, 1.0))}
    return own | {"shared_intermediate_size": 56, "rope_parameters": rope}


@special("dots3_note_text")
def _sizes_by_kind(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], rng.choice((2, 3))
    kinds = [rng.choice(("full_attention", "sliding_attention", "indexed_attention")) for _ in range(layers)]
    plain, rotary = rng.choice((8, 16)), rng.choice((8, 16))
    near = {"num_attention_heads": heads, "num_key_value_heads": heads, "q_lora_rank": 20, "kv_lora_rank": 28}
    near |= {"head_dim": plain + rotary, "qk_nope_head_dim": plain, "qk_rope_head_dim": rotary}
    near |= {"v_head_dim": rng.choice((12, 24, plain + rotary))}
    own = {"sliding_window": rng.choice((16, 4096)), "shared_experts_intermediate_size": rng.choice((24, 56))}
    own |= {"q_lora_rank": rng.choice((24, 36)), "norm_topk_prob": rng.random() < 0.5}
    own |= {"head_dim": 2 * drawn["qk_rope_head_dim"]}
    own["index_head_dim"] = drawn["qk_rope_head_dim"] + rng.choice((0, 8))
    if rng.random() < 0.5:  # as published files say it
        swa = {f"swa_{name}": value for name, value in near.items()}
        listed = [kind if kind == "sliding_attention" else "full_attention" for kind in kinds]
        return own | swa | {"layer_types": rng.choice((None, listed)), "use_dsa": rng.random() < 0.6}
    by_layer = {str(i): near for i, kind in enumerate(kinds) if kind == "sliding_attention"}
    return own | {"layer_types": kinds, "per_layer_config": by_layer}


@special("inkling_text")
def _by_distance(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], rng.choice((2, 4))
    own: dict[str, Any] = {
        "layer_types": rng.choice((None, [rng.choice(("hybrid", "hybrid_sliding")) for _ in range(layers)]))
    }
    own |= {
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": rng.choice((1, 2)),
        "d_rel": rng.choice((8, 12)),
    }
    own |= {
        "swa_head_dim": rng.choice((16, 24)),
        "head_dim": rng.choice((8, 16)),
        "conv_kernel_size": rng.choice((3, 4)),
    }
    own |= {"rel_extent": rng.choice((12, 64)), "sliding_window_size": rng.choice((16, 4096))}
    own |= {"log_scaling_n_floor": rng.choice((None, 8)), "local_layer_ids": rng.choice((None, [0], [1]))}
    return own | {"unpadded_vocab_size": rng.choice((None, 90)), "hidden_act": "silu", "tie_word_embeddings": False}


@special("longcat_flash")
def _all_with_weights(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """How many tokens reach experts without weights is not known before the step; its code takes no single choice."""
    return {"zero_expert_num": 0, "n_routed_experts": 3, "moe_topk": 2, "num_layers": 2}


def experts_and_ranks(rng: random.Random, own: dict[str, Any], layers: int, heads: int) -> dict[str, Any]:
    """Draw what mixtures of experts and latent attention have in addition to the other sizes."""
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


def _start(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Tokens that a decoder begins and ends with; facts that the class has in no other way."""
    own = {"decoder_start_token_id": 1, "forced_eos_token_id": None, "is_encoder_decoder": True}
    return own | _known(drawn, {"tie_word_embeddings": True, "use_prompt": False})


special("bart", "blenderbot", "blenderbot-small", "m2m_100", "mbart", "mvp", "pegasus", "plbart")(_start)


@special("marian")
def _one_table(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    alike = {"decoder_vocab_size": drawn["vocab_size"], "share_encoder_decoder_embeddings": True}
    return _start(rng, drawn) | alike | {"tie_word_embeddings": True}


@special("t5", "mt5", "umt5")
def _two_stacks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    feed = rng.choice(("relu", "gated-gelu", "gated-silu"))
    gated = {"feed_forward_proj": feed, "is_gated_act": feed.startswith("gated"), "tie_word_embeddings": True}
    sizes = {"d_kv": rng.choice((8, 16, 24)), "relative_attention_num_buckets": 32}
    return gated | sizes | {"decoder_start_token_id": 0, "is_encoder_decoder": True, "scalable_attention": False}


@special("switch_transformers")
def _sparse_stacks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    sparse = [rng.choice((0, 1, 2)) for _ in range(2)]
    own: dict[str, Any] = {
        "num_sparse_encoder_layers": sparse[0],
        "num_sparse_decoder_layers": sparse[1],
        "num_experts": 2,
    }
    own |= {"expert_capacity": 64, "router_jitter_noise": rng.choice((0.0, 0.01)), "router_dtype": "float32"}
    own |= {"d_kv": rng.choice((8, 16, 24)), "relative_attention_num_buckets": 32, "decoder_start_token_id": 0}
    return own | {"dense_act_fn": rng.choice(("relu", "gelu")), "tie_word_embeddings": True, "is_encoder_decoder": True}


@special("nllb-moe")
def _sparse_translation(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {"encoder_sparse_step": rng.choice((0, 1, 2)), "decoder_sparse_step": rng.choice((0, 1, 2))}
    own |= {"expert_capacity": 256, "router_dtype": "float32", "moe_token_dropout": 0.0, "output_router_logits": False}
    return _start(rng, drawn) | own | {"second_expert_policy": "all"}


@special("albert", "electra")
def _narrow_tokens(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    groups = {"num_hidden_groups": rng.choice((1, 2)), "inner_group_num": rng.choice((1, 2))}
    return {"embedding_size": rng.choice((drawn["hidden_size"], 40)), "tie_word_embeddings": True} | (
        groups if drawn["model_type"] == "albert" else {}
    )


@special("bert", "camembert", "data2vec-text", "megatron-bert", "roberta", "roberta-prelayernorm", "xlm-roberta")
@special("distilbert", "gte", "jina_embeddings_v3", "mpnet", "nomic_bert", "xlm-roberta-xl")
def _tied(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return _known(drawn, {"tie_word_embeddings": True, "is_decoder": False, "tie_weights_": True})


@special("esm")
def _proteins(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {
        "position_embedding_type": rng.choice(("absolute", "rotary")),
        "token_dropout": rng.random() < 0.5,
    }
    own |= {"emb_layer_norm_before": rng.random() < 0.5, "is_folding_model": False, "pad_token_id": 1}
    return _tied(rng, drawn) | own | {"mask_token_id": 4, "vocab_size": rng.choice((97, 160))}


@special("longformer", "led")
def _bands(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn.get("num_hidden_layers") or drawn["encoder_layers"]
    window = rng.choice((8, 16, [rng.choice((8, 16)) for _ in range(layers)]))
    lengths = dict.fromkeys(("max_position_embeddings", "max_encoder_position_embeddings"), 256)
    own = {"attention_window": window, "onnx_export": False, "tie_word_embeddings": True} | lengths
    if drawn["model_type"] == "led":
        own |= _start(rng, drawn) | {"max_decoder_position_embeddings": 128}
    return _known(drawn, own)


@special("bert-generation")
def _either_way(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"tie_word_embeddings": True, "is_decoder": rng.random() < 0.5, "add_cross_attention": False}


@special("mobilebert")
def _bottlenecks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    hidden, shared, between = drawn["hidden_size"], rng.random() < 0.5, rng.random() < 0.8
    own: dict[str, Any] = {
        "key_query_shared_bottleneck": shared,
        "use_bottleneck_attention": not shared,
        "use_bottleneck": between,
    }
    own |= {"intra_bottleneck_size": 2 * drawn["num_attention_heads"], "embedding_size": hidden // 2}
    own |= {"num_feedforward_networks": rng.choice((1, 2, 4)), "trigram_input": rng.random() < 0.5}
    return _tied(rng, drawn) | own | {"normalization_type": rng.choice(("no_norm", "layer_norm"))}


@special("rembert", "roformer")
def _narrow_input(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    narrow = rng.choice((drawn["hidden_size"], 40))
    if drawn["model_type"] == "roformer":
        return _tied(rng, drawn) | {"embedding_size": narrow, "rotary_value": False}
    return {"input_embedding_size": narrow, "output_embedding_size": rng.choice((48, 72)), "tie_word_embeddings": False}


@special("ernie")
def _no_tasks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return _tied(rng, drawn) | {"use_task_id": False}


@special("modernbert", "modernbert-decoder")
def _locally(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    for name in ("layer_types", "sliding_window"):
        drawn.pop(name, None)
    return {"local_attention": rng.choice((8, 128)), "global_attn_every_n_layers": rng.choice((1, 2, 3))}


@special("deberta")
def _distances_one_by_one(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = rng.choice((["c2p", "p2c"], ["p2c"], ["c2p"]))
    own = {"relative_attention": rng.random() < 0.8, "pos_att_type": kinds, "legacy": True}
    own |= {"max_relative_positions": rng.choice((-1, 12, 512)), "type_vocab_size": rng.choice((0, 2))}
    return own | {"position_biased_input": rng.random() < 0.5, "tie_word_embeddings": True}


@special("deberta-v2")
def _distances(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    own |= {"max_relative_positions": -1, "share_att_key": True, "norm_rel_ebd": "layer_norm", "legacy": True}
    own |= {"position_biased_input": rng.random() < 0.5, "type_vocab_size": 0, "tie_word_embeddings": True}
    return own | {"conv_kernel_size": rng.choice((0, 3)), "conv_act": "gelu"}


def _mamba2(rng: random.Random, drawn: dict[str, Any], inner: int) -> dict[str, Any]:
    """Mamba-2's sizes under the names of those that have attention too."""
    size = 8
    own = {"mamba_n_heads": inner // size, "mamba_d_head": size, "mamba_d_state": rng.choice((8, 16))}
    return own | {"mamba_n_groups": rng.choice((1, 2)), "mamba_chunk_size": 16, "mamba_conv_bias": True}


@special("mamba", "falcon_mamba")
def _first_mamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    inner = 2 * drawn["hidden_size"]
    return {"state_size": rng.choice((8, 16)), "expand": 2, "intermediate_size": inner, "hidden_act": "silu"}


@special("mamba2")
def _second_mamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size, groups = 8, rng.choice((1, 2))
    heads = {"head_dim": size, "num_heads": 2 * drawn["hidden_size"] // size, "n_groups": groups}
    return heads | {"state_size": rng.choice((8, 16)), "expand": 2, "chunk_size": 16, "hidden_act": "silu"}


def _known(drawn: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Of fields that several model types share, those that this one has."""
    own = transformers.AutoConfig.for_model(drawn["model_type"]).to_dict()
    return {name: value for name, value in fields.items() if name in own}


def _kinds(rng: random.Random, layers: int, *kinds: str) -> list[str]:
    """Draw a type for each layer; each type at least once."""
    listed = [*kinds, *(rng.choice(kinds) for _ in range(layers))][:layers]
    return rng.sample(listed, layers)


@special("jamba")
def _jamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    where = {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1}
    where |= {"expert_layer_period": 2, "expert_layer_offset": rng.choice((0, 1)), "num_experts": rng.choice((1, 6))}
    chosen = {"num_experts_per_tok": min(2, where["num_experts"]), "sliding_window": None, "hidden_act": "silu"}
    return where | chosen | {"mamba_d_state": rng.choice((8, 16)), "mamba_conv_bias": True}


@special("bamba")
def _bamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    expand = {"mamba_expand": 2, "attn_layer_indices": [1], "hidden_act": "silu"}
    return _mamba2(rng, drawn, 2 * drawn["hidden_size"]) | expand


@special("falcon_h1")
def _falcon_h1(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    inner = 2 * drawn["hidden_size"]
    return _mamba2(rng, drawn, inner) | {"mamba_d_ssm": inner, "mamba_use_mlp": True, "hidden_act": "silu"}


@special("granitemoehybrid")
def _granite(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, experts = drawn["num_hidden_layers"], rng.choice((0, 6))
    own = {"layer_types": _kinds(rng, layers, "mamba", "attention"), "num_local_experts": experts}
    own |= {"num_experts_per_tok": min(2, experts), "shared_intermediate_size": 56, "hidden_act": "silu"}
    return _mamba2(rng, drawn, 2 * drawn["hidden_size"]) | own | {"mamba_expand": 2, "init_method": "mup"}


@special("nemotron_h")
def _nemotron(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size = 8
    own = {"layers_block_type": _kinds(rng, 4, "mamba", "moe", "attention", "mlp"), "chunk_size": 16}
    own |= {"mamba_num_heads": 2 * drawn["hidden_size"] // size, "mamba_head_dim": size, "n_groups": 2}
    own |= {"ssm_state_size": 16, "moe_shared_expert_intermediate_size": 56, "n_group": 1, "topk_group": 1}
    own |= {"sliding_window": None, "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "moe_latent_size": None}
    return own | {"attention_bias": False, "mamba_proj_bias": False, "use_conv_bias": True, "num_hidden_layers": 4}


@special("zamba", "zamba2")
def _zamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    hidden, heads = drawn["hidden_size"], drawn["num_attention_heads"]
    own = {"num_hidden_layers": 6, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba", "hybrid"]}
    own |= {"mamba_d_state": 8, "num_key_value_heads": heads, "attention_head_dim": 2 * hidden // heads}
    own |= {"attention_hidden_size": 2 * hidden, "mamba_conv_bias": True, "use_conv_bias": True, "use_mem_rope": True}
    own |= {"n_mamba_heads": 2 if drawn["model_type"] == "zamba" else 2 * hidden // 8, "mamba_ngroups": 2}
    own |= {"mamba_headdim": 8, "chunk_size": 16, "num_mem_blocks": 2, "adapter_rank": 8, "add_bias_linear": False}
    own |= {"use_shared_attention_adapter": rng.random() < 0.5, "tie_word_embeddings": True, "hidden_act": "gelu"}
    drawn.pop("head_dim", None)
    return _known(drawn, own | {"hidden_mamba_act": "silu", "mamba_expand": 2, "use_long_context": False})


@special("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")
def _delta_net(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, keys = drawn["num_hidden_layers"], rng.choice((1, 2))
    values = keys if drawn["model_type"] == "olmo_hybrid" else 2 * keys
    own: dict[str, Any] = {"linear_num_key_heads": keys, "linear_num_value_heads": values, "linear_key_head_dim": 16}
    own |= {"linear_value_head_dim": rng.choice((16, 24)), "hidden_act": "silu", "attn_output_gate": True}
    own |= {"layer_types": _kinds(rng, layers, "linear_attention", "full_attention"), "mlp_only_layers": []}
    return _known(drawn, own | {"head_dim": 16})


@special("kimi_linear", "bailing_hybrid")
def _kimi_delta(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own: dict[str, Any] = {
        "linear_num_heads": rng.choice((1, 2, 3)),
        "linear_head_dim": rng.choice((8, 16)),
        "head_dim": 16,
    }
    own |= {"layer_types": _kinds(rng, layers, "linear_attention", "full_attention"), "hidden_act": "silu"}
    groups = rng.choice((1, 2))
    chosen = {"num_experts": 6, "num_experts_per_token": rng.choice((1, 2, 3)), "num_expert_group": groups}
    chosen |= {"topk_group": rng.randint(1, groups), "num_shared_experts": rng.choice((1, 2))}
    return _known(drawn, own) | chosen | {"rope_parameters": None}


def _shared_keys(rng: random.Random) -> dict[str, Any]:
    """Layers of both kinds, the last of which share the keys and values of those before."""
    layers = rng.choice((4, 5))
    kinds = [*_kinds(rng, layers - 2, "full_attention", "sliding_attention"), "sliding_attention", "full_attention"]
    shared = {"num_kv_shared_layers": rng.choice((0, 2)), "hidden_size_per_layer_input": rng.choice((8, 12))}
    sizes = {"vocab_size_per_layer_input": rng.choice((80, 97)), "head_dim": rng.choice((8, 16, 20, 24))}
    window = {"sliding_window": rng.choice((16, 4096))}
    return shared | sizes | window | {"num_hidden_layers": layers, "layer_types": kinds}


@special("gemma4_text", "gemma4_unified_text")
def _two_sizes_of_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = _shared_keys(rng)
    if drawn["model_type"] == "gemma4_text" and rng.random() < 0.5:  # keys are shared with inputs of layers' own alone
        own |= {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
    mixture = rng.random() < 0.5
    experts = {"num_experts": 5, "top_k_experts": rng.choice((1, 2)), "moe_intermediate_size": rng.choice((24, 40))}
    own |= {"enable_moe_block": mixture, **(experts if mixture else dict.fromkeys(experts))}
    drawn.pop("per_layer_config", None)
    kv_heads = rng.choice([n for n in (1, 2) if drawn["num_attention_heads"] % n == 0])
    full = {"global_head_dim": rng.choice((16, 32, 264)), "num_global_key_value_heads": rng.choice((None, kv_heads))}
    return _known(drawn, own) | full


@special("gemma3n_text")
def _streams(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = _shared_keys(rng)
    layers = own["num_hidden_layers"]
    own |= {"altup_num_inputs": rng.choice((2, 3, 4)), "altup_active_idx": rng.choice((0, 1)), "laurel_rank": 12}
    own |= {"altup_correct_scale": True, "altup_coef_clip": 120.0, "final_logit_softcapping": 30.0}
    own |= {"intermediate_size": [rng.choice((72, 104)) for _ in range(layers)]}
    return own | {"activation_sparsity_pattern": [rng.choice((0.0, 0.95)) for _ in range(layers)]}


def _one_side(rng: random.Random, names: Sequence[str]) -> dict[str, Any]:
    """Sizes of an encoder or a decoder."""
    heads, layers = rng.choice((2, 4, 6)), rng.choice((2, 3))
    sizes: dict[str, Any] = {
        "hidden_size": heads * rng.choice((8, 12, 16)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    sizes |= {"num_key_value_heads": rng.choice([n for n in (1, 2, heads) if heads % n == 0])}
    sizes |= {"head_dim": rng.choice((8, 16, 20, 24)), "intermediate_size": rng.choice((72, 104))}
    sizes |= {"vocab_size": rng.choice((97, 160)), "hidden_activation": rng.choice(("gelu_pytorch_tanh", "silu"))}
    sizes |= {"sliding_window": rng.choice((16, 4096)), "attention_bias": rng.random() < 0.5}
    sizes |= {"layer_types": _kinds(rng, layers, "full_attention", "sliding_attention")}
    return sizes | {name: rng.choice((None, 30.0)) for name in names}


@special("t5gemma")
def _two_sides(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    sides = {name: _one_side(rng, caps) for name in ("encoder", "decoder")}
    return sides | {"is_encoder_decoder": True, "bos_token_id": 1, "pad_token_id": 0}


@special("t5gemma2")
def _one_table_for_both(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    text, decoder = (_one_side(rng, ("final_logit_softcapping",)) for _ in range(2))
    heads = decoder["num_attention_heads"]
    alike = {name: text[name] for name in ("vocab_size", "hidden_size")}
    decoder |= alike | {"num_attention_heads": heads if alike["hidden_size"] % heads == 0 else 2}
    decoder["num_key_value_heads"] = rng.choice([n for n in (1, 2) if decoder["num_attention_heads"] % n == 0])
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    senses = {"vision_config": vision | {"image_size": 32, "patch_size": 8}, "mm_tokens_per_image": 4}
    return {"encoder": {"text_config": text, **senses}, "decoder": decoder, "is_encoder_decoder": True}


@special("lfm2", "lfm2_moe")
def _convolutions(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own = {"layer_types": _kinds(rng, layers, "conv", "full_attention"), "block_auto_adjust_ff_dim": False}
    return _known(drawn, own | {"num_dense_layers": 1, "block_use_swiglu": True})


@special("lfm3")
def _windows_too(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"layer_types": _kinds(rng, 4, "conv", "full_attention", "sliding_attention"), "num_hidden_layers": 4}
    return own | {"conv_L_cache": rng.choice((3, 7)), "head_dim": rng.choice((8, 16)), "sliding_window": 16}


@special("zaya")
def _compressed(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = _kinds(rng, drawn["num_hidden_layers"], "hybrid", "hybrid_sliding")
    shares = {kind: rng.choice((0.25, 0.5, 1.0)) for kind in set(kinds)}
    ropes = {
        kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
        for kind, share in shares.items()
    }
    own = {"layer_types": kinds, "rope_parameters": ropes, "sliding_window": rng.choice((16, 4096))}
    own |= {"router_hidden_size": rng.choice((16, 24)), "num_experts_per_tok": 1, "head_dim": rng.choice((8, 16))}
    return own | {"cca_time0": rng.choice((2, 3)), "cca_time1": rng.choice((2, 3)), "output_router_logits": False}


@special("xlstm")
def _matrix_memory(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    heads = rng.choice((1, 2, 4))
    own = {"hidden_size": 16 * heads * rng.choice((1, 2)), "num_heads": heads, "mode": "train"}
    own |= {"qk_dim_factor": rng.choice((0.5, 1.0)), "v_dim_factor": rng.choice((0.5, 1.0, 2.0))}
    own |= {"weight_mode": rng.choice(("single", "fused")), "ffn_round_up_to_multiple_of": rng.choice((16, 64))}
    own |= {"embedding_dim": own["hidden_size"], "num_blocks": drawn["num_hidden_layers"], "return_last_states": True}
    return own | {"norm_reduction_force_float32": True, "add_out_norm": True, "chunk_size": 16}


@special("qwen4_exp_text")
def _gated_streams(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    listed = _kinds(rng, drawn["num_hidden_layers"], "linear_attention", "indexed_attention")
    keys = rng.choice((1, 2))
    own = {"layer_types": listed, "head_dim": 16, "hc_count": rng.choice((2, 4)), "hc_lowrank": rng.choice((12, 20))}
    own |= {"linear_num_key_heads": keys, "linear_num_value_heads": 2 * keys, "linear_key_head_dim": 16}
    own |= {"linear_value_head_dim": rng.choice((16, 24)), "hidden_act": "silu", "eos_token_id": 1}
    own |= {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16}
    own |= {"indexer_compress_ratio": rng.choice((4, 8)), "output_gate_type": rng.choice((None, "silu", "sigmoid"))}
    own |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    if rng.random() < 0.6:
        own |= {"ple_layer_ids": [listed.index("linear_attention") + 1], "ple_embed_dim": 4 * rng.choice((4, 6))}
        own |= {"ngram_size": rng.choice((2, 3)), "heads_per_ngram": 2, "ngram_vocab_size_base": rng.choice((50, 97))}
        own |= {"make_ngram_vocab_size_divisible_by": 8, "ple_conv_kernel_size": rng.choice((3, 4))}
    return own


@special("minimax")
def _lightning(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"layer_types": _kinds(rng, drawn["num_hidden_layers"], "linear_attention", "full_attention")}
    return own | {"block_size": rng.choice((16, 20)), "sliding_window": None, "head_dim": 16}


@special("recurrent_gemma")
def _griffin(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"block_types": ["recurrent", "attention"], "lru_width": drawn["hidden_size"]}
    return own | {"attention_window_size": 128, "intermediate_size": 144, "embeddings_scale_by_sqrt_dim": True}


@special("rwkv")
def _rwkv(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"context_length": 128, "attention_hidden_size": drawn["hidden_size"]}


def draw(model_type: str, rng: random.Random, dropout: float) -> Shape:
    """Draw a small config of a model type, with its flags and functions, and the batch it runs on."""
    if model_type in WRAPPERS:
        shape = draw(WRAPPERS[model_type], rng, dropout)
        tied = shape.fields.get("tie_word_embeddings", False)
        whole = {"model_type": model_type, "text_config": shape.fields, "tie_word_embeddings": tied}
        return shape._replace(fields=whole)
    config = transformers.AutoConfig.for_model(BORROWED.get(model_type, model_type))
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
        fields["head_dim"] = rng.choice((8, 16, 20, 24, 264))
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
    put(("attn_logit_softcapping", "final_logit_softcapping"), rng.choice((None, 30.0)))
    if any(name in own for name in (*EXPERTS, "kv_lora_rank")):
        fields.update(experts_and_ranks(rng, own, layers, heads))
    for name, value in own.items():
        if isinstance(value, bool) and name not in fields:
            fields[name] = rng.random() < 0.5 if rng.random() < 0.5 else value
        elif isinstance(value, float) and "drop" in name:
            fields[name] = 0.0 if "layer" in name else dropout
        elif name.endswith("_token_id") and isinstance(value, int):
            fields[name] = 1
    if head_of(model_type) is WHOLE:
        fields["tie_word_embeddings"] = rng.random() < 0.5
    if "layer_types" in fields and not (window and fields.get("use_sliding_window", True)):
        del fields["layer_types"]
    if model_type in SPECIAL:
        fields.update(SPECIAL[model_type](rng, fields))
    if "attention_window" in fields:
        length -= length % 16  # whole windows: what is padded to them is no token of the batch's
    two = head_of(model_type) is transformers.AutoModelForSeq2SeqLM
    return Shape(fields, 0, length, rng.choice((length, 24)) if two else 0)


def has_dropout(model_type: str) -> bool:
    """Whether a class has any."""
    fields = draw(model_type, random.Random(0), DROPOUT).fields
    return DROPOUT in fields.get("text_config", fields).values()


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
    fields, sequences, length, target = shape
    name = mode(precision, kernel, dropout > 0, sequences)
    try:
        found = measure(fields, precision, kernel, sequences, length, target)
    except Exception as problem:  # whatever a class does not run
        return Case(name, shape, None, 0, 0, f"does not run: {type(problem).__name__}: {str(problem)[:150]}")
    try:
        step, rank = said(fields, precision, kernel, dropout, sequences, length, target)
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
    """Write the table with a new entry for this model type."""
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
        fields, sequences, *lengths = by_mode[name].shape
        length = lengths if lengths[1] else lengths[0]
        rows.append([model_type, name, sequences, length, by_mode[name].saved, by_mode[name].casts, fields])
    about = (
        f"Bytes that autograd saves for backward: Hugging Face transformers {transformers.__version__} on torch "
        f"{torch.__version__.split('+')[0]}, measured by tools/saved_bytes.py."
    )
    columns = ["model_type", "mode", "sequences", "length", "saved", "weight_casts", "config"]
    text = json.dumps({"about": about, "columns": columns})[:-1] + ', "rows": [\n'
    text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda row: row[:2]))
    CASES.write_text(text + "\n]}\n", encoding="utf-8")


def drawn_types() -> list[str]:
    """Return the model types that napkin reads and the library has."""
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    return [name for name in MODULES if name in known or name in BORROWED]


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
    for model_type in asked.types or drawn_types():
        cases = sweep(model_type, asked.cases, asked.seed, asked.only, asked.show)
        found = verdicts(cases)
        if asked.only and not cases:
            parser.error(f"no mode of {model_type} begins with {asked.only!r}")
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
