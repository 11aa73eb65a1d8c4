"""Bytes of a weight in the file formats of llama.cpp, where every tensor is quantized but norms.

A name with K, or IQ, is a mixture: some matrices and the head have more bits than the name says. Their bits are those
of a whole file as printed for Llama 3.1 8B (llama.cpp tools/quantize/README.md at 311c2c9f); other models differ by
about 1.5 %. The others have blocks of 32 elements (ggml/src/ggml-common.h at 01243c58: block_q4_0, block_q4_1,
block_q5_0, block_q5_1, block_q8_0): elements, a 16-bit scale and, where the name ends with 1, a 16-bit minimum.
"""

from __future__ import annotations

MIXTURES = {
    "iq1_s": 2.0042,
    "iq1_m": 2.1460,
    "iq2_xxs": 2.3824,
    "iq2_xs": 2.5882,
    "iq2_s": 2.7403,
    "iq2_m": 2.9294,
    "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977,
    "iq3_s": 3.6606,
    "iq3_m": 3.7628,
    "iq4_xs": 4.4597,
    "iq4_nl": 4.6818,
    "q2_k_s": 2.9697,
    "q2_k": 3.1593,
    "q3_k_s": 3.6429,
    "q3_k_l": 4.2979,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "q6_k": 6.5633,
}
"""Bits of a weight, over a whole file."""
BLOCK, SCALE_BITS = 32, 16
BLOCKS = {"q4_0": (4, 1), "q4_1": (4, 2), "q5_0": (5, 1), "q5_1": (5, 2), "q8_0": (8, 1)}
"""Bits of an element, and the scales and minima of a block."""
GGUF = {name: bits / 8 for name, bits in MIXTURES.items()} | {
    name: (bits + scales * SCALE_BITS / BLOCK) / 8 for name, (bits, scales) in BLOCKS.items()
}
"""Bytes of a weight."""
