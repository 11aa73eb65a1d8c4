"""Published memory against the memory model, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napkin.errors import NapkinError
from napkin.evidence.validate import Compared
from napkin.formulas import optimizers
from napkin.formulas.families import build
from napkin.formulas.fit import evaluate
from napkin.formulas.implementations import code_of
from napkin.formulas.layer import Model
from napkin.formulas.memory import Setup
from napkin.inputs import hardware
from napkin.inputs.load import Document
from napkin.inputs.model import config_from
from napkin.inputs.plan import POLICIES, Layout, Precision, Recompute
from napkin.inputs.published import Row, Shape, StepRow, step_row

MEGATRON = ("megatron", "megatron-deepspeed", "megatron-core", "nanotron")
DROPOUT = {"megatron": 0.1}
"""Megatron-LM's default, which its papers' activation formulas count (Korthikanti et al. 2022, section 4.1)."""


def config_of(dims: Shape, seq: int) -> Mapping[str, Any]:
    """The published shape as the config.json of the kin that has its pieces: Llama's, GPT-2's or Mixtral's."""
    if dims.kv_rank or dims.window:
        raise NapkinError("its attention (latent or windowed) is not among the shapes that a table describes fully")
    if not dims.gated:
        return {
            "model_type": "gpt2",
            "n_embd": dims.hidden,
            "n_layer": dims.layers,
            "n_head": dims.heads,
            "n_inner": dims.ffn,
            "vocab_size": dims.vocab,
            "n_positions": seq,
            "tie_word_embeddings": dims.tied,
        }
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": dims.hidden,
        "intermediate_size": dims.ffn,
        "num_hidden_layers": dims.layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.kv_heads,
        "head_dim": int(dims.head_dim),
        "vocab_size": dims.vocab,
        "max_position_embeddings": seq,
        "tie_word_embeddings": dims.tied,
    }
    if dims.experts:
        config |= {"model_type": "mixtral", "num_local_experts": dims.experts, "num_experts_per_tok": dims.top_k}
        config |= {"intermediate_size": dims.expert_ffn, "sliding_window": None}
    return config


def model_of(dims: Shape, seq: int) -> Model:
    return build(config_from(dims.name, Document(dims.name, None), dict(config_of(dims, seq))))


def precision_of(row: Row, stack: str) -> Precision:
    """Number formats as the row's software keeps them: FSDP shards fp32 parameters and casts them; Megatron's kin keeps
    16-bit parameters with fp32 master copies, gradients in fp32 where it says so."""
    policy = POLICIES.get(row.text("layout.policy"), POLICIES["bf16-mixed"])
    if policy.state in ("bf16", "fp16"):
        return policy
    words = row.text("layout.precision").lower()
    compute = "fp16" if policy.compute == "fp16" else "bf16"  # 8-bit products leave memory as it is (torchtitan, 0.3 %)
    if stack.startswith("fsdp"):
        return Precision("fsdp", "fp32", "fp32", compute, "fp32")
    wide = stack == "nanotron" or stack == "megatron" or "fp32 gradient" in words
    return Precision("master", compute, "fp32" if wide else compute, compute, "fp32", "fp32")


def setup_of(row: Row, step: StepRow, model: Model) -> Setup:
    stack = step.stack
    words = step.recompute_words.lower()
    if step.recompute == "other" or (step.recompute == "selective" and stack not in MEGATRON):
        raise NapkinError(f"recomputes single operations ({words[:60]}): not modelled")
    kind = {"full": "full", "selective": "selective"}.get(step.recompute, "none")
    if "offload" in words or row.flag("layout.activation_offload"):
        raise NapkinError("offloads activations: not modelled")
    micro = int(step.micro_batch or 1)
    batches = max(1, int((step.global_batch or step.dp * micro) // (step.dp * micro)))
    layout = Layout(
        seq=step.seq,
        micro=micro,
        micro_batches=batches,
        tp=step.tp,
        pp=step.pp,
        dp=step.dp,
        cp=step.cp,
        ep=step.ep,
        vp=step.vp or 1,
        sp=1 if step.sp and step.tp > 1 else 0,
        zero=step.zero or 0,
        schedule="interleaved" if (step.vp or 1) > 1 else "1f1b",
        recompute=Recompute(kind),
    )
    optimizer, _ = optimizers.find("adamw")
    code = code_of("megatron" if divided(step) else "hf", model.family)
    attention = "eager" if stack in ("megatron", "megatron-deepspeed") else "flash"
    form = "fused"
    return Setup(code, layout, precision_of(row, stack), optimizer, form, attention, DROPOUT.get(stack, 0.0))


def compared(row: Row) -> Compared:
    """Predicted bytes of the quantity that the row prints, and whether a run that did not fit was to be expected."""
    what = row.text("memory.what")
    quantity = f"memory_{what or 'unstated'}"
    measured = row.number("memory.bytes")
    source = row.text("source.title") or row.text("source")
    out = row.flag("memory.oom") or False
    suspect = row.text("suspect")

    def silent(why: str) -> Compared:
        return Compared(row.text("id"), quantity, None, None, None, measured, source, why, "", suspect, source)

    if measured is None and not out:
        return silent("prints a relative figure, not bytes")
    method = row.text("layout.method")
    if method and method != "full":
        return silent(f"trains adapters ({method}) on frozen weights: not modelled")
    if row.flag("layout.optimizer_in_backward"):
        return silent("steps the optimizer inside backward: not modelled")
    if row.flag("layout.chunked_cross_entropy"):
        return silent("computes the loss in chunks: not modelled")
    if row.text("layout.recompute") == "recipe default":
        return silent("recomputation and optimizer follow a recipe that the row does not state")
    step = step_row(row)
    if step.shape is None:
        return silent("the number of layers or the width is not stated")
    if not step.shape.vocab or not step.seq:
        return silent("the vocabulary or the sequence length is not stated")
    if not row.count("layout.tp") and step.gpus > 1 and not step.zero:
        return silent("the layout is not stated")
    try:
        model = model_of(step.shape, step.seq)
        setup = setup_of(row, step, model)
        capacity = hardware.find(step.chip).capacity if out else None
        code = "megatron" if divided(step) else "hf"
        found = evaluate(model, setup, code, capacity, bool(row.flag("layout.compile")))
    except NapkinError as problem:
        return silent(problem.message)
    reported = found.reported
    name = f"memory/{what or 'allocated'}"
    value = {term.name: term.value for term in (reported.allocated, reported.reserved, reported.used)}[name]
    low, high = reported.ends[name]
    return Compared(row.text("id"), quantity, value, low, high, measured, source, "", found.verdict, suspect, source)


def divided(step: StepRow) -> bool:
    """Whether Megatron-like code runs: only it divides the head and the loss."""
    return step.stack in MEGATRON or step.tp * step.pp > 1
