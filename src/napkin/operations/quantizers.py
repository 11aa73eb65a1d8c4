"""Libraries whose quantized linear layers a frozen network has: what the layers save and allocate."""

from __future__ import annotations

from napkin.record import record


@record
class Quantizer:
    """Whose quantized linear layers run, with the place in its code.

    head         the head is one of them
    saves_input  their products save their input for backward, though the weight is frozen
    saves_int8   those of LLM.int8() do
    scales_apart scales of 4-bit weights are tensors of their own, not a part of the weight's
    dequantized  bytes of a weight while its product runs
    peft         peft makes the adapters next to them
    """

    name: str
    source: str
    head: bool = False
    saves_input: bool = False
    saves_int8: bool = False
    scales_apart: bool = True
    dequantized: int = 2
    peft: bool = False


QUANTIZERS: dict[str, Quantizer] = {
    one.name: one
    for one in (
        Quantizer(
            "bitsandbytes",
            "bitsandbytes of 2023, autograd/_functions.py, MatMul4Bit: saves A; dequantizes to fp16 and casts that to "
            "bf16. Every linear layer of a model, the head too, is one of its own",
            head=True,
            saves_input=True,
            dequantized=4,
        ),
        Quantizer(
            "transformers",
            "bitsandbytes/autograd/_functions.py, MatMul4Bit and MatMul8bitLt; transformers/integrations/"
            "bitsandbytes.py leaves the head alone",
            saves_int8=True,
            peft=True,
        ),
        Quantizer(
            "torchao",
            "pytorch/ao torchao/dtypes/nf4tensor.py, LinearNF4: saves the weight alone; scales are in the NF4Tensor",
            scales_apart=False,
        ),
    )
}
