"""The benchmark's arithmetic and bookkeeping on a fake device with a fake clock: every figure here is exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.bench import formats, shapes, stats
from napkin.bench.device import Kernel, MatmulSpec
from napkin.bench.timing import Hold, Timing, hold, time_blocks, time_many
from napkin.inputs.profile_cases import DeviceInfo
from tests.fake_device import FakeDevice

# --- statistics ----------------------------------------------------------------------------------------------------


def test_quantiles_interpolate_between_order_statistics() -> None:
    values = [5.0, 1.0, 2.0, 4.0, 3.0]
    assert stats.median(values) == 3.0
    assert stats.quantile(values, 0.1) == pytest.approx(1.4)
    assert stats.quantile(values, 0.9) == pytest.approx(4.6)
    assert stats.quantile([7.0], 0.9) == 7.0


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_spread_is_ordered_and_ignores_order(values: list[float]) -> None:
    s = stats.spread(values)
    assert s.min <= s.p10 <= s.median <= s.p90 <= s.max
    assert stats.spread(sorted(values)).median == s.median


def test_outliers_are_counted_not_dropped() -> None:
    values = [1.0, 1.01, 0.99, 1.02, 0.98, 5.0]
    s = stats.spread(values)
    assert s.outliers == 1
    assert s.max == 5.0
    assert s.blocks == 6
    assert stats.outliers([1.0, 1.0, 1.0, 9.0]) == 0  # no deviation to measure against


def test_steadiness_and_noise() -> None:
    assert stats.steadiness([100.0] * 8).steady
    falling = stats.steadiness([100.0] * 4 + [98.0] * 4)
    assert falling.drift == pytest.approx(-0.02)
    assert not falling.steady
    assert not stats.steadiness([100, 88, 100, 100, 88, 100]).steady  # no drift, but a spread of 12 %
    assert stats.noisy([1.0] * 8 + [1.3] * 2)
    assert not stats.noisy([1.0] * 18 + [1.3] * 2)


# --- timing --------------------------------------------------------------------------------------------------------


def test_a_kernel_of_100_us_gets_blocks_of_20_calls_and_two_synchronizations() -> None:
    device = FakeDevice()
    timed = time_blocks(device, device.timed(lambda at: 100e-6), Timing())
    assert timed.calls == 20
    assert device.syncs == 2
    assert timed.seconds == pytest.approx([100e-6] * 20, rel=1e-12)
    assert device.launched == 3 + 5 + 20 * 20
    assert not timed.launch_bound


def test_operand_sets_are_cycled_in_order() -> None:
    device = FakeDevice()
    time_blocks(device, device.timed(lambda at: 1e-3, sets=3), Timing(blocks=2))
    assert device.sets_used == [i % 3 for i in range(len(device.sets_used))]


def test_small_operands_are_spread_over_more_than_twice_the_cache() -> None:
    device = FakeDevice()
    kernel = device.matmul(MatmulSpec("bf16", 1024, 1024, 1024))
    assert kernel.sets * 3 * 1024 * 1024 * 2 > 2 * device.info.l2_bytes  # type: ignore[operator]
    assert device.matmul(MatmulSpec("bf16", 8192, 8192, 8192)).sets == 1


def test_the_median_is_exact_when_the_clock_drifts() -> None:
    """A kernel that slows by 1 µs in every block of 2 ms: the median lies between the tenth and eleventh block."""
    device = FakeDevice()
    calls = [0]

    def seconds(at: float) -> float:
        calls[0] += 1
        block = max(0, (calls[0] - 9) // 2)  # 3 warm-up and 5 estimating calls come first; 2 calls a block
        return 1e-3 + block * 1e-6

    timed = time_blocks(device, device.timed(seconds), Timing())
    assert timed.calls == 2
    assert stats.median(timed.seconds) == pytest.approx(1e-3 + 9.5e-6, rel=1e-9)


def test_a_call_below_20_us_is_marked_launch_bound_where_it_cannot_be_captured() -> None:
    device = FakeDevice()
    assert time_blocks(device, device.timed(lambda at: 5e-6), Timing()).launch_bound


def test_a_captured_graph_is_timed_per_call() -> None:
    class Capturing(FakeDevice):
        def graph(self, kernel: Kernel, calls: int) -> Kernel | None:
            return self.timed(lambda at: calls * 4e-6, 1, kernel.work * calls)

    device = Capturing()
    timed = time_blocks(device, device.timed(lambda at: 9e-6), Timing())
    assert not timed.launch_bound
    assert timed.seconds == pytest.approx([4e-6] * 20)


def test_a_burst_rests_before_its_blocks() -> None:
    device = FakeDevice()
    start = device.now()
    time_blocks(device, device.timed(lambda at: 1e-3), Timing(blocks=5, idle=0.3))
    assert device.now() - start == pytest.approx(0.3 + 18e-3)  # 3 warm-up, 5 estimating, 5 blocks of 2 calls


def test_sustained_waits_for_the_clock_to_settle() -> None:
    """Boost for two seconds, then the power limit: the figure is the limit's, and the boost is in the settling."""
    device = FakeDevice()
    held = hold(device, device.timed(lambda at: 1e-3 if at < 2.0 else 1.25e-3), Hold())
    assert held.settle_s >= 3.0
    assert held.window_s >= 10.0
    assert held.seconds == pytest.approx([1.25e-3] * len(held.seconds))
    assert stats.steadiness([1 / s for s in held.seconds]).steady


def test_a_throttle_episode_is_not_steady() -> None:
    device = FakeDevice()
    held = hold(device, device.timed(lambda at: 2e-3 if 9 < at < 11 else 1e-3), Hold())
    assert not stats.steadiness([1 / s for s in held.seconds]).steady


def test_settling_gives_up_after_its_limit() -> None:
    device = FakeDevice()
    held = hold(device, device.timed(lambda at: 1e-3 * (1 + at / 10)), Hold())
    assert 20.0 <= held.settle_s < 23.0


def test_many_kernels_are_timed_with_one_synchronization() -> None:
    device = FakeDevice()
    kernels = [device.timed(lambda at, i=i: i * 1e-3) for i in (1, 2, 3)]  # type: ignore[misc]
    assert time_many(device, kernels, [4, 2, 1]) == pytest.approx([1e-3, 2e-3, 3e-3])
    assert device.syncs == 1
    assert device.launched == 3 + 7  # each first gets one untimed call


# --- shapes --------------------------------------------------------------------------------------------------------


def test_wave_layouts_of_132_sms() -> None:
    assert len(shapes.layouts(132)) == 70
    assert {(1536, 2816), (2816, 1536)} <= set(shapes.layouts(132))
    assert shapes.one_wave(132) == (1536, 2816)
    assert len(shapes.candidates(132)) == 633


@pytest.mark.parametrize("sms", [1, 7, 78, 84, 108, 114, 132, 144, 148, 160, 304])
def test_every_layout_fills_whole_waves_of_some_tile(sms: int) -> None:
    for m, n in shapes.layouts(sms):
        assert any(m % tm == 0 and n % tn == 0 and (m // tm) * (n // tn) % sms == 0 for tm, tn in shapes.TILES), (m, n)


def test_the_race_runs_in_thirds_with_tripled_time() -> None:
    rounds = []

    def measure(entrants: object, seconds: float) -> list[float]:
        listed = list(entrants)  # type: ignore[call-overload]
        rounds.append((len(listed), round(seconds, 6)))
        return [float(-abs(e - 300)) for e in listed]

    ranked = shapes.race(range(633), measure)
    assert rounds == [(633, 0.004), (211, 0.012), (70, 0.036), (23, 0.108), (7, 0.324)]
    assert sum(n * s for n, s in rounds) == pytest.approx(12.336)
    assert ranked[0][0] == 300
    assert len(ranked) == 6


def test_the_walk_climbs_to_a_peak_between_the_grids_depths() -> None:
    peak = 9216
    best, rate = shapes.walk((1536, 8192, 2816), 700.0 - 1.024, lambda s: 700.0 - abs(s[1] - peak) / 1000)
    assert best == (1536, peak, 2816)
    assert rate == 700.0


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (MatmulSpec("fp8_e4m3", 1, 16, 16), None),
        (MatmulSpec("fp8_e4m3", 16, 24, 16), "k to be a multiple of 16"),
        (MatmulSpec("fp8_e4m3", 16, 32, 8), "n to be a multiple of 16"),
        (MatmulSpec("int8", 16, 64, 64), "m above 16"),
        (MatmulSpec("int8", 17, 64, 64), None),
        (MatmulSpec("int8", 32, 60, 64), "k to be a multiple of 8"),
        (MatmulSpec("bf16", 1, 1, 1), None),
    ],
)
def test_shape_rules(spec: MatmulSpec, reason: str | None) -> None:
    found = formats.illegal(spec)
    assert (found is None) if reason is None else (found is not None and reason in found)


def cuda(major: int, minor: int) -> DeviceInfo:
    return DeviceInfo("cuda", "x", 1 << 30, compute_capability=(major, minor))


@pytest.mark.parametrize(
    ("info", "has"),
    [
        (cuda(7, 0), {"fp64", "fp32", "fp16"}),
        (cuda(7, 5), {"fp64", "fp32", "fp16", "int8"}),
        (cuda(8, 0), {"fp64", "fp32", "tf32", "fp16", "bf16", "int8"}),
        (cuda(8, 9), {"fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8_e4m3"}),
        (cuda(9, 0), {"fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8_e4m3"}),
        (cuda(10, 0), set(formats.FORMATS)),
        (DeviceInfo("rocm", "x", 1, arch="gfx90a"), {"fp64", "fp32", "fp16", "bf16", "int8"}),
        (DeviceInfo("rocm", "x", 1, arch="gfx942:sramecc+"), {"fp64", "fp32", "fp16", "bf16", "int8", "fp8_e4m3"}),
        (DeviceInfo("mps", "x", 1), {"fp32", "fp16", "bf16"}),
        (DeviceInfo("cpu", "x", 1), {"fp64", "fp32", "fp16", "bf16", "int8", "fp8_e4m3"}),
    ],
)
def test_which_device_has_which_format(info: DeviceInfo, has: set[str]) -> None:
    assert {key for key in formats.FORMATS if formats.unsupported(key, info) is None} == has
