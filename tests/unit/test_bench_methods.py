"""`xupc bench --api mpi4py`: which methods are measured, and what results hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xupc.bench.methods import DROP_IN, METHODS, XUPC, chosen
from xupc.bench.results import Cell, Job, Result
from xupc.bench.settings import Settings, cases
from xupc.mpi.methods import TAKEN, names

# methods of mpi4py that xupc carries, but whose work no call of xupc does
OTHERS = {"Reduce_scatter", "barrier"}


def test_every_method_that_has_a_collective() -> None:
    """All blocking methods but neighbourhoods are measured."""
    taken = {name for name in names(TAKEN) if not name.startswith(("I", "Neighbor"))}
    assert set(METHODS) == taken - OTHERS


def test_names() -> None:
    """A name is a method, MPI's name, or a collective. The default is the usual ones."""
    found = chosen(Settings(), DROP_IN, ["Bcast", "bcast", "allav_broadcast", "mpi_gatherv"])
    assert found.collectives == ("allav_broadcast", "allv_broadcast", "allav_gather_v")
    assert found.api == DROP_IN
    assert found.algorithms == ("auto",)
    usual = chosen(Settings(), DROP_IN, []).collectives
    assert usual[:2] == ("allav_broadcast", "allav_scatter")
    assert usual[-1] == "barrier"
    assert chosen(Settings(), XUPC, ["bcast"]).collectives == ("allav_broadcast",)


def test_types_without_an_operation_of_mpi() -> None:
    """There is no cell if MPI does not define the operation."""
    settings = Settings(dtypes=("float64", "bool"), ops=("ADD", "LOGOR"), sizes=(8,))
    through = chosen(settings, DROP_IN, ["Allreduce"])
    assert {(c.dtype, c.op) for c in cases(through)} == {("float64", "ADD"), ("bool", "LOGOR")}
    own = chosen(settings, XUPC, ["Allreduce"])
    assert ("bool", "ADD") in {(c.dtype, c.op) for c in cases(own)}


@pytest.mark.parametrize("api", [XUPC, DROP_IN])
def test_files(tmp_path: Path, api: str) -> None:
    """A file holds the interface that was measured. In an old file it is xupc's."""
    file = tmp_path / "r.json"
    cell = Cell("allav_broadcast", 8, 8, api=api)
    Result(["xupc"], "now", jobs=[Job(1, [[0]], cells=[cell])]).save(file)
    (kept,) = json.loads(file.read_text())["jobs"][0]["cells"]
    assert kept.get("api", "none") == ("none" if api == XUPC else api)
    (found,) = Result.load(file).jobs[0].cells
    assert found.api == api
    assert found.key == cell.key
    assert ("xupc.Comm" in found.title) == (api == DROP_IN)


def test_cells_of_two_interfaces_are_two() -> None:
    """Launches of one are not added to those of the other."""
    assert Cell("barrier", 0, 0).key != Cell("barrier", 0, 0, api=DROP_IN).key
