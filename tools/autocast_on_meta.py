"""torch.autocast of CUDA, emulated on the meta device: the types that operations get, by the lists of
ATen/autocast_mode.h."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

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
"""Operations that autocast asks for a result in fp32 if none is asked for."""


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
            with torch.enable_grad():  # also if a network runs without: what is kept serves later passes
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


class Again(contextlib.ExitStack):
    """torch.amp.autocast as checkpoints enter it when a layer runs again."""

    def __init__(self, *_: Any, lowers: bool = False, **__: Any) -> None:
        super().__init__()
        self.lowers = lowers

    def __enter__(self) -> Again:
        if self.lowers and Autocast.active is None:
            self.enter_context(Autocast())
        return super().__enter__()


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


def is_lowering(device_type: str | None = None) -> bool:
    """As torch.is_autocast_enabled."""
    return Autocast.active is not None and not Autocast.active.off


def lowered_dtype(device_type: str | None = None) -> torch.dtype:
    """As torch.get_autocast_dtype."""
    return torch.bfloat16
