"""A training configuration for the rules: its stated values, and its predicted time and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.evidence.software.stacks import SoftwareStack
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.options.command_line import Text
from napkin.planning.verdicts import FITS, NOT, Fit
from napkin.record import record
from napkin.term import Term
from napkin.timing.step import StepTime
from napkin.training.framework import Framework
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.layout import Layout
from napkin.training.setup import Setup

Options = Mapping[str, Text]
"""Option → its text in a changed configuration; None removes it."""


SURELY = 2
"""Grade of a step that fits even at the upper end of its memory interval."""


def grade(fit: Fit) -> int:
    """Return how well a step fits: 2 surely, 1 perhaps, 0 not; 2 if nothing is judged."""
    return {NOT: 0, FITS: SURELY, "": SURELY}.get(fit.verdict, 1)


def fits_as_well(fit: Fit, other: Fit) -> bool:
    """Return whether a step fits at least as well as another one."""
    return grade(fit) >= grade(other)


@record
class Stated:
    """The stated values of a configuration: each is readable, but together they may be impossible.

    texts    every option that was given, as text
    options  every option with a value, given or default
    node     GPUs joined by the fast link; 0 if no accelerator is named
    fields   of the model's config.json
    """

    model: Model
    hardware: Hardware | None
    node: int
    texts: Options
    options: Mapping[str, object]
    fields: Callable[[], Mapping[str, object]]

    def number(self, name: str) -> int:
        """Return an option that is a whole number, 0 if it has no value."""
        value = self.options.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def word(self, name: str) -> str:
        """Return an option that is a text, "" if it has no value."""
        value = self.options.get(name)
        return value if isinstance(value, str) else ""

    @property
    def framework(self) -> Framework | None:
        """The framework that is named."""
        return FRAMEWORKS.get(self.word("framework").strip().lower())


@record
class Run:
    """The amount of training, its price, and the operation of a run. None: not given.

    tokens  processed, padding included         padding  share of padding         epochs  passes over the data
    price   USD per GPU-hour                        steps, warmup  optimizer steps of the run, and of its warm-up
    interval, mtbf, write  seconds between checkpoints, between failures of the job, and to write a checkpoint
    """

    tokens: float | None = None
    price: float | None = None
    interval: Term | None = None
    mtbf: Term | None = None
    write: Term | None = None
    epochs: float | None = None
    padding: float = 0.0
    steps: float | None = None
    warmup: int | None = None


@record
class Configuration:
    """A configuration that can be run, with its step's memory and time.

    fit      its memory, against the accelerator if one is named; None if the memory model does not support the model
    step     its time; None if it is not modeled, for which `untimed` says why
    stack    the software of the step time; guessed: chosen by napkin
    """

    stated: Stated
    setup: Setup
    fit: Fit | None
    step: StepTime | None
    untimed: str
    stack: SoftwareStack | None
    guessed: bool
    run: Run

    @property
    def model(self) -> Model:
        return self.stated.model

    @property
    def layout(self) -> Layout:
        return self.setup.layout

    @property
    def given(self) -> Options:
        return self.stated.texts

    @property
    def capacity(self) -> int | None:
        """Bytes of one GPU that torch can have."""
        return self.stated.hardware.capacity if self.stated.hardware is not None else None

    @property
    def used(self) -> int | None:
        """Bytes of one GPU that the step takes."""
        return None if self.fit is None else int(self.fit.reported.used.value)

    @property
    def fits(self) -> bool:
        """Whether the step surely fits."""
        return self.fit is not None and self.fit.verdict == FITS

    @property
    def seconds(self) -> float | None:
        """Seconds of one step."""
        return None if self.step is None else float(self.step.time.value)

    @property
    def token_seconds(self) -> float | None:
        """GPU-seconds of one token."""
        if self.step is None:
            return None
        tokens = float(self.layout.global_batch * self.layout.seq)
        return float(self.step.time.value) * float(self.layout.gpus) / tokens

    @property
    def cost(self) -> float | None:
        """USD of the run without interruptions, if its tokens and a price are stated."""
        if self.token_seconds is None or self.run.tokens is None or self.run.price is None:
            return None
        return self.run.tokens * self.token_seconds / 3600 * self.run.price

    def part(self, name: str) -> float:
        """Return the share of the step that one of its parts takes, such as `bubble`."""
        if self.step is None:
            return 0.0
        every = {one.name: one for part in self.step.time.parts for one in (part, *part.parts)}
        found = every.get(f"step/{name}")
        return 0.0 if found is None else float(found.value) / float(self.step.time.value)

    @property
    def verdict(self) -> int:
        """Grade of the fit: 2 surely, 1 perhaps, 0 not; 2 if nothing is judged."""
        return SURELY if self.fit is None else grade(self.fit)

    def same_batch(self) -> Options:
        """Return the change that keeps a stated number of sequences per step: with other degrees, gradient accumulation
        would mean another batch. Without accumulation the batch is what the ranks take at once,
        as in torchtitan."""
        accumulates = "grad-accum" in self.given and int(self.layout.micro_batches) > 1
        if "global-batch" in self.given or accumulates:
            return {"global-batch": str(int(self.layout.global_samples))}
        return {}

    def degrees(self, **changed: int) -> Options:
        """Return the change to other degrees on the same GPUs; data parallelism takes the remaining ranks."""
        found = {name: changed.get(name, int(getattr(self.layout, name))) for name in ("tp", "pp", "cp")}
        divided = found["tp"] * found["pp"] * found["cp"]
        gpus = int(self.layout.gpus)
        more: dict[str, Text] = {}
        if "dp" in self.given:
            more["dp"] = str(gpus // divided)
        elif "gpus" not in self.given and "nodes" not in self.given:
            more["gpus"] = str(gpus)
        return {**{name: str(value) for name, value in changed.items()}, **more, **self.same_batch()}
