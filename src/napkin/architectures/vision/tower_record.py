"""What a kind of vision tower is: fields, what precedes the layers, attention, and how its class runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.architectures.arrangements import Arrangement, pre_norm
from napkin.architectures.attention_parts import QkNorm, Rope
from napkin.architectures.blocks import LAYER, NormStyle
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, Implementation
from napkin.record import record, replace

WHOLE = replace(HF, kernel_mask="", closure=(), buffers=(), positions="buffer")
"""Every patch sees every other; positions are a buffer, one row for all images."""
PACKED = replace(WHOLE, packed=True, positions="each")
"""Images are packed into one sequence, and each attends in a separate call."""


@record
class Names:
    """The fields of vision_config that state its sizes. An `inner` that ends in "ratio" is relative to the width; if
    no field states the size of a `head`, the heads share the width."""

    width: str = "hidden_size"
    depth: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    channels: str = "num_channels"
    inner: str = "intermediate_size"
    head: str = ""
    function: str = "hidden_act"


@record
class Stem:
    """What precedes the layers.

    bias       of the patches' projection
    tokens     learned tokens next to the patches (a class token), or a function that reads their number
    positions  learned positions: "grid" (one for each patch of the config's image), a field with their number or a
               function that reads it, ""
    normed     a norm of the projected patches
    norm       a norm of what enters the layers
    frames     a field of how many frames a patch takes up
    linear     the patches' projection is a linear layer over them, else a convolution
    mask       a field that says whether there is a token for masked patches, which nothing reads here
    """

    bias: bool = True
    tokens: int | Callable[[Config], int] = 0
    positions: str | Callable[[Config], int] = "grid"
    normed: NormStyle | None = None
    norm: NormStyle | None = None
    frames: str = ""
    linear: bool = False
    mask: str = ""


@record
class Mixing:
    """The attention of a layer.

    bias, out_bias  of queries, keys and values, and of the output: a fact or a field
    fused      one projection of all three     few       a field with fewer key/value heads
    rope       rotary positions                norm      of queries and keys
    norm_if    a field that says whether there is one
    windows    the patches of a window within which layers attend, and which layers do
    values     a norm of the values of each head
    """

    bias: bool | str = True
    out_bias: bool | str = True
    fused: bool = False
    few: str = ""
    rope: Callable[[int], Rope] | None = None
    norm: QkNorm | None = None
    norm_if: str = ""
    windows: Callable[[Config, int], tuple[int, Callable[[int], bool]]] | None = None
    values: NormStyle | None = None


def axial(head_dim: int) -> Rope:
    """Return rotary positions of rows and columns, computed in fp32."""
    return Rope(head_dim, upcast=True, wide=True)


@record
class Tower:
    """One kind of vision tower.

    defaults  of the configuration class       norm     of the layers, unless a field chooses: its name is `norm_by`
    mixing    attention                        gated    the MLP is gated
    mlp_bias  a fact or a field                scaled   learned vectors scale each branch
    inner     the MLP's width, where the class derives it
    last      a norm follows the layers       head     a field: the class ends with attention pooling
    arranged  where norms and residual additions of a layer are
    modules   {operation: its path in a layer of the class}
    implementation  how the class runs it
    """

    defaults: Mapping[str, object]
    names: Names = Names()
    stem: Stem = Stem()
    mixing: Mixing = Mixing()
    norm: NormStyle = LAYER
    norm_by: str = ""
    gated: bool = False
    mlp_bias: bool | str = True
    inner: Callable[[Config], int] | None = None
    scaled: bool = False
    last: bool | Callable[[Config], bool] = True
    head: str = ""
    arranged: Arrangement = pre_norm
    modules: Mapping[str, str] = {"o": "self_attn.out_proj", "up": "mlp.fc1", "down": "mlp.fc2"}
    implementation: Implementation = WHOLE
