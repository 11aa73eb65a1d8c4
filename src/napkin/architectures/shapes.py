"""Shapes of the tensors of an audio encoder or a vision tower, put together from those of its modules: {path: shape}.

A step on text holds them and runs none, so that shapes are all that is asked of them. A run of equal layers is one
tensor of each kind, with their number as its first dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

Shapes = Mapping[str, tuple[int, ...]]


def linear(name: str, d_in: int, d_out: int, bias: bool = True) -> Shapes:
    """Return a linear layer's."""
    return {f"{name}.weight": (d_out, d_in), **({f"{name}.bias": (d_out,)} if bias else {})}


def convolution(name: str, d_in: int, d_out: int, *kernel: int, bias: bool = True) -> Shapes:
    """Return a convolution's. One of each channel by itself has a `d_in` of 1."""
    return {f"{name}.weight": (d_out, d_in, *kernel), **({f"{name}.bias": (d_out,)} if bias else {})}


def norm(name: str, width: int, bias: bool = True) -> Shapes:
    """Return a norm's."""
    return {f"{name}.weight": (width,), **({f"{name}.bias": (width,)} if bias else {})}


def together(*parts: Shapes, within: str = "") -> Shapes:
    """Return the tensors of several modules, which are `within` another."""
    before = f"{within}." if within else ""
    return {f"{before}{name}": shape for part in parts for name, shape in part.items()}


def repeated(count: int, name: str, *parts: Shapes) -> Shapes:
    """Return the tensors of a list of `count` equal modules."""
    return {path: (count, *shape) for path, shape in together(*parts, within=name).items()}


def attention(
    width: int, names: tuple[str, str, str, str], bias: tuple[bool, bool, bool, bool], inner: int = 0
) -> Shapes:
    """Return those of queries, keys, values and output, whose heads have `inner` elements together (0: `width`)."""
    *first, last = zip(names, bias, strict=True)
    made = (linear(name, width, inner or width, biased) for name, biased in first)
    return together(*made, linear(last[0], inner or width, width, last[1]))


def feed_forward(width: int, inner: int, names: tuple[str, str], bias: bool = True, gated: bool = False) -> Shapes:
    """Return those of an MLP, of which one matrix makes the gate and what it multiplies if it is `gated`."""
    return together(linear(names[0], width, inner * (1 + gated), bias), linear(names[1], inner, width, bias))
