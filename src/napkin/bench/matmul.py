"""The matmuls of a device: a search for the best shape, its burst and its sustained rate, and a model's own shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from napkin.bench import formats
from napkin.bench.device import Kernel, MatmulSpec, Unsupported
from napkin.bench.matmul_search import MatmulSearch
from napkin.bench.measurement import Measurement
from napkin.bench.model_shapes import ModelAttention, ModelMatmul
from napkin.bench.modes import BURST_TIMING, DEVICE_TIMING, HOST_HOLD, HOST_TIMING, Mode
from napkin.bench.session import Param, Session
from napkin.bench.shapes import ANCHOR, Shape
from napkin.bench.stats import steadiness
from napkin.bench.timing import Timed, Timing, hold, time_blocks
from napkin.inputs.profile_cases import OK, UNSUPPORTED, Case, Sustained, matmul_id

SMALL_ANCHOR = (512, 512, 512)  # where 8192³ would take a minute
BURSTS = 3


def params(spec: MatmulSpec, kind: str, **more: Param) -> dict[str, Param]:
    """Return the fields that identify a matmul case in addition to its name."""
    return {
        "kind": kind,
        "dtype": spec.dtype,
        "m": spec.m,
        "k": spec.k,
        "n": spec.n,
        "out": spec.out or formats.FORMATS[spec.dtype].out,
        "scaling": _scaling(spec),
        "fast_accum": bool(spec.fast_accum) if spec.dtype == "fp8_e4m3" else None,
        "transpose_b": True,
        **more,
    }


def _scaling(spec: MatmulSpec) -> str | None:
    if spec.dtype == "fp8_e4m3":
        return spec.scaling or "tensorwise"
    return {"mxfp8": "1x32", "mxfp4": "1x32", "nvfp4": "1x16"}.get(spec.dtype)


class Matmuls:
    """The matmul cases of one session."""

    def __init__(self, session: Session, mode: Mode, data: str = "normal") -> None:
        self.session = session
        self.device = session.device
        self.mode = mode
        self.data = data
        self.on_gpu = self.device.info.kind in ("cuda", "rocm", "mps")
        self.timing = DEVICE_TIMING if self.on_gpu else HOST_TIMING
        self.burst_timing = BURST_TIMING if self.on_gpu else HOST_TIMING
        self.how_held = mode.hold if self.on_gpu else HOST_HOLD
        self.anchor_shape = ANCHOR if self.on_gpu else SMALL_ANCHOR

    def spec(self, dtype: str, shape: Shape) -> MatmulSpec:
        m, k, n = shape
        return MatmulSpec(dtype, m, k, n, data=self.data)

    # --- the figures of one dtype ------------------------------------------------------------------------------

    def dtype(self, dtype: str) -> None:
        """Measure anchor, search, burst, sustained and the format's variants, the most important first."""
        if self.anchor(dtype).status == UNSUPPORTED:
            return
        finalists = self.search(dtype)
        for shape in finalists[: self.mode.holds if dtype == "bf16" else 1]:
            self.sustained(dtype, shape)
        for shape in finalists[:BURSTS]:
            self.burst(dtype, shape)
        if dtype == "fp8_e4m3":
            self.fp8_variants()
        self.device.release()

    def anchor(self, dtype: str) -> Case:
        """Measure 8192³, comparable between machines and tools."""
        return self.blocks(self.spec(dtype, self.anchor_shape), "anchor", self.timing)

    def burst(self, dtype: str, shape: Shape) -> Case:
        """Measure from a cool, boosted clock: what a blog or a datasheet's marketing shows."""
        return self.blocks(self.spec(dtype, shape), "burst", self.burst_timing)

    def blocks(self, spec: MatmulSpec, kind: str, timing: Timing, case_id: str = "", **more: Param) -> Case:
        """Measure one shape by the method of timing.py."""
        return self.session.case(
            case_id or matmul_id(spec.dtype, kind, spec.m, spec.k, spec.n),
            "matmul",
            params(spec, kind, **more),
            1.0,
            lambda: self._outcome(self.device.matmul(spec), timing),
        )

    def _outcome(self, kernel: Kernel, timing: Timing) -> Measurement:
        return outcome(kernel, time_blocks(self.device, kernel, timing))

    def sustained(self, dtype: str, shape: Shape, kind: str = "sustained") -> Case:
        """Measure after the clock has settled at the power or thermal limit: what a training run gets."""
        spec, how = self.spec(dtype, shape), self.how_held

        def measure() -> Measurement:
            kernel = self.device.matmul(spec)
            held = hold(self.device, kernel, how, self.timing.warmup)
            rates = [kernel.work / seconds for seconds in held.seconds]
            steady = steadiness(rates)
            joules, work = held.watch.energy_j, kernel.work * held.calls * len(rates)
            return Measurement(
                unit=kernel.unit,
                values=rates,
                calls=held.calls,
                center=work / held.window_s,  # total work over total time, not the median of the windows
                figures={"flops": kernel.work, "joules_per_flop": None if joules is None else joules / work},
                sustained=Sustained(held.window_s, held.settle_s, steady.drift, steady.spread, steady.steady),
                watch=held.watch,
            )

        return self.session.case(
            matmul_id(dtype, kind, *shape),
            "matmul",
            params(spec, kind),
            how.window + how.settle_max,
            measure,
        )

    def shape(self, dtype: str, shape: Shape) -> None:
        """Measure a requested shape, in a burst and under sustained load."""
        case = self.blocks(self.spec(dtype, shape), "shape_burst", self.burst_timing)
        if case.status == OK:
            self.sustained(dtype, shape, kind="shape_sustained")

    def fp8_variants(self) -> None:
        """Measure at the anchor shape what fp8 recipes differ in: accumulation, output type, scaling."""
        base = self.spec("fp8_e4m3", self.anchor_shape)
        variants = {
            "fast_accum": replace(base, fast_accum=True),
            "out_fp8": replace(base, out="fp8_e4m3"),
            "rowwise": replace(base, scaling="rowwise"),
        }
        for name, spec in variants.items():
            self.blocks(spec, "variant", self.timing, f"matmul/fp8_e4m3/variant/{name}/{spec.shape}", variant=name)

    # --- the search --------------------------------------------------------------------------------------------

    def search(self, dtype: str) -> list[Shape]:
        """Return the fastest shapes under load, best first."""
        found: list[Shape] = []

        def measure() -> Measurement:
            nonlocal found
            sms = self.device.info.sm_count if self.on_gpu else None
            note = self.session.progress.note
            searcher = MatmulSearch(self.device, self.mode, dtype, self.data, self.anchor_shape, sms, note)
            ranked = searcher.run()
            found = [shape for shape, _ in ranked]
            return Measurement(
                unit="FLOP/s",
                values=[ranked[0][1]],
                figures={"x".join(map(str, shape)): rate for shape, rate in ranked},
                watch=searcher.watched,
                flags=searcher.flags(),
            )

        case = self.session.case(
            f"matmul/{dtype}/search",
            "matmul",
            {"kind": "search", "dtype": dtype, "walk": self.mode.walk},
            self.mode.first * 5000,  # five rounds of the race and the walk
            measure,
        )
        if case.status != OK:
            return [self.anchor_shape]
        # from the case and not from `found`: an earlier run or another rank may have measured it
        return [(int(m), int(k), int(n)) for m, k, n in (name.split("x") for name in case.figures)]

    # --- a model's own shapes ----------------------------------------------------------------------------------

    def model(
        self,
        dtype: str,
        name: str,
        tp: int,
        gemms: Sequence[ModelMatmul],
        attentions: Sequence[ModelAttention],
        tokens: int,
    ) -> None:
        """Measure every matmul and attention of a training step after the split, forward and backward."""
        shared: dict[str, Param] = {"model": name, "tp": tp, "tokens": tokens}
        self._model_matmuls(dtype, gemms, shared)
        if dtype in ("bf16", "fp16"):  # attention runs in 16 bits, whatever the matmuls around it do
            self._model_attention(dtype, attentions, shared)

    def _model_matmuls(self, dtype: str, gemms: Sequence[ModelMatmul], shared: dict[str, Param]) -> None:
        """Measure every matmul; shared: parameters of all cases."""
        name, tp, tokens = shared["model"], shared["tp"], shared["tokens"]
        for gemm in gemms:
            spec = MatmulSpec(dtype, gemm.m, gemm.k, gemm.n, data=self.data)

            def measure(spec: MatmulSpec = spec, gemm: ModelMatmul = gemm) -> Measurement:
                reason = formats.illegal(spec)
                if reason is not None:
                    raise Unsupported(reason)
                seen = self._outcome(self.device.matmul(spec), self.timing)
                return replace(seen, figures={"flops": float(spec.flops * gemm.count)})

            self.session.case(
                f"matmul/{dtype}/model/{name}/tp{tp}/{tokens}/{spec.shape}",
                "matmul",
                params(spec, "model", operation=gemm.name[:200], count=gemm.count, **shared),
                1.0,
                measure,
            )

    def _model_attention(self, dtype: str, attentions: Sequence[ModelAttention], shared: dict[str, Param]) -> None:
        """Measure every attention, forward and backward; shared: parameters of all cases."""
        name, tp, tokens = shared["model"], shared["tp"], shared["tokens"]
        for a in attentions:
            for direction, factor in (("forward", 1), ("backward", 2)):

                def attend(a: ModelAttention = a, direction: str = direction, factor: int = factor) -> Measurement:
                    seen = self._outcome(self.device.attention(dtype, a, direction == "backward"), self.timing)
                    return replace(seen, figures={"flops": float(a.flops * factor * a.count)})

                size = f"{a.sequences}x{a.heads}x{a.length}x{a.qk_dim}"
                self.session.case(
                    f"matmul/{dtype}/attention/{name}/tp{tp}/{tokens}/{direction}/{size}",
                    "matmul",
                    {
                        "kind": "attention",
                        "dtype": dtype,
                        "direction": direction,
                        "sequences": a.sequences,
                        "heads": a.heads,
                        "kv_heads": a.kv_heads,
                        "length": a.length,
                        "head_dim": a.qk_dim,
                        "count": a.count,
                        **shared,
                    },
                    1.0,
                    attend,
                )


def outcome(kernel: Kernel, timed: Timed) -> Measurement:
    """Return a kernel's rate in each block."""
    return Measurement(
        unit=kernel.unit,
        values=[kernel.work / seconds for seconds in timed.seconds],
        calls=timed.calls,
        launch_bound=timed.launch_bound,
        watch=timed.watch,
    )
