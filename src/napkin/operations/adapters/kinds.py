"""The kinds of adapters other than LoRA and DoRA, by the name that peft gives them."""

from __future__ import annotations

from napkin.operations.adapters.kind import AdapterKind
from napkin.operations.adapters.low_rank import IA3, AdaLora, LoHa, LoKr, MiSS, VeRA
from napkin.operations.adapters.rotation import BOFT, OFT
from napkin.operations.adapters.virtual import VIRTUAL_TOKENS

KINDS: dict[str, AdapterKind] = {
    **{one.name: one for one in (AdaLora(), VeRA(), IA3(), LoHa(), LoKr(), MiSS(), OFT(), BOFT())},
    **VIRTUAL_TOKENS,
}
"""Kinds of adapters besides LoRA and DoRA, by the name that --adapter has."""
