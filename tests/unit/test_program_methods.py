"""The methods of mpi4py's that records of calls get their names from."""

from __future__ import annotations

from xupc.health.call_record import LIBRARY_BARRIER, CallRecord
from xupc.health.program_methods import ProgramMethods


def test_operations_of_a_method() -> None:
    """A method has the operations from its begin to its end, and no others."""
    methods, record = ProgramMethods(), CallRecord("allav_broadcast", [("root", "0")])
    methods.begin(4, "bcast")
    methods.begin(6, "")
    methods.begin(8, "Bcast")
    found = [methods.named(record, op).call for op in range(4, 11)]
    ours, objects, buffers = (f"{x}(root=0)" for x in ("allav_broadcast", "bcast", "Bcast"))
    assert found == [ours, objects, objects, ours, ours, buffers, buffers]
    assert record.name == "allav_broadcast"


def test_a_method_keeps_its_error() -> None:
    """The record under another name has the error of this thread."""
    methods, record = ProgramMethods(), CallRecord("allav_reduce")
    record.error = ValueError("wrong")
    methods.begin(0, "Reduce")
    assert methods.named(record, 1).error is record.error


def test_calls_that_the_core_makes() -> None:
    """Repeated ones have the names of all their methods."""
    methods = ProgramMethods()
    repeated = CallRecord("barrier")
    for method in ("Barrier", "barrier", "Barrier"):
        methods.repeats(method, repeated)
    assert methods.named(repeated, 1).name == "Barrier or barrier"
    methods.begin(1, "Scan")
    assert methods.named(repeated, 2).name == "Scan"


def test_a_barrier_of_mpi_has_no_value() -> None:
    methods, record = ProgramMethods(), CallRecord("barrier", [("value", "None")])
    methods.begin(0, "Barrier")
    assert methods.named(record, 1).call == "Barrier()"
    assert record.call == "barrier()"


def test_the_barrier_of_the_library() -> None:
    """No method of the program is the barrier after many calls."""
    methods, record = ProgramMethods(), CallRecord(LIBRARY_BARRIER)
    methods.begin(0, "Bcast")
    assert methods.named(record, 1) is record
