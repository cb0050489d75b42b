"""The `_v` and `_x` forms, simulated: any lists, no race, no deadlock, every byte right."""

from __future__ import annotations

import pytest
from simulated.matrix import SYNCS, TUNINGS
from simulated.transfers import ENTRIES, NAMES, Case, cases
from support.soak import FULL_MATRIX, amount, seed, share_of

from xupc.algorithms.registry import Entry, find
from xupc.algorithms.transfer_lists import COLLECTIVES
from xupc.flags import ALGORITHM_NAMES

PER_PLACEMENT = amount(2, 3)
SCHEDULES = amount(2, 4)

EVERY_ENTRY = pytest.mark.parametrize(
    "entry", ENTRIES, ids=[f"{e.collective}-{e.name}" for e in ENTRIES]
)


@pytest.mark.soak
@EVERY_ENTRY
def test_matrix(entry: Entry) -> None:
    """Threads x placements, sync modes and tunings sampled."""
    chosen = list(cases(entry, None if FULL_MATRIX else PER_PLACEMENT, seed()))
    for case in chosen if FULL_MATRIX else share_of(chosen):
        case.run()


@pytest.mark.soak
@EVERY_ENTRY
def test_right_under_every_schedule(entry: Entry) -> None:
    """The same verdict and bytes under random schedules."""
    for i, sync in share_of([*enumerate(SYNCS)]):
        case = Case(entry, (0, 1, 0, 1, 2, 2), sync, list(TUNINGS)[i % len(TUNINGS)], 17, i)
        for schedule in range(SCHEDULES):
            case.run(schedule)


def test_both_forms_move_alike() -> None:
    """A `_v` form is its `_x` form with the places worked out from displacements."""
    assert {f"{name}_{form}" for name in COLLECTIVES for form in "vx"} == NAMES
    for name in COLLECTIVES:
        for flag in ALGORITHM_NAMES:
            both = [find(f"{name}_{form}", flag).variants for form in "vx"]
            forms = [[(v.label, v.function) for v in variants] for variants in both]
            assert forms[0] == forms[1]
