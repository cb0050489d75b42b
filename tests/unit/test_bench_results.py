"""Files of results: written whole, read back the same, and refused with the place that is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from xupc.bench.results import AGAIN, OURS, PEER, Candidate, Cell, Job, Launch, Result


def result() -> Result:
    ours = Candidate("xupc", OURS, "all_broadcast(...)", "multicore", 96, [[5, 6], []], [[], [1]])
    again = Candidate("xupc again", AGAIN, "all_broadcast(...)", ns=[[5], [7]], wrong=[[], []])
    peer = Candidate("mpi4py", PEER, "comm.Bcast", ns=[[9]], wrong=[[]])
    cell = Cell(
        "all_broadcast", 8, 16, root="rotated", sync="mysync", candidates=[ours, again, peer]
    )
    about = {"mpi": "MPICH 5.0", "cores": 2, "oversubscribed": False}
    launch = Launch(1, "2026-11-21T00:00:00Z", 1.5, [0.1, 0.2], 7)
    job = Job(
        2, [[0], [1]], ["a", "b"], about, {"kind": "offsets"}, {"wire rate": 1e8}, [launch], [cell]
    )
    return Result(["xupc", "bench"], "2026-11-21T00:00:00Z", False, ["interrupted"], [job])


@pytest.mark.parametrize("name", ["r.json", "r.json.gz"])
def test_read_back_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    result().save(path)
    assert Result.load(path) == result()
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_written_where_a_link_leads_and_a_device_stays_one(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name, target in (("r.json", folder / "kept.json"), ("nothing.json", Path("/dev/null"))):
        link = tmp_path / name
        link.symlink_to(target)
        result().save(link)
        assert link.is_symlink()
    assert Result.load(folder / "kept.json") == result()
    assert Path("/dev/null").is_char_device()


def test_words(tmp_path: Path) -> None:
    job = result().jobs[0]
    assert job.shape == "2 threads on 2 nodes"
    assert job.cells[0].title == "all_broadcast (mysync, root rotated)"
    assert Cell("barrier", 0, 0).title == "barrier"
    assert job.cells[0].candidate("mpi4py").kind == PEER
    assert job.cells[0].candidate("PULL") is None
    assert [c.name for c in job.cells[0].of_kind(OURS)] == ["xupc"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format="x"), "not a result of xupc bench"),
        (lambda d: d.update(version=True), "version True, expected 1"),
        (lambda d: d["jobs"][0].update(nodes=[]), "nodes: expected each of"),
        (lambda d: d["jobs"][0].update(nodes=[[0], [0]]), "nodes: expected each of"),
        (lambda d: d["jobs"][0].update(threads=1 << 64), "nodes: expected each of 18446744073709"),
        (lambda d: d["jobs"][0].update(threads=1 << 36), "nodes: expected each of 68719476736"),
        (lambda d: d["jobs"][0]["cells"][0]["candidates"][0].update(ns=[[10**400]]), "too long"),
        (lambda d: d.update(version=3), "version 3, expected 1 or 2"),
        (lambda d: d.pop("created"), "result: 'created' is missing"),
        (lambda d: d.update(more=1), "result: 'more' is not known"),
        (lambda d: d.update(jobs={}), "result.jobs: '{}' is no list"),
        (lambda d: d["jobs"][0].update(threads="2"), "result.jobs[0].threads: '2' is no int"),
        (lambda d: d["jobs"][0].update(threads=True), "threads: 'True' is no int"),
        (
            lambda d: d["jobs"][0]["cells"][0]["candidates"][1].update(ns=[[1, 2.5]]),
            "result.jobs[0].cells[0].candidates[1].ns[0]: '[1, 2.5]' is no list",
        ),
        (lambda d: d["jobs"][0].update(cells=[3]), "result.jobs[0].cells[0]: expected an object"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, change, words: str) -> None:
    path = tmp_path / "r.json"
    result().save(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError) as caught:
        Result.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", gzip.compress(b"{}", mtime=0)[:9]])
def test_what_is_no_result(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"r\.json: "):
        Result.load(path)
    with pytest.raises(ValueError, match=r"there is no file .*none\.json"):
        Result.load(tmp_path / "none.json")
