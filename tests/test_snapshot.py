"""Memory snapshots: read without executing anything, added up by hand."""

from __future__ import annotations

import json
import pickle

import pytest

from napkin.errors import NapkinError
from napkin.inputs.snapshot import bucket_of, read_snapshot

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
def test_a_snapshot_adds_up(tmp_path, form):
    path = tmp_path / f"snapshot.{form}"
    path.write_bytes(pickle.dumps(SNAPSHOT) if form == "pickle" else json.dumps(SNAPSHOT).encode())
    found = read_snapshot(str(path))
    assert (found.at_dump, found.requested, found.reserved) == (3072, 3048, 20_000)
    assert found.allocated == 3072 + 4000
    assert found.buckets == {"activations": 1024, "optimizer": 2048}


def test_the_allocator_s_maxima_are_enough(tmp_path):
    path = tmp_path / "maxima.json"
    path.write_text('{"max_memory_allocated": 5000, "max_memory_reserved": 6000}')
    found = read_snapshot(str(path))
    assert (found.allocated, found.reserved, found.buckets) == (5000, 6000, None)


class Harm:
    """Would run when unpickled the usual way."""

    def __reduce__(self):
        return (open, ("harm-was-done", "w"))


def test_a_pickle_is_never_executed(tmp_path, monkeypatch):
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
def test_what_is_no_snapshot_is_one_clear_line(tmp_path, data):
    path = tmp_path / "bad.pickle"
    path.write_bytes(data)
    with pytest.raises(NapkinError) as problem:
        read_snapshot(str(path))
    assert "bad.pickle" in problem.value.message
    assert problem.value.status == 2


def test_stacks_are_told_apart():
    assert bucket_of(STEP) == "optimizer"
    assert bucket_of(FORWARD) == "activations"
    assert bucket_of([{"name": "backward", "filename": "x.py"}, *FORWARD]) == "gradients"
    assert bucket_of(None) == "unexplained"
