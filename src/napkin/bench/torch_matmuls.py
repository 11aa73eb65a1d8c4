"""How torch multiplies in each number format, with the output written to a given tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from napkin.bench.device import MatmulSpec, Unsupported

if TYPE_CHECKING:
    from torch import Tensor, device

# torch.nn.functional.ScalingType and SwizzleType as numbers, for the operator that takes `out=`.
BLOCK_1X16, BLOCK_1X32 = 2, 3
SWIZZLE_32_4_4 = 1


def call(
    torch: Any, place: device, spec: MatmulSpec, a: list[Tensor], b: list[Tensor], c: list[Tensor]
) -> Callable[[int], None]:
    """Return the call that multiplies operand set i, by the kernel of the format."""
    if spec.dtype in ("fp32", "tf32"):
        precision = "high" if spec.dtype == "tf32" else "highest"

        def float32(i: int) -> None:
            # The legacy switch, and back at once: reading it after the new one was used raises in torch.compile.
            torch.set_float32_matmul_precision(precision)
            torch.mm(a[i], b[i], out=c[i])
            torch.set_float32_matmul_precision("highest")

        return float32
    if spec.dtype == "int8":
        return lambda i: torch._int_mm(a[i], b[i], out=c[i])
    if spec.dtype == "fp8_e4m3":
        scale_a, scale_b = _fp8_scales(torch, place, spec)
        fast = bool(spec.fast_accum)
        return lambda i: torch._scaled_mm(
            a[i], b[i], scale_a, scale_b, out_dtype=c[i].dtype, use_fast_accum=fast, out=c[i]
        )
    if spec.dtype in ("mxfp8", "mxfp4", "nvfp4"):
        return block_scaled(torch, place, spec, a, b, c)
    return lambda i: torch.mm(a[i], b[i], out=c[i])


def _fp8_scales(torch: Any, place: device, spec: MatmulSpec) -> tuple[Tensor, Tensor]:
    if spec.scaling == "rowwise":
        return torch.ones(spec.m, 1, device=place), torch.ones(1, spec.n, device=place)
    return torch.ones((), device=place), torch.ones((), device=place)


def block_scaled(
    torch: Any, place: device, spec: MatmulSpec, a: list[Tensor], b: list[Tensor], c: list[Tensor]
) -> Callable[[int], None]:
    """Make operands with one scale for 16 (nvfp4) or 32 values (mx), swizzled as the tensor cores read them."""
    block, recipe = (16, BLOCK_1X16) if spec.dtype == "nvfp4" else (32, BLOCK_1X32)

    def scales(rows: int) -> Any:
        count = -(-rows // 128) * 128 * -(-spec.k // (4 * block)) * 4
        if spec.dtype == "nvfp4":
            return torch.ones(count, device=place).to(torch.float8_e4m3fn)
        one = torch.full((count,), 127, dtype=torch.uint8, device=place)  # an exponent of 0
        return one.view(torch.float8_e8m0fnu)

    scale_a, scale_b = scales(spec.m), scales(spec.n)
    if spec.dtype != "mxfp8":
        packed = torch.float4_e2m1fn_x2
        a = [x.view(packed) for x in a]
        b = [x.t().view(packed).t() for x in b]
    multiply = getattr(torch, "_scaled_mm_v2", None)
    if multiply is None:
        raise Unsupported(f"torch {torch.__version__} has no matmul of block-scaled formats with an output of its own")
    swizzle = [SWIZZLE_32_4_4]
    return lambda i: multiply(
        a[i], b[i], [scale_a], [recipe], swizzle, [scale_b], [recipe], swizzle, None, torch.bfloat16, out=c[i]
    )
