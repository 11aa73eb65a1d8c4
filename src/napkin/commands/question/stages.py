"""How a pipeline's layers are assigned to stages by hand: stage by stage, or with Megatron's options for the first and
last stage."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.software import read_whether_staged
from napkin.errors import NapkinError, Refused
from napkin.operations.model import Model
from napkin.options.layout import END_LAYERS, ENDS_AS_LAYERS, STAGE_OPTIONS
from napkin.record import record
from napkin.training.layout import Stages, joined

SOLVED = "solved"
EVEN = "a number of stages that divides the layers, or --stage-layers"


@record
class Pipeline:
    """Stages and model chunks of a pipeline; `stages`: layers of each stage, if they are assigned by hand."""

    pp: int
    vp: int
    stages: Stages


def read_pipeline(inputs: Inputs, model: Model) -> Pipeline:
    """Return the pipeline; degrees that --stage-layers and --chunk-layers decide are recorded as solved."""
    given = _read_given(inputs)
    chunk = inputs.integer_or_none("chunk-layers")
    for name in (*given, *(("chunk-layers",) if chunk else ())):
        if len(model.stacks) > 1:
            raise Refused(f"--{name}: how {model.name}'s two stacks share a pipeline is not modeled", "leave it out")
    listed: Stages = inputs.pairs("stage-layers")
    if listed and "pp" not in inputs:
        inputs.record("pp", sum(stages for stages, _ in listed), SOLVED)
    read_whether_staged(inputs)
    pp, depth = inputs.integer("pp"), model.stacks[-1].depth
    stages = _read_assigned(inputs, given, pp, depth) if given else ()
    if chunk:
        _read_chunks(inputs, given, chunk, pp, depth)
    vp = inputs.integer("vp")
    sizes = {(depth + len(given)) // pp} if set(given) & set(ENDS_AS_LAYERS) else {layers for _, layers in stages}
    for whole in sorted(sizes):
        if whole % vp:
            raise NapkinError(
                f"--vp {vp:,} does not divide a stage of {whole:,} layers", "one that divides every stage"
            )
    return Pipeline(pp, vp, stages)


def _read_given(inputs: Inputs) -> list[str]:
    """Return the given options that assign layers to stages; reject contradictions among them."""
    found = [name for name in STAGE_OPTIONS[:-1] if inputs.value(name)]
    groups = [g for g in (("stage-layers",), END_LAYERS, ENDS_AS_LAYERS) if any(name in found for name in g)]
    if len(groups) > 1:
        both = " and ".join(f"--{next(name for name in group if name in found)}" for group in groups[:2])
        raise NapkinError(f"{both} cannot be combined", "--stage-layers is enough")
    return found


def _read_chunks(inputs: Inputs, given: list[str], chunk: int, pp: int, depth: int) -> None:
    """Record the chunks per stage that --chunk-layers implies."""
    if "vp" in inputs and inputs.origin("vp") != SOLVED:
        raise NapkinError("--vp and --chunk-layers cannot be combined", "leave out one of the two")
    if set(given) - set(ENDS_AS_LAYERS):
        raise NapkinError(f"--chunk-layers and --{given[0]} cannot be combined", "--vp says how many chunks")
    layers = depth + len(given)
    if layers % (pp * chunk):
        raise NapkinError(
            f"--chunk-layers {chunk:,} × {pp:,} stages do not divide the {layers:,} layers", "one that does, or --vp"
        )
    inputs.record("vp", layers // pp // chunk, SOLVED)


def _read_assigned(inputs: Inputs, given: list[str], pp: int, depth: int) -> Stages:
    """Return the stages' layers, which add up to the model's."""
    if given == ["stage-layers"]:
        return _listed(inputs.pairs("stage-layers"), pp, depth)
    if pp < 2:
        raise NapkinError(f"--{given[0]} needs a pipeline", "--pp 2 or more")
    if given[0] in ENDS_AS_LAYERS:
        layers = depth + len(given)
        if layers % pp:
            raise NapkinError(f"--{given[0]}: {pp:,} stages do not divide {depth:,} + {len(given)} layers", EVEN)
        each = layers // pp
        ends = (each - ("embedding-as-layer" in given), each - ("loss-as-layer" in given))
        return joined(((1, ends[0]), (pp - 2, each), (1, ends[1])))
    first, last = (inputs.integer_or_none(name) or 0 for name in END_LAYERS)
    at_ends = first + last
    middle = pp - len(given)
    left = depth - at_ends
    if left < 0 or bool(left) != bool(middle) or (middle and left % middle):
        raise NapkinError(
            f"--{given[0]}: {left:,} layers are left for {middle:,} stages"
            if left >= 0
            else f"--{given[0]}: {at_ends:,} layers are more than the model's {depth:,}",
            EVEN,
        )
    between = left // middle if middle else 0
    return joined(((1 if first else 0, first or 0), (middle, between), (1 if last else 0, last or 0)))


def _listed(stages: Stages, pp: int, depth: int) -> Stages:
    """Return the layers as --stage-layers lists them, checked against the pipeline and the model."""
    number, layers = sum(count for count, _ in stages), sum(count * each for count, each in stages)
    if number != pp:
        raise NapkinError(f"--stage-layers names {number:,} stages, --pp {pp:,}", "leave out --pp")
    if layers != depth:
        raise NapkinError(f"--stage-layers: {layers:,} layers in total, the model has {depth:,}", _near(number, depth))
    inner = stages[1:-1] if pp > 1 else stages
    if any(each == 0 for _, each in inner) or any(count > 1 and each == 0 for count, each in stages):
        raise NapkinError(
            "--stage-layers: a stage between the ends has no layer", "only the first and the last stage may have none"
        )
    return stages


def _near(number: int, depth: int) -> str:
    """Return a valid list of that many stages, for a hint."""
    if number > depth:
        return f"at most {depth:,} stages"
    least, more = divmod(depth, number)
    runs = joined(((more, least + 1), (number - more, least)))
    return f"for example --stage-layers {','.join(f'{n}x{each}' if n > 1 else f'{each}' for n, each in runs)}"
