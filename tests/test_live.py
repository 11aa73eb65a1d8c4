"""Live bytes through a training step: traced steps of real code, torch's optimizers on the CPU, and laws."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napkin.architectures import implementation_of
from napkin.footprint import memory
from napkin.footprint.prepared import prepare
from napkin.footprint.rank import BUCKETS, Rank
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.optimizers import OPTIMIZERS
from napkin.training.precision import POLICIES
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup
from tests.conftest import model_of

TRACED = json.loads((Path(__file__).parent / "data" / "traced_steps.json").read_text(encoding="utf-8"))
PEAKS = json.loads((Path(__file__).parent / "data" / "traced_peaks.json").read_text(encoding="utf-8"))
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "amp-bf16"}


def rank(
    fields: dict[str, Any],
    layout: Layout,
    precision: str,
    kernel: str = "flash",
    optimizer: tuple[str, str] = ("adamw", "foreach"),
    in_backward: bool = False,
    dropout: float = 0.0,
) -> Rank:
    model = model_of(fields)
    implementation = implementation_of("hf", model.family)
    policy, (kind, form) = POLICIES[POLICY[precision]], optimizer
    setup = Setup(implementation, layout, policy, find(kind)[0], form, kernel, dropout, in_backward=in_backward)
    return memory.rank_of(prepare(model, setup), 0)


@pytest.mark.parametrize("row", TRACED["rows"], ids=lambda row: "-".join(map(str, (*row[:5], *row[5], row[6]))))
def test_a_traced_step_is_equal_to_the_byte(row: list[Any]) -> None:
    """Before the step, after each pass, and the largest in each pass and in the optimizer's step."""
    _, precision, kernel, batch, every, optimizer, micro_batches, seen, fields = row
    recompute = Recompute("every", every) if every > 1 else Recompute("full" if every else "none")
    layout = Layout(seq=batch[1], micro=batch[0], micro_batches=micro_batches, recompute=recompute)
    found = rank(fields, layout, precision, kernel, optimizer)
    at = {moment.name: moment for moment in found.moments}
    after = {moment.name: moment.live for moment in found.between}
    left = dict(at["step"].made["temporaries"])["left_by_recomputation"]
    assert dict(zip(TRACED["seen"], seen, strict=True)) == {
        "before": found.parameters + found.optimizer + at["forward"].inputs + left,
        "after_forward": after["forward"],
        "after_backward": after["backward"],
        "forward": at["forward"].live,
        "backward": max(at["loss"].live, at["backward"].live),
        "step": at["step"].live,
    }
    assert found.live == max(seen)


@pytest.mark.parametrize(
    ("widths", "activation", "precision", "kernel", "batch", "forward", "backward"),
    [
        ((96, 6, 72, 11, 20, 32), "gelu_pytorch_tanh", "fp32", "eager", (3, 32), 2394708, 2496220),
        ((32, 4, 72, 97, 256, 128), "gelu_fast", "autocast", "flash", (1, 40), 4134588, 3982852),
    ],
)
def test_a_traced_step_in_backward_is_equal_to_the_byte(
    widths: tuple[int, ...],
    activation: str,
    precision: str,
    kernel: str,
    batch: tuple[int, int],
    forward: int,
    backward: int,
) -> None:
    """A tied head's gradient waits for the table's. Seen with a hook behind each weight's gradient that steps it
    (register_post_accumulate_grad_hook), on the meta device as tools/traced_steps.py."""
    names = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "head_dim")
    fields = dict(zip((*names, "max_position_embeddings"), widths, strict=True))
    fields |= {"num_key_value_heads": fields["num_attention_heads"], "num_hidden_layers": 2}
    gemma = {"model_type": "gemma", "tie_word_embeddings": True, "hidden_act": activation, **fields}
    layout = Layout(seq=batch[1], micro=batch[0])
    found = rank(gemma, layout, precision, kernel, ("sgd-momentum", "fused"), in_backward=True)
    at = {moment.name: moment.live for moment in found.moments}
    assert (at["forward"], max(at["loss"], at["backward"])) == (forward, backward)


@pytest.mark.parametrize(
    ("fields", "precision", "kernel", "layout", "live"),
    [
        (
            {
                "model_type": "gpt2", "n_embd": 48, "n_layer": 4, "n_head": 2, "n_inner": 72, "vocab_size": 97,
                "n_positions": 128, "activation_function": "gelu_pytorch_tanh",
            },
            "autocast", "flash", Layout(seq=100, micro=5, recompute=Recompute("full")), 1_750_416,
        ),
        (
            {
                "model_type": "roformer", "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
                "intermediate_size": 144, "vocab_size": 640, "max_position_embeddings": 128, "hidden_act": "relu6",
                "type_vocab_size": 2, "embedding_size": 48,
            },
            "bf16", "eager", Layout(seq=100, micro=4, micro_batches=2, recompute=Recompute("full")), 3_530_854,
        ),
    ],
)  # fmt: skip
def test_a_traced_step_with_dropout_is_equal_to_the_byte(
    fields: dict[str, Any], precision: str, kernel: str, layout: Layout, live: int
) -> None:
    """GPT-2's MLP holds its input until dropout has run; RoFormer's loop holds a layer's dropped weights until the next
    layer returns. Traced with tools/traced_steps.py --dropout 0.1."""
    optimizer = ("sgd", "foreach") if fields["model_type"] == "gpt2" else ("adamw", "foreach")
    assert rank(fields, layout, precision, kernel, optimizer, dropout=0.1).live == live


@pytest.mark.parametrize("row", PEAKS["rows"], ids=lambda row: "-".join(map(str, (*row[:5], *row[5], row[6]))))
def test_the_largest_moment_is_within_a_hundredth_of_a_traced_one(row: list[Any]) -> None:
    """What local variables, casts around rotations, products that repeat heads, tables that all layers read, layers
    that run again and the end of a recomputation hold at the peak: each was 1 to 10 % off without its mechanism."""
    _, precision, kernel, batch, every, optimizer, micro_batches, live, fields = row
    recompute = Recompute("every", every) if every > 1 else Recompute("full" if every else "none")
    layout = Layout(seq=batch[1], micro=batch[0], micro_batches=micro_batches, recompute=recompute)
    assert rank(fields, layout, precision, kernel, optimizer).live == pytest.approx(live, rel=0.01)


def test_the_traced_steps_are_of_many_kinds() -> None:
    rows = TRACED["rows"]
    assert len({row[0] for row in rows}) >= 15
    assert {row[1] for row in rows} == set(POLICY)
    assert {row[2] for row in rows} >= {"flash", "eager", "efficient"}
    assert {row[4] for row in rows} == {0, 1, 2}
    assert {row[6] for row in rows} == {1, 2, 3}


# --- optimizers ------------------------------------------------------------------------------------------------------

SHAPES = ((8, 16), (4,), (32, 8), (6,), (16, 16))
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd-nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop-momentum": ("RMSprop", {"momentum": 0.9}),
    "rmsprop-centered": ("RMSprop", {"centered": True}),
    "adam": ("Adam", {}),
    "adam-amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adadelta": ("Adadelta", {}),
    "rprop": ("Rprop", {}),
    "adafactor": ("Adafactor", {}),
    "muon": ("Muon", {}),
}


def _made_by_a_step(torch: Any, optimizer: Any, weights: list[Any]) -> int:
    """Bytes beyond what stood before the third step, every ATen operation seen."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    class Watch(TorchDispatchMode):
        live = peak = 0

        def see(self, tensor: Any) -> None:
            storage = tensor.untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                self.live += storage.nbytes()
                weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())

        def gone(self, key: int, size: int) -> None:
            seen.discard(key)
            self.live -= size

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for leaf in tree_iter(out):
                if isinstance(leaf, torch.Tensor):
                    self.see(leaf)
            self.peak = max(self.peak, self.live)
            return out

    seen: set[int] = set()
    watch = Watch()
    for weight in weights:
        watch.see(weight)
    start = 0
    gc.freeze()  # what is there already is no garbage of this step
    for _ in range(3):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
            watch.see(weight.grad)
        gc.collect()
        start = watch.peak = watch.live
        with watch:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return watch.peak - start


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "form"), [(n, f) for n in CLASSES for f in OPTIMIZERS[n].forms])
def test_an_optimizer_s_step_makes_what_torch_makes(name: str, form: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    cls, options = CLASSES[name]
    if not hasattr(torch.optim, cls):
        pytest.skip(f"this torch has no {cls}")
    shapes = [shape for shape in SHAPES if name != "muon" or len(shape) == 2]
    weights = [torch.nn.Parameter(torch.randn(shape).to(getattr(torch, dtype))) for shape in shapes]
    forms = {"foreach": form == "foreach"} if name != "muon" else {}
    if form == "fused" or "fused" in OPTIMIZERS[name].forms:
        forms["fused"] = form == "fused"
    optimizer = getattr(torch.optim, cls)(weights, **options, **forms)
    sizes = [(weight.numel(), tuple(weight.shape)) for weight in weights]
    whole = sum(n for n, _ in sizes)
    width = 4 if dtype == "float32" else 2
    made = OPTIMIZERS[name].temporaries(form, sizes, whole, width)
    assert made == _made_by_a_step(torch, optimizer, weights)


def test_muon_s_iteration_by_hand() -> None:
    """A 4 × 2 matrix in fp32: the update 32 bytes, it in bf16 twice 2·16, Gram matrix and polynomial 2·2·4."""
    assert OPTIMIZERS["muon"].temporaries("foreach", [(8, (4, 2))], 8, 4) == 32 + 32 + 16


@pytest.mark.parametrize(("name", "width", "made"), [
    ("lion", 4, 4 * (3 * 8192 + 2048)),
    ("lion", 2, 2 * (3 * 8192 + 2048)),
    ("came", 4, 4 * (3 * 8192 + 2 * 2048)),
    ("came", 2, 4 * (4 * 8192 + 2 * 2048)),
])  # fmt: skip
def test_optimizers_outside_torch_by_hand(name: str, width: int, made: int) -> None:
    """Lion: both products and their sum beside the last update. CAME, in fp32: the update, its distance to the average
    and that squared, beside the last matrix' update and instability; a 16-bit gradient cast."""
    sizes = [(2048, (64, 32)), (8192, (128, 64)), (64, (64,)), (6144, (96, 64))]
    assert OPTIMIZERS[name].temporaries("forloop", sizes, 16448, width) == made


# --- laws ------------------------------------------------------------------------------------------------------------


@st.composite
def configs(draw: Any) -> tuple[dict[str, Any], Layout, str, str]:
    heads = draw(st.sampled_from((1, 2, 4)))
    size = draw(st.sampled_from((8, 16)))
    fields = {
        "model_type": draw(st.sampled_from(("llama", "qwen2", "gemma2", "gpt2", "phi3"))),
        "num_hidden_layers": draw(st.integers(1, 5)),
        "num_attention_heads": heads,
        "hidden_size": heads * size,
        "intermediate_size": draw(st.sampled_from((24, 64, 160))),
        "vocab_size": draw(st.sampled_from((11, 512))),
        "max_position_embeddings": 128,
        "tie_word_embeddings": draw(st.booleans()),
    }
    if fields["model_type"] == "gpt2":
        names = {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd"}
        names |= {"intermediate_size": "n_inner", "max_position_embeddings": "n_positions"}
        fields = {names.get(name, name): value for name, value in fields.items()}
    else:
        fields["num_key_value_heads"] = draw(st.sampled_from([n for n in (1, 2, 4) if heads % n == 0]))
    layout = Layout(seq=draw(st.sampled_from((16, 33, 64))), micro=draw(st.integers(1, 3)))
    return fields, layout, draw(st.sampled_from(tuple(POLICY))), draw(st.sampled_from(("flash", "eager")))


@settings(deadline=None, max_examples=40)
@given(configs(), st.sampled_from((Recompute("full"), Recompute("every", 2), Recompute("group", 2))))
def test_moments_add_up_and_checkpoints_keep_no_more(
    drawn: tuple[dict[str, Any], Layout, str, str], recompute: Recompute
) -> None:
    fields, layout, precision, kernel = drawn
    plain = rank(fields, layout, precision, kernel)
    again = rank(fields, layout.replaced(recompute=recompute), precision, kernel)
    for one in (plain, again):
        after = {moment.name: moment for moment in one.between}
        at = {moment.name: moment for moment in one.moments}
        for moment in (*one.moments, *one.between):
            assert moment.live == sum(getattr(moment, bucket) for bucket in BUCKETS)
            assert all(getattr(moment, bucket) >= 0 for bucket in BUCKETS), moment
        standing = one.parameters + one.optimizer
        assert after["forward"].live >= standing + one.saved + one.casts
        assert at["forward"].live >= after["forward"].live
        assert at["loss"].live >= after["forward"].live
        assert max(at["loss"].live, at["backward"].live) >= after["backward"].live
        assert at["step"].live >= after["backward"].live == standing + one.gradients + at["step"].inputs + loss_of(one)
    assert again.saved <= plain.saved


def loss_of(one: Rank) -> int:
    """The loss, which stands until the step is over."""
    return int(one.between[1].temporaries)


@settings(deadline=None, max_examples=30)
@given(configs())
def test_checkpoints_of_a_deep_model_hold_less_after_the_forward_pass(
    drawn: tuple[dict[str, Any], Layout, str, str],
) -> None:
    """What checkpoints' code refers to is there once, what they spare once a layer."""
    fields, layout, precision, kernel = drawn
    fields = fields | {next(name for name in fields if name in ("num_hidden_layers", "n_layer")): 8}
    plain = rank(fields, layout, precision, kernel).between[0].live
    again = rank(fields, layout.replaced(recompute=Recompute("full")), precision, kernel).between[0].live
    assert again < plain
