"""What is trained of a frozen network, and the libraries whose quantized linear layers it has."""

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


@record
class Tuning:
    """What is trained of a frozen network.

    method     lora (two thin matrices next to a weight), a kind of adapters/kinds.py, adapter (a prompt in the
               attention of all layers but the first), adapter_v2 (that, and a scale and a bias on each product, and the
               norms' weights, of every layer), frozen (nothing)
    rank       of LoRA's matrices, or what gives another kind its size          dropout  before them
    targets    modules that adapters are on; () for all linear layers, where `parameters` is () too
    parameters  (path's end, times the rank) of parameters that it adapts: experts in one tensor, routers
    quantized  number format of frozen products' weights: nf4, nf4-dq (its scales in 8 bits too) or ""
    library    whose quantized products: a name of QUANTIZERS
    kept_in    number format of LoRA's matrices if it is not that of the network: they are multiplied in it, and what
               they read is cast to it, or, under `autocast`, cast on to the network's again: a copy for each layer
               (peft 0.21, tuners/lora/layer.py, _cast_input_dtype)
    magnitude  each adapted weight is divided by its norm and multiplied by a learned vector of its outputs (DoRA:
               Liu et al. 2024, arXiv:2402.09353, section 4.1; peft 0.21, tuners/lora/dora.py)
    saved      names of modules, or roles, of what is trained in full next to the adapters, as copies in the type of
               the frozen weights, which stay (peft 0.21, utils/other.py, ModulesToSaveWrapper; cast_adapter_dtype casts
               adapters only)
    apart      modules that a quantized checkpoint keeps in 16 bits in some layers → the share of the layers in
               which it does not
    shared     elements of frozen tensors that all adapters share
    ranks      (module's path, rank) of adapters with a rank of their own
    joined     a linear layer and its adapter are one function, which keeps its input alone and adds the adapter's
               output in place; not with dropout or a magnitude
    divided    tensor-parallel ranks divide both of LoRA's matrices, and gather what either makes and what A reads
               (operations/adapters/lora.py, adapter_shards)
    first      the longest micro-batch is the first, so that none ran before it
    prompts    whether the layer's attention reads the prompt of adapter and adapter_v2
    experts    whether experts whose weights are one tensor are quantized too. Transformers 5 quantizes linear layers
               alone; in transformers 4 most experts were linear layers, and axolotl quantizes while it loads
    """

    method: str
    rank: int = 8
    dropout: float = 0.05
    targets: tuple[str, ...] = ()
    quantized: str = ""
    library: str = "bitsandbytes"
    experts: bool = False
    parameters: tuple[tuple[str, int], ...] = ()
    kept_in: str = ""
    magnitude: bool = False
    autocast: bool = False
    saved: tuple[str, ...] = ()
    shared: int = 0
    apart: tuple[tuple[str, float], ...] = ()
    joined: bool = False
    divided: bool = False
    first: bool = False
    ranks: tuple[tuple[str, int], ...] = ()
    prompts: bool = True

    def saves(self, role: str, module: str) -> bool:
        """Return whether an operation is trained in full: by its role, or by a part of its module's path (peft 0.21,
        tuners/tuners_utils.py, check_target_module_exists)."""
        return bool(self.saved) and (role in self.saved or any(f".{name}." in f".{module}." for name in self.saved))

    def narrow(self, module: str) -> float:
        """Return the share of the layers in which a module's matrices are quantized, where such modules are."""
        return next((share for name, share in self.apart if name == module), 1.0)

    def rank_of(self, module: str) -> int:
        """Return the rank of the adapter on a module."""
        return next((rank for path, rank in self.ranks if path == module), self.rank)

    @property
    def targeted(self) -> bool:
        """Whether adapters are on modules that `targets` names."""
        return self.method not in WITHIN_LAYERS

    @property
    def prompted(self) -> bool:
        """Whether attention reads a prompt of its own."""
        return self.method in FIRST_PROMPTED and self.prompts

    @property
    def wide(self) -> bool:
        """Whether LoRA's matrices are kept in fp32 next to a network in 16 bits."""
        return self.kept_in == "fp32"

    @property
    def affine(self) -> bool:
        """Whether each linear layer has a trained scale and bias, and norms' weights are trained."""
        return self.method == "adapter_v2"

    @property
    def everything(self) -> bool:
        """Whether adapters are on every linear layer but the head."""
        return self.targeted and not self.targets and not self.parameters

    @property
    def quantizer(self) -> Quantizer:
        """Whose quantized layers the frozen network has."""
        return QUANTIZERS[self.library]

    @property
    def keeps(self) -> bool:
        """Whether frozen quantized products keep their input."""
        return bool(self.quantized) and self.quantizer.saves_input

    @property
    def keeps_last(self) -> bool:
        """Whether inputs that quantized products kept in the last micro-batch are there too: attributes of its graph,
        which the backward pass does not free (bitsandbytes before 0.43.2, autograd/_functions.py, `ctx.tensors = (A,
        B)`; pull request 1270), and a loop whose variable refers to that graph until the forward pass returns
        (Lightning-AI/litgpt litgpt/finetune/lora.py, `logits = model(input_ids)`)."""
        return self.keeps and not self.first

    @property
    def prefix(self) -> int:
        """Trained keys and values before those of each sequence."""
        return self.rank if self.method == PREFIX else 0

    @property
    def keeps_int8(self) -> bool:
        """Whether frozen products are those of LLM.int8(), which keep their input."""
        return self.quantized == "int8" and self.quantizer.saves_int8

    @property
    def dequantized_bytes(self) -> int:
        """Bytes of a quantized weight while its product runs."""
        return self.quantizer.dequantized if self.quantized else 0


PREFIX = "prefix"
WITHIN_LAYERS = ("adapter", "adapter_v2", "frozen", "prompt", "p-tuning", PREFIX)
"""Methods that have no targets: adapters of every layer, none, and tokens in front of a sequence."""
FIRST_PROMPTED = {"adapter": 2, "adapter_v2": 2}
"""The first layer whose attention reads a prompt (LitGPT, litgpt/adapter.py, Config.adapter_start_layer)."""
FROZEN_LAYERS = {"adapter": FIRST_PROMPTED["adapter"]}
"""Layers before the first that is trained: they keep nothing."""
