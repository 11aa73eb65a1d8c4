"""Memory snapshots: read without executing anything, added up by hand."""

from __future__ import annotations

import contextlib
import json
import pathlib
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napkin.errors import NapkinError
from napkin.inputs.snapshot import read_snapshot
from napkin.inputs.snapshot_blocks import Stacks
from tests.conftest import Napkin

FORWARD = [{"name": "forward", "filename": "model.py", "line": 3}]
STEP = [{"name": "step", "filename": "/x/torch/optim/adamw.py", "line": 9}]
SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "total_size": 20_000,
            "blocks": [
                {"state": "active_allocated", "size": 1024, "requested_size": 1000, "frames": FORWARD},
                {"state": "active_allocated", "size": 2048, "requested_size": 2048, "frames": STEP},
                {"state": "inactive", "size": 16_928},
            ],
        }
    ],
    # walked backwards: 3072 now, 7072 before the free, 6048 before the allocation of 1024
    "device_traces": [
        [
            {"action": "alloc", "size": 4000},
            {"action": "alloc", "size": 1024},
            {"action": "free_requested", "size": 4000},
            {"action": "free_completed", "size": 4000},
        ]
    ],
}


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_snapshot_adds_up(tmp_path: pathlib.Path, form: str) -> None:
    path = tmp_path / f"snapshot.{form}"
    path.write_bytes(pickle.dumps(SNAPSHOT) if form == "pickle" else json.dumps(SNAPSHOT).encode())
    found = read_snapshot(str(path))
    assert (found.at_dump, found.requested, found.reserved) == (3072, 3048, 20_000)
    assert found.allocated == 3072 + 4000
    assert found.buckets == {"activations": 1024, "optimizer": 2048}


def test_the_allocator_s_maxima_are_enough(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "maxima.json"
    path.write_text('{"max_memory_allocated": 5000, "max_memory_reserved": 6000}')
    found = read_snapshot(str(path))
    assert (found.allocated, found.reserved, found.buckets) == (5000, 6000, None)


class Harm:
    """Would run when unpickled the usual way."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (open, ("harm-was-done", "w"))


def test_a_pickle_is_never_executed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "harm.pickle"
    path.write_bytes(pickle.dumps(Harm()))
    with pytest.raises(NapkinError, match="plain data alone"):
        read_snapshot(str(path))
    assert not (tmp_path / "harm-was-done").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04",
        b"\x80\x04]",
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"segments": 3}',
        b'{"segments": [3]}',
        b'{"segments": []}',
        b'{"segments": [{"total_size": -1, "blocks": []}]}',
        b'{"segments": [{"total_size": 1, "blocks": 3}]}',
        b'{"max_memory_allocated": "lots"}',
        b'{"segments": [{"device": 0, "total_size": 1, "blocks": []}, {"device": 1, "total_size": 1, "blocks": []}]}',
    ],
)
def test_what_is_no_snapshot_is_one_clear_line(tmp_path: pathlib.Path, data: bytes) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(data)
    with pytest.raises(NapkinError) as problem:
        read_snapshot(str(path))
    assert "bad.pickle" in problem.value.message
    assert problem.value.status == 2


def test_stacks_are_sorted_into_buckets() -> None:
    assert Stacks().bucket(STEP) == "optimizer"
    assert Stacks().bucket(FORWARD) == "activations"
    assert Stacks().bucket([{"name": "backward", "filename": "x.py"}, *FORWARD]) == "gradients"
    assert Stacks().bucket(None) == "unexplained"


# --- the moment of the peak, old files, other figures ---------------------------------------------------------------

BACKWARD = [{"name": "backward", "filename": "/x/torch/autograd/__init__.py", "line": 9}]
BUILT = [{"name": "__init__", "filename": "/x/torch/nn/modules/linear.py", "line": 9}]


def traced(events: list[dict[str, Any]], blocks: list[dict[str, Any]], total: int = 10_000) -> dict[str, Any]:
    segment = {"device": 0, "address": 0, "total_size": total, "blocks": blocks}
    return {"segments": [segment], "device_traces": [events]}


def written(tmp_path: pathlib.Path, content: dict[str, Any]) -> str:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content))
    return str(path)


def test_buckets_at_the_peak_of_the_trace(tmp_path: pathlib.Path) -> None:
    """Weights of 1000 stay; activations of 3000 go as a gradient of 500 comes; 4500 at most. What is allocated falls
    when a free is requested, not when the stream lets go."""
    events = [
        {"action": "alloc", "addr": 0, "size": 1000, "frames": BUILT},
        {"action": "segment_alloc", "addr": 0, "size": 8000, "frames": []},
        {"action": "alloc", "addr": 1000, "size": 3000, "frames": FORWARD},
        {"action": "alloc", "addr": 4000, "size": 500, "frames": []},  # autograd's own thread has no Python stack
        {"action": "free_requested", "addr": 1000, "size": 3000, "frames": []},
        {"action": "alloc", "addr": 4500, "size": 600, "frames": STEP},
        {"action": "free_completed", "addr": 1000, "size": 3000, "frames": []},
        {"action": "segment_free", "addr": 0, "size": 2000, "frames": []},
    ]
    blocks = [
        {"address": 0, "size": 1000, "state": "active_allocated", "frames": BUILT},
        {"address": 4000, "size": 500, "state": "active_allocated", "frames": []},
        {"address": 4500, "size": 600, "state": "active_allocated", "frames": STEP},
        {"address": 6000, "size": 700, "state": "active_awaiting_free", "frames": FORWARD},
    ]
    found = read_snapshot(written(tmp_path, traced(events, blocks)))
    assert (found.at_dump, found.allocated, found.reserved) == (2100, 4500, 12_000)
    assert found.at_peak == {"parameters": 1000, "activations": 3000, "gradients": 500}
    assert found.buckets == {"parameters": 1000, "gradients": 500, "optimizer": 600}


def test_blocks_of_older_torch_have_a_history(tmp_path: pathlib.Path) -> None:
    block = {"size": 512, "state": "active_allocated", "history": [{"addr": 0, "real_size": 500, "frames": STEP}]}
    found = read_snapshot(written(tmp_path, {"segments": [{"total_size": 2048, "blocks": [block]}]}))
    assert (found.at_dump, found.buckets, found.traced) == (512, {"optimizer": 512}, False)


def test_statistics_may_be_nested(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "stats.json"
    path.write_text(
        '{"allocated_bytes": {"all": {"peak": 5000, "current": 3}}, "reserved_bytes": {"all": {"peak": 6000}}}'
    )
    found = read_snapshot(str(path))
    assert (found.allocated, found.reserved) == (5000, 6000)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_of_pickle_is_read(tmp_path: pathlib.Path, protocol: int) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT, protocol=protocol))
    assert read_snapshot(str(path)).at_dump == 3072


# --- files that mean harm -------------------------------------------------------------------------------------------


def repeated() -> bytes:
    blocks = [{"size": 512, "state": "inactive"}] * 20_000
    return pickle.dumps({"segments": [{"device": 0, "total_size": 5, "blocks": blocks}] * 20_000})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x80\x02Nr\xff\xff\xff\x3f.", "more memory"),  # a place 2³⁰ of the memo
        (b"\x80\x02Np4000000000\n.", "more memory"),
        (b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"x.", "more memory"),  # a byte array of a terabyte
        (b"\x80\x04\x8d" + (2**62).to_bytes(8, "little") + b"x.", "more memory"),
        (b"\x80\x02\x8b" + (2**31 - 1).to_bytes(4, "little") + b"x.", "more memory"),
        (b"\x80\x02cposix\nsystem\n(S'true'\ntR.", "plain data alone"),
        (b"cposix\nsystem\n(S'true'\ntR.", "neither a pickle nor UTF-8 JSON|not JSON"),
        (b"(cposix\nsystem\nS'true'\no.", "plain data alone"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "plain data alone"),
        (b"\x80\x02\x82\x01.", "not a whole pickle"),  # a registered extension
        (b"\x80\x02P1\n.", "outside itself"),
        (b"\x80\x02K\x01Q.", "outside itself"),
        (b"\x80\x02" + b"(" * 100_000 + b".", "not a whole pickle"),
        (b"\x80\x04\x8c\x02\xed\xa0.", "not a whole pickle: what it holds is damaged"),  # no UTF-8
        (b"\x1f\x8b\x08\x00", "packed"),
        (repeated(), "repeats itself"),
        (pickle.dumps({"segments": [{"device": 0, "total_size": 10**5000, "blocks": []}]}), "not a number of bytes"),
        (pickle.dumps({"segments": [{"device": 10**30, "total_size": 1, "blocks": []}]}), "not a number of bytes"),
        (pickle.dumps({"max_memory_allocated": True}), "not a number of bytes"),
    ],
)
def test_a_hostile_file_is_one_clear_line_in_little_memory(tmp_path: pathlib.Path, data: bytes, says: str) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(data)
    with pytest.raises(NapkinError, match=says) as problem:
        read_snapshot(str(path))
    assert problem.value.status == 2
    assert len(problem.value.message) < 400


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any byte changed, cut or put in: an answer or one NapkinError, nothing else."""
    whole = bytearray(pickle.dumps(SNAPSHOT) if data.draw(st.booleans()) else json.dumps(SNAPSHOT).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        how = data.draw(st.sampled_from(("change", "cut", "put")))
        if how == "change":
            whole[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del whole[at : at + data.draw(st.integers(1, 20))]
        else:
            whole[at:at] = data.draw(st.binary(max_size=12))
        if not whole:
            break
    path = tmp_path_factory.mktemp("damaged") / "snapshot"
    path.write_bytes(bytes(whole))
    with contextlib.suppress(NapkinError):
        found = read_snapshot(str(path))
        assert found.allocated is None or found.allocated >= 0


# --- streams --------------------------------------------------------------------------------------------------------


def large(events: int) -> dict[str, Any]:
    """A trace of a loop that holds 1,000 blocks of 512 bytes at most; stacks as torch shares them."""
    stacks = [[{"name": name, "filename": "model.py", "line": n} for n in range(5)] for name in ("forward", "x")]
    trace: list[dict[str, Any]] = []
    for at in range(events // 3):
        one = {"addr": 512 * (at % 1000), "size": 512, "stream": 0, "frames": stacks[at % 2]}
        trace.append({"action": "alloc", **one})
        if at >= 999:
            old = {"addr": 512 * ((at + 1) % 1000), "size": 512, "stream": 0, "frames": stacks[0]}
            trace += [{"action": word, **old} for word in ("free_requested", "free_completed")]
    blocks = [{"address": 512 * at, "size": 512, "state": "active_allocated", "frames": []} for at in range(999)]
    return {"segments": [{"device": 0, "address": 0, "total_size": 10**6, "blocks": blocks}], "device_traces": [trace]}


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.slow
def test_a_long_trace_takes_the_memory_of_a_short_one(tmp_path: pathlib.Path, form: str) -> None:
    """The events are read one by one: what reading holds at most does not grow with them."""
    import tracemalloc

    held = []
    for events in (4_000, 12_000):
        path = tmp_path / f"snapshot{events}"
        content = large(events)
        path.write_bytes(pickle.dumps(content) if form == "pickle" else json.dumps(content).encode())
        del content
        tracemalloc.start()
        found = read_snapshot(str(path))
        held.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (found.at_dump, found.allocated) == (999 * 512, 1000 * 512)
        assert found.at_peak == {"activations": 500 * 512, "unexplained": 500 * 512}
    assert held[1] < held[0] + 2**20


def test_a_pipe_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys
    from types import SimpleNamespace

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(SNAPSHOT).encode())))
    assert read_snapshot("-").at_dump == 3072


def test_events_of_odd_types_are_not_events(tmp_path: pathlib.Path) -> None:
    odd: list[Any] = [[1], {}, None, 5]
    events: list[dict[str, Any]] = [{"action": one, "addr": one, "size": 1, "frames": one} for one in odd]
    found = read_snapshot(
        written(tmp_path, traced([*events, {"action": "alloc", "addr": {}, "size": 3, "frames": 5}], []))
    )
    assert (found.allocated, found.at_dump, found.traced) == (0, 0, True)


def test_two_devices_are_summed_separately(tmp_path: pathlib.Path) -> None:
    """The second device's trace: 100 and 300, of which 100 goes; 250 are there at the end in blocks of 300."""
    block = {"address": 7, "size": 300, "requested_size": 250, "state": "active_allocated", "frames": FORWARD}
    second = [
        {"action": "alloc", "addr": 1, "size": 100},
        {"action": "alloc", "addr": 7, "size": 300, "frames": FORWARD},
        {"action": "free_requested", "addr": 1, "size": 100},
    ]
    content = {
        "device_traces": [[{"action": "alloc", "addr": 5, "size": 9}], second],
        "segments": [
            {"device": 0, "total_size": 512, "blocks": []},
            {"device": 1, "total_size": 600, "blocks": [block]},
        ],
    }
    for protocol in range(6):
        path = tmp_path / f"snapshot{protocol}"
        path.write_bytes(pickle.dumps(content, protocol=protocol))
        found = read_snapshot(str(path), 1)
        assert (found.at_dump, found.requested, found.reserved, found.allocated) == (300, 250, 600, 400)
        assert found.at_peak == {"activations": 300, "gradients": 100}


STEP_OF_8B = "memory llama3-8b --gpus 8 --zero 3 --seq 4096"


def test_a_size_that_may_be_any_figure_is_compared_with_each(napkin: Napkin) -> None:
    """max_memory_allocated, max_memory_reserved and nvidia-smi are three figures, 9 GiB apart here; a size alone is
    none of them until it says which."""
    predicted = napkin(f"{STEP_OF_8B} --json").values
    for name in ("allocated", "reserved", "used"):
        size = f"{predicted[f'memory/{name}'] / 2**30:.4f}GiB"
        open_ended = napkin(f"{STEP_OF_8B} --measured {size} --json")
        errors = {row["what"]: row["error"] for row in open_ended.data["seen"]}
        assert errors[f"if {name}"] == pytest.approx(0, abs=1e-5)
        assert sum(abs(error) > 0.01 for error in errors.values()) == 2
        taken = [open_ended.values[f"seen/{one}"] for one in ("allocated", "reserved", "used")]
        assert taken == pytest.approx([predicted[f"memory/{name}"]] * 3, rel=1e-5)
        said = napkin(f"{STEP_OF_8B} --measured {size}").out
        assert f"--measured allocated={size}, reserved={size} or used={size}" in " ".join(said.split())
        stated = napkin(f"{STEP_OF_8B} --measured {name}={size} --json")
        assert [row["what"] for row in stated.data["seen"]] == [f"largest {name}"]
        assert set(stated.values) & {f"seen/{one}" for one in ("allocated", "reserved", "used")} == {f"seen/{name}"}


@pytest.mark.parametrize(
    ("option", "figure"),
    [("--max-memory-allocated", "allocated"), ("--max-memory-reserved", "reserved"), ("--nvidia-smi", "used")],
)
def test_the_name_of_a_figure_states_it(napkin: Napkin, option: str, figure: str) -> None:
    found = napkin(f"{STEP_OF_8B} {option} 50GiB --json")
    assert found.values == napkin(f"{STEP_OF_8B} --snapshot {figure}=50GiB --json").values


def test_a_card_cannot_have_held_more_than_its_memory(napkin: Napkin) -> None:
    """The accelerator bounds what was measured, and what the allocator caches before it returns blocks."""
    refused = napkin(f"{STEP_OF_8B} --measured 60GiB --hardware rtx-4090")
    assert refused.status == 2
    assert "above the" in refused.err
    assert "RTX 4090" in refused.err
    alone = "memory llama3-8b --recompute full --seq 8192 --gpus 3 --zero 3"
    free, bounded = (napkin(f"{alone} {card} --measured 60GiB --json").values for card in ("", "--hardware h100"))
    assert bounded["memory/used"] == napkin(f"{alone} --hardware h100 --json").values["memory/used"]
    assert bounded["memory/allocated"] == pytest.approx(free["memory/allocated"], rel=0.01)
    assert napkin(f"{STEP_OF_8B} --measured used=fast").status == 2


@pytest.mark.parametrize("figures", ["reserved=60GiB,cached=61GiB", "used=60GiB,61GiB", "used=60GiB,"])
def test_a_figure_without_a_known_name_is_rejected(napkin: Napkin, figures: str) -> None:
    refused = napkin(f"{STEP_OF_8B} --measured {figures}")
    assert refused.status == 2
    assert "is not a figure of allocated, reserved, used" in refused.err


@pytest.mark.parametrize(
    ("card", "figure", "status"), [("h100", 79.6, 0), ("h100", 80, 2), ("a100", 80, 0), ("a100", 81, 2)]
)
def test_nvidia_smi_counts_what_the_driver_keeps(napkin: Napkin, card: str, figure: float, status: int) -> None:
    """An H100 has 81,559 MiB by nvidia-smi (79.65 GiB), of which torch gets 79.19 GiB; of an A100 torch gets 79.25."""
    assert napkin(f"{STEP_OF_8B} --hardware {card} --measured used={figure}GiB").status == status
