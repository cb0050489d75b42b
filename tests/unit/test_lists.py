"""What lists of the `_v` and `_x` forms hold, and when it counts as the same."""

from __future__ import annotations

import numpy as np
import pytest

from xupc.api.block_addresses import Numbers
from xupc.api.list_arguments import contents


def test_arrays_of_objects_are_compared_by_value() -> None:
    """Their bytes are addresses: another object may have the address of one that is gone."""
    for shape in (4,), (2, 2):
        lists = [np.array([10**6 + i for i in range(4)], object).reshape(shape) for _ in range(2)]
        assert contents(lists[0]) == contents(lists[1])
        before = contents(lists[0])
        lists[0][0] = None
        assert contents(lists[0]) != before


@pytest.mark.parametrize("kind", [list, tuple, lambda x: np.array(x, object)])
def test_only_entries_that_are_needed_are_looked_at(kind) -> None:
    given = Numbers("ddisp", kind([None, np.int32(8), "text", 1 << 50, 5]))
    given.prepare("call", 5)
    assert given.take("call", [4, 1, 4]).tolist() == [5, 8, 5]
    assert given.texts() == ["None", "8", "'text'", str(1 << 50), "5"]
    for k, error, words in (
        (0, TypeError, r"call: ddisp\[0\]: expected an int, got None"),
        (2, TypeError, r"call: ddisp\[2\]: .*text"),
        (3, ValueError, r"call: ddisp\[3\]: .*44 bits"),
    ):
        with pytest.raises(error, match=words):
            given.take("call", [1, k])
    with pytest.raises(TypeError, match=r"ddisp\[0\]"):
        given.prepare_all("call", 5)
