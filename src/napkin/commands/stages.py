"""A pipeline's layers dealt by hand: stage by stage, or as Megatron's options name the first and the last."""

from __future__ import annotations

from napkin.commands.command import Inputs
from napkin.errors import NapkinError, Refused
from napkin.operations.model import Model
from napkin.options.layout import END_LAYERS, ENDS_AS_LAYERS, STAGE_OPTIONS
from napkin.training.layout import Stages, joined

SOLVED = "solved"


EVEN = "a number of stages that divides the layers, or --stage-layers"


def given(inputs: Inputs) -> list[str]:
    """Those of the options that deal layers to stages which are given; contradictions among them are refused."""
    found = [name for name in STAGE_OPTIONS[:-1] if inputs.get(name)]
    groups = [
        group for group in (("stage-layers",), END_LAYERS, ENDS_AS_LAYERS) if any(name in found for name in group)
    ]
    if len(groups) > 1:
        both = " and ".join(f"--{next(name for name in group if name in found)}" for group in groups[:2])
        raise NapkinError(f"{both} exclude each other", "--stage-layers alone says it all")
    return found


def degrees(inputs: Inputs, model: Model) -> tuple[int, int, Stages]:
    """(pp, vp, the stages' layers where they are dealt by hand): what --stage-layers and --chunk-layers decide is
    solved."""
    found = given(inputs)
    chunk = inputs.get("chunk-layers")
    for name in (*found, *(("chunk-layers",) if chunk else ())):
        if len(model.stacks) > 1:
            raise Refused(f"--{name}: how {model.name}'s two stacks share a pipeline is not modelled", "leave it out")
    listed: Stages = inputs.get("stage-layers") or ()
    if listed and "pp" not in inputs:
        inputs.shown.pop("pp", None)
        inputs.record("pp", sum(stages for stages, _ in listed), SOLVED)
    pp, depth = int(inputs.get("pp")), model.stacks[-1].depth
    stages = _dealt(inputs, found, pp, depth) if found else ()
    if chunk:
        if "vp" in inputs and inputs.origin("vp") != SOLVED:
            raise NapkinError("--vp and --chunk-layers exclude each other", "leave out one of the two")
        if set(found) - set(ENDS_AS_LAYERS):
            raise NapkinError(f"--chunk-layers and --{found[0]} exclude each other", "--vp says how many chunks")
        dealt = depth + len(found)
        if dealt % (pp * chunk):
            raise NapkinError(
                f"--chunk-layers {chunk:,} × {pp:,} stages do not divide the {dealt:,} layers", "one that does, or --vp"
            )
        inputs.shown.pop("vp", None)
        inputs.record("vp", dealt // pp // chunk, SOLVED)
    vp = int(inputs.get("vp"))
    sizes = {(depth + len(found)) // pp} if set(found) & set(ENDS_AS_LAYERS) else {layers for _, layers in stages}
    for whole in sorted(sizes):
        if whole % vp:
            raise NapkinError(
                f"--vp {vp:,} does not divide a stage of {whole:,} layers", "one that divides every stage"
            )
    return pp, vp, stages


def _dealt(inputs: Inputs, found: list[str], pp: int, depth: int) -> Stages:
    """The stages' layers, which add up to the model's."""
    if found == ["stage-layers"]:
        listed: Stages = inputs.get("stage-layers")
        number, layers = sum(stages for stages, _ in listed), sum(stages * each for stages, each in listed)
        if number != pp:
            raise NapkinError(f"--stage-layers names {number:,} stages, --pp {pp:,}", "leave out --pp")
        if layers != depth:
            raise NapkinError(
                f"--stage-layers: {layers:,} layers in all, the model has {depth:,}", _near(listed, depth)
            )
        inner = listed[1:-1] if pp > 1 else listed
        if any(each == 0 for _, each in inner) or any(n > 1 and each == 0 for n, each in listed):
            raise NapkinError("--stage-layers: a stage between the ends has no layer", "the table's or the head's may")
        return listed
    if pp < 2:
        raise NapkinError(f"--{found[0]} needs a pipeline", "--pp 2 or more")
    if found[0] in ENDS_AS_LAYERS:
        dealt = depth + len(found)
        if dealt % pp:
            raise NapkinError(f"--{found[0]}: {pp:,} stages do not divide {dealt:,} places of layers", EVEN)
        each = dealt // pp
        ends = (each - ("embedding-as-layer" in found), each - ("loss-as-layer" in found))
        return joined(((1, ends[0]), (pp - 2, each), (1, ends[1])))
    first, last = (inputs.get(name) for name in END_LAYERS)
    ends_held = (first or 0) + (last or 0)
    middle = pp - len(found)
    left = depth - ends_held
    if left < 0 or bool(left) != bool(middle) or (middle and left % middle):
        raise NapkinError(
            f"--{found[0]}: {left:,} layers are left for {middle:,} stages"
            if left >= 0
            else f"--{found[0]}: {ends_held:,} layers are more than the model's {depth:,}",
            EVEN,
        )
    between = left // middle if middle else 0
    return joined(((1 if first else 0, first or 0), (middle, between), (1 if last else 0, last or 0)))


def _near(listed: Stages, depth: int) -> str:
    """A list of as many stages that does add up."""
    number = sum(stages for stages, _ in listed)
    if number > depth:
        return f"at most {depth:,} stages"
    least, more = divmod(depth, number)
    runs = joined(((more, least + 1), (number - more, least)))
    return f"for example --stage-layers {','.join(f'{n}x{each}' if n > 1 else f'{each}' for n, each in runs)}"
