"""What encoders for long texts share: attention to some blocks of tokens, or to a window of each layer's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.architectures.blocks import Operations
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.attention.blocks import BlockAttention
from napkin.operations.facts import AttentionCost


def block_sparse(config: Config) -> Callable[[AttentionCost], Operations]:
    """Return what makes attention block-sparse."""
    block, random = config.integer("block_size"), config.integer("num_random_blocks", least=0)
    config.notes.append(
        f"beyond {(5 + 2 * random) * block:,} tokens the class attends to some blocks only; FLOPs are those, memory is "
        "counted as of full attention"
    )

    def core(of: AttentionCost) -> Operations:
        sizes = (of.heads, of.kv_heads, of.qk_dim, of.v_dim)
        return (BlockAttention(of.name, of.reads, *sizes, causal=False, block=block, random=random),)

    return core


def attention_windows(config: Config, layers: int) -> Sequence[int]:
    """Read the window of each layer: one for all, or a list; even. A sequence is padded to whole ones."""
    given = config.raw("attention_window")
    listed = given if isinstance(given, list) else [config.integer("attention_window")] * layers
    if len(listed) != layers:
        raise config.wrong("attention_window", f"has {len(listed)} entries for {layers} layers")
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 < one <= LARGEST_DIMENSION or one % 2:
            raise config.wrong("attention_window", f"{printable(repr(one), 60)} is not an even number of tokens")
    config.must_be("onnx_export", False)
    config.must_be("attention_mode", "longformer")
    config.ignore("ignore_attention_mask")
    config.notes.append("no token is taken to attend to all: which do is the task's")
    return listed
