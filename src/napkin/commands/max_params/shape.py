"""The largest shape in a published model's proportions that fits under a layout, for `napkin max-params`."""

from __future__ import annotations

from collections.abc import Callable

from napkin.elementwise import Number
from napkin.errors import BROKEN, NapkinError
from napkin.inputs.hardware import Hardware
from napkin.inputs.model import Config
from napkin.inputs.model_file import load_config
from napkin.operations.model import Model
from napkin.record import record
from napkin.term import TRUE, Term, leaf
from napkin.training.setup import Setup


@record
class LayoutFit:
    """A layout under which the largest shape must fit: a model's setup, and the search's steps.

    tp, pp, stages  tensor-parallel ranks, pipeline stages, and stages times chunks that the layers divide by (1: none)
    least           minimum layers of a shape: the frozen ones
    part            whether only a part is trained, so that not every parameter has gradients and optimizer states
    recomputed      whether activations are recomputed
    """

    setup_for: Callable[[Model], Setup]
    tp: int
    pp: int
    stages: int
    least: int = 1
    part: bool = False
    recomputed: bool = False


@record
class FittingShape:
    """The largest shape that fits under a layout, as quantities and notes.

    parameters  of the largest that fits by the estimate, 0 if none does
    ends        those of the largest that surely fits, and of the largest that may fit
    memory      the interval of its memory                  verdict  of the one by the estimate, "" if none fits
    """

    terms: list[Term]
    notes: list[str]
    parameters: int = 0
    ends: tuple[int, int] = (0, 0)
    memory: tuple[Number, Number] = (0, 0)
    verdict: str = ""

    @property
    def intervals(self) -> dict[str, tuple[Number, Number]]:
        """The intervals of the quantities."""
        return {"fits/params": self.ends, "fits/memory": self.memory} if self.parameters else {}


def proportions_of(name: str, limit: int) -> Config:
    """Return the model whose proportions a shape keeps: of a family, the member whose size is nearest to `limit`."""
    from napkin.inputs.presets import is_preset
    from napkin.planning.scaling import nearest_of_family

    return (None if is_preset(name) else nearest_of_family(name, limit)) or load_config(name)


def keeps(config: Config) -> str:
    """Return the note on the model whose proportions a shape keeps."""
    return f"the shape keeps the proportions of {config.name}: head size, width to depth, inner width to width"


def deep_enough(config: Config, least: int) -> Model:
    """Return the published shape, with at least as many layers as are frozen."""
    from napkin.architectures import build
    from napkin.planning.scaling import Proportions

    model = build(config)
    if len(model.stacks) > 1 or model.depth >= least:
        return model
    shape = Proportions(config)
    return shape.model(shape.heads, least)


def shape_terms(path: str, model: Model, parameters: int) -> list[Term]:
    """Return a shape as quantities."""
    found = (
        ("params", parameters, "param"),
        ("hidden_size", model.hidden, "1"),
        ("layers", model.depth, "1"),
        ("heads", model.heads, "1"),
        ("kv_heads", model.kv_heads, "1"),
        ("head_dim", model.head_dim, "1"),
    )
    return [leaf(f"{path}/{name}", value, unit, TRUE, "exact count of the shape") for name, value, unit in found]


def fitting_shape(layout: LayoutFit, hardware: Hardware, config: Config) -> FittingShape:
    """Return the largest shape whose entire step fits (states as the layout shards them, activations, loss,
    overhead)."""
    from napkin.planning import verdicts
    from napkin.planning.scaling import SLACK, count, largest_of_family
    from napkin.planning.verdicts import FITS, NOT

    # an option that makes no layout is refused here, not taken for a lack of memory
    layout.setup_for(deep_enough(config, layout.least))
    available = hardware.term("capacity", "fits/capacity", "byte")
    known: dict[tuple[int, int], verdicts.Fit] = {}

    def evaluated(model: Model) -> verdicts.Fit:
        shape = model.hidden, model.depth
        if shape not in known:
            known[shape] = verdicts.evaluate(model, layout.setup_for(model), available.value)
        return known[shape]

    def largest(holds: Callable[[verdicts.Fit], bool]) -> Model | NapkinError:
        """Return the largest shape for which this holds, or the error that says that there is none."""
        try:
            model, _ = largest_of_family(
                config, lambda one: holds(evaluated(one)), layout.tp, layout.pp, layout.stages, layout.least
            )
        except NapkinError as problem:
            if problem.status != BROKEN:
                raise
            return problem
        return model

    model = largest(lambda fit: bool(fit.reported.used.value <= available.value) and fit.loads != NOT)
    if isinstance(model, NapkinError):
        return FittingShape([available], [f"fits/… is omitted: {model.message} under this layout"])
    surely, possibly = largest(lambda fit: fit.verdict == FITS), largest(lambda fit: fit.verdict != NOT)
    found, parameters = evaluated(model), count(model)
    used = found.reported.used.renamed("fits/memory")
    return FittingShape(
        [*shape_terms("fits", model, parameters), used, available],
        [
            "fits/…: the largest that fits one step under this layout by the estimate, including activations and "
            "overhead; in brackets the largest that surely fits, and the largest that may fit",
            f"shapes of {config.name}'s family: depth within {SLACK:.0%} of its proportion to the width",
        ],
        parameters,
        (
            0 if isinstance(surely, NapkinError) else min(count(surely), parameters),
            parameters if isinstance(possibly, NapkinError) else max(count(possibly), parameters),
        ),
        found.reported.ends["memory/used"],
        found.verdict,
    )
