"""Values of a row of measured fine-tuning as people write them: libraries, frameworks, formats, kernels, figures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from napkin.errors import NapkinError, nearest
from napkin.evidence.rows.keys import OF_A_PRESET
from napkin.evidence.rows.preset_dimensions import dimensions_of
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.spelled_values import Reader, changed, same
from napkin.evidence.rows.words import SDPA, timed_kernel
from napkin.inputs.launch.names import model_of
from napkin.inputs.load import printable
from napkin.inputs.presets import is_preset
from napkin.inputs.slips import slip_of
from napkin.options.meaning import meaning
from napkin.options.meanings import VALUES
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.optimizer import FORMS
from napkin.training.precision import POLICIES
from napkin.training.trainers import TRAINERS

LOOPS = ("", "none", "custom", "own", "loop", "script", "pytorch", "torch")
"""What rows call a training loop of their own."""
TRAINER_NAMES = {
    **{re.sub(r"[^a-z0-9]", "", name): name for name in TRAINERS},
    **dict.fromkeys(("hf", "huggingface", "trainer", "transformers", "huggingfacetrainer"), "hf-trainer"),
    **dict.fromkeys(("transformerstrainer", "hftransformers", "huggingfacetransformers"), "hf-trainer"),
    **dict.fromkeys(("sfttrainer", "trlsfttrainer", "huggingfacetrl", "hftrl"), "trl"),
    **dict.fromkeys(("swift", "modelscopeswift"), "ms-swift"),
    **dict.fromkeys(("huggingfaceaccelerate", "hfaccelerate"), "accelerate"),
}
"""Letters and digits of a library's name → the library."""


def _trainer(row: RowFields, told: list[str]) -> RowFields:
    """Read the library's name in any spelling; one that is not known is taken for a plain loop, which is said."""
    said = row.text("layout.trainer").strip().lower()
    if said in LOOPS or said in TRAINERS:
        return row
    letters = re.sub(r"[^a-z0-9]", "", said)
    if named := TRAINER_NAMES.get(letters):
        return changed(row, "layout", trainer=named)
    _refuse_slip(row, "layout.trainer", said, TRAINERS)
    told.append(f"layout.trainer: {printable(said, 40)} is not known: read as a plain loop")
    return row


def _refuse_slip(row: RowFields, path: str, said: str, known: Iterable[str]) -> None:
    """Reject a value that misspells one that is known."""
    if close := slip_of(said, known):
        raise row.wrong(path, f"{printable(repr(said), 40)} is not known; nearest: {close}")


def _stack(row: RowFields, told: list[str]) -> RowFields:
    """Read what divides the model with its stage or version: `FSDP2`, `DeepSpeed ZeRO-3`."""
    said = re.sub(r"[-_ ]+", "-", row.text("layout.stack").strip().lower())
    if said in ("", "none", "ddp") or said in FRAMEWORKS:
        return row
    found = meaning(VALUES["framework"], said, None)
    means = dict(found.options) if found is not None else {}
    if "framework" not in means:
        return row
    values = {"zero": means.get("zero"), "fsdp_version": means.get("fsdp-version")}
    for name, value in values.items():
        stated = row.part("layout").get(name)
        if value is not None and stated is not None and not same(stated, value):
            what = f"says {printable(said, 40)}, and layout.{name} says {stated}: a contradiction"
            raise row.wrong("layout.stack", what)
    numbers = {name: int(value) for name, value in values.items() if value is not None}
    return changed(row, "layout", stack=means["framework"], **numbers)


PURE = re.compile(r"(pure|true) (bf16|bfloat16)|(bf16|bfloat16) (pure|true)")
"""All weights, gradients and states of 16 bits; Lightning's bf16-true."""
SAID = {
    **dict.fromkeys(("float32", "32", "32 true", "single", "full precision"), "fp32"),
    **dict.fromkeys(("16 mixed", "16"), "amp-fp16"),
}
"""Spellings of formats, with a blank for hyphens and underscores. Lightning's `16-mixed` is autocast over fp32."""
FORMAT = re.compile(r"bf16|bfloat16|fp16|float16|half|16|fp32|float32|fp8|float8|fp4|mxfp|int8|int4|tf32|mixed|\bamp\b")
"""Words that a precision has one of."""


PRECISION_WORDS = """bf16 bfloat16 fp16 float16 half fp32 float32 fp8 float8 fp4 mxfp8 mxfp4 nvfp4 e4m3 e5m2 int8 int4
tf32 16 32 8 amp mixed pure true full precision autocast apex o1 o2 compute params weights master fp32state bit"""
"""Words of a precision that is one word, joined by hyphens."""


def _precision(row: RowFields, told: list[str]) -> RowFields:
    """Read a format in the words of other tools. Raises the row's error for one that is not known."""
    text = row.text("layout.precision").strip().lower()
    said = re.sub(r"[-_ ]+", " ", text)
    if not said or text in POLICIES:
        return row
    if PURE.fullmatch(said):
        return changed(row, "layout", precision="bf16-pure")
    if said in SAID:
        return changed(row, "layout", precision=SAID[said])
    words = set(said.split(" ")) - {*PRECISION_WORDS.split()} if re.fullmatch(r"[\w-]+", text) else set()
    if words or not FORMAT.search(said):
        raise row.wrong("layout.precision", f"{printable(repr(text), 40)} is not known{_near(text, POLICIES)}")
    return row


def _near(said: str, known: Iterable[str]) -> str:
    close = nearest(said, known, 2)
    return f"; nearest: {', '.join(close)}" if close else ""


KERNEL = re.compile(r"flash|flex|sdpa|default|not set|unset|none|auto|\bfa[234]\b")
"""Words of an attention that is flash or what torch picks."""


def _attention(row: RowFields, told: list[str]) -> RowFields:
    """Reject an attention kernel that is not known."""
    said = row.text("layout.attention").strip().lower()
    if said and said not in SDPA and not timed_kernel(said) and not KERNEL.search(said):
        known = ("flash", "flash_attention_2", "sdpa", "eager", "efficient", "cudnn", "xformers")
        raise row.wrong("layout.attention", f"{printable(repr(said), 40)} is not known{_near(said, known)}")
    return row


FIGURES = ("allocated", "reserved", "used", "unstated")
FIGURE_WORDS = (
    ("alloc", "allocated"),
    ("reserved", "reserved"),
    ("nvidia", "used"),
    ("smi", "used"),
    ("driver", "used"),
)


def _figure(row: RowFields, told: list[str]) -> RowFields:
    """Read what a figure of memory is: `max_memory_allocated`, `nvidia-smi`. Raises the row's error for another single
    word."""
    said = row.text("measured.what").strip().lower()
    if not said:
        return row
    found = said if said in FIGURES else next((figure for word, figure in FIGURE_WORDS if word in said), "")
    if re.fullmatch(r"[\w.-]+", said) and found:
        return changed(row, "measured", what=found)
    if re.fullmatch(r"[\w.-]+", said):
        raise row.wrong("measured.what", f"{printable(repr(said), 40)} is not one of {', '.join(FIGURES)}")
    return row


def _form(row: RowFields, told: list[str]) -> RowFields:
    """Read a form of the optimizer in any case. Raises the row's error for one that torch does not have."""
    said = row.text("layout.optimizer_form").strip().lower()
    if said and said not in FORMS:
        raise row.wrong("layout.optimizer_form", f"{printable(repr(said), 40)} is not one of {', '.join(FORMS)}")
    return changed(row, "layout", optimizer_form=said) if said else row


KINDS = """full lora qlora dora qdora rslora galore apollo lisa badam adalora vera ia3 loha lokr oft boft bone miss
hra xlora randlora fourierft prefixtuning ptuning prompttuning prompt prefix bitfit freeze pissa loftq loraplus longlora
llamapro"""
"""What rows say is trained; other words are taken for adapters of another kind, with a wide interval."""
RANKED = re.compile(r"(?P<kind>[a-z][a-z0-9+_-]*)[\s,;(:]+(?:lora[_ -]?)?(?:r|rank)\s*[=: ]?\s*(?P<rank>\d{1,6})\b.*")
"""`lora r=16`, `QLoRA (rank 64, alpha 16)`."""


def _kind(row: RowFields, told: list[str]) -> RowFields:
    """Read the rank next to the kind of adapter."""
    said = row.text("method.kind").strip().lower()
    found = RANKED.fullmatch(said)
    if found is None:
        if re.sub("[-_ ]+", "", said) not in KINDS.split():
            _refuse_slip(row, "method.kind", said, KINDS.split())
        return row
    stated, rank = row.count("method.lora_rank"), int(found["rank"])
    if stated not in (None, rank):
        raise row.wrong("method.kind", f"says rank {rank}, and method.lora_rank says {stated}: a contradiction")
    return changed(row, "method", kind=found["kind"], lora_rank=rank)


def _shape(row: RowFields, told: list[str]) -> RowFields:
    """Reject dimensions that are not the preset's, whose shape a fine-tuning row has."""
    stated = {name: one for name in OF_A_PRESET.split() if (one := row.part("model").get(name)) is not None}
    if not stated:
        return row
    said = row.text("model.name").rpartition("/")[2].partition(" (")[0]
    preset = row.text("model.preset") or model_of("-".join(said.split()))[0] or ""
    try:
        dims = dimensions_of(preset) if is_preset(preset) else {}
    except NapkinError:
        dims = {}
    for name, value in stated.items():
        if name not in dims or not same(dims[name], value):
            what = f"{preset} has {dims[name]}" if name in dims else "no preset confirms it"
            raise row.wrong(f"model.{name}", f"{printable(repr(value), 40)}: {what}, whose shape this schema takes")
    return changed(row, "model", **dict.fromkeys(stated))


TUNING_READERS: tuple[Reader, ...] = (
    _trainer,
    _stack,
    _precision,
    _attention,
    _figure,
    _form,
    _kind,
    _shape,
)
