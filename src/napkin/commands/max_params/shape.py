"""The largest shape in a published model's proportions that fits under a layout, for `napkin max-params`."""

from __future__ import annotations

from collections.abc import Callable

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
    """A layout under which the largest shape must fit: a model's setup and implementation, and the search's steps.

    tp, pp, stages  tensor-parallel ranks, pipeline stages, and stages times chunks that the layers divide by (1: none)
    least           minimum layers of a shape: the frozen ones
    part            whether only a part is trained, so that not every parameter has gradients and optimizer states
    """

    setup_for: Callable[[Model], tuple[Setup, str]]
    tp: int
    pp: int
    stages: int
    least: int = 1
    part: bool = False


def fitted(terms: list[Term]) -> int:
    """Return the parameters of the shape that fits; 0 if none does."""
    return next((int(term.value) for term in terms if term.name == "fits/params"), 0)


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


def fitting_shape(layout: LayoutFit, hardware: Hardware, config: Config) -> tuple[list[Term], list[str]]:
    """Return the largest shape whose entire step fits (states as the layout shards them, activations, loss, overhead),
    and notes."""
    from napkin.planning import verdicts
    from napkin.planning.scaling import largest_of_family

    # an option that makes no layout is refused here, not taken for a lack of memory
    layout.setup_for(deep_enough(config, layout.least))
    available = hardware.term("capacity", "fits/capacity", "byte")

    def evaluated(model: Model) -> verdicts.Fit:
        return verdicts.evaluate(model, *layout.setup_for(model), available.value)

    def fits(model: Model) -> bool:
        return bool(evaluated(model).reported.used.value <= available.value)

    try:
        model, parameters = largest_of_family(config, fits, layout.tp, layout.pp, layout.stages, layout.least)
    except NapkinError as problem:
        if problem.status != BROKEN:
            raise
        return [available], [f"fits/… is omitted: {problem.message} under this layout"]
    used = evaluated(model).reported.used.renamed("fits/memory")
    note = "fits/…: the largest that fits one step under this layout, including activations and overhead"
    return [*shape_terms("fits", model, parameters), used, available], [note]
