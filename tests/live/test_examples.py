"""The examples as real threads: any number of them, on one node and on several."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.launch import Result

BROKEN = "tests/live/programs/broken_examples.py"
OTHER_DATA = "tests/live/programs/examples_on_other_data.py"
ONCE = pytest.mark.once
PLACES = pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        (3, None),
        pytest.param(4, None, marks=ONCE),
        pytest.param(8, None, marks=ONCE),
        (4, "3,1"),
        pytest.param(8, "cyclic:3", marks=ONCE),
    ],
)
IS_SORT = "examples/is_sort.py"
POISSON = "examples/poisson.py"
LOOKUP_TABLE = "examples/lookup_table.py"
FFT = "examples/fft.py"
SAMPLE_SORT = "examples/sample_sort.py"
SOBEL = "examples/sobel.py"


def broken(live: Callable[..., Result], threads: int, *case: str) -> Result:
    """Run an example with a mistake, which it must notice."""
    result: Result = live(threads, BROKEN, args=case)
    assert "status 1\n" in result.stdout, result.report()
    return result


@PLACES
def test_integer_sort(live: Callable[..., Result], threads: int, nodes: str | None) -> None:
    result = live(threads, IS_SORT, nodes=nodes)
    assert "ranks                  50 of 50 right\n" in result.stdout
    assert "VERIFICATION SUCCESSFUL\n" in result.stdout
    crossed = re.search(r"^keys between nodes +(\S+) MB", result.stdout, re.MULTILINE)
    assert crossed
    assert (float(crossed[1]) > 0) == (nodes is not None)


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize(("threads", "nodes"), [(2, None), (8, None), (5, "2,3")])
def test_integer_sort_of_a_million(
    live: Callable[..., Result], threads: int, nodes: str | None
) -> None:
    assert "VERIFICATION SUCCESSFUL\n" in live(threads, IS_SORT, args=["W"], nodes=nodes).stdout


BAD_SORTS = ("a key", "the order")


@pytest.mark.once
@pytest.mark.parametrize("what", BAD_SORTS)
def test_a_bad_sort_is_noticed(live: Callable[..., Result], what: str) -> None:
    result = broken(live, 2, "integer_sort", what)
    assert "VERIFICATION FAILED\n" in result.stdout
    assert ("NOT SORTED" in result.stdout) == (what == "the order")


@PLACES
def test_poisson(live: Callable[..., Result], threads: int, nodes: str | None) -> None:
    result = live(threads, POISSON, args=["48"], nodes=nodes)
    assert result.stdout.endswith("\nthe solution is right\n")
    # Another number of threads rounds otherwise, which may take one iteration more or less.
    iterations = int(re.findall(r"^ *(\d+)   \d", result.stdout, re.MULTILINE)[-1])
    assert abs(iterations - 114) <= 1


@pytest.mark.once
@pytest.mark.parametrize(("threads", "nodes", "n"), [(1, None, "1"), (6, "4,2", "7")])
def test_poisson_on_a_small_grid(
    live: Callable[..., Result], threads: int, nodes: str | None, n: str
) -> None:
    result = live(threads, POISSON, args=[n], nodes=nodes)  # 7 rows: 2, 2, 2, 1, 0, 0
    assert result.stdout.endswith("\nthe solution is right\n")


@pytest.mark.once
def test_poisson_is_the_same_to_the_last_bit_on_any_nodes(live: Callable[..., Result]) -> None:
    bits = set()
    for nodes, algorithm in [(None, ""), ("1,3", "pull"), ("cyclic:2", "push")]:
        args = ["24", algorithm] if algorithm else ["24"]
        result = live(4, POISSON, args=args, nodes=nodes)
        bits.update(re.findall(r"to the last bit: (\S+)", result.stdout))
    assert len(bits) == 1


@pytest.mark.once
def test_a_wrong_solution_is_noticed(live: Callable[..., Result]) -> None:
    result = broken(live, 2, "solution")
    assert "THE SOLUTION IS WRONG\n" in result.stdout
    result = live(2, BROKEN, args=["exits"], via="xupc run", expect=1)
    assert result.stdout.endswith("THE SOLUTION IS WRONG\n")


@PLACES
def test_lookup_table(live: Callable[..., Result], threads: int, nodes: str | None) -> None:
    result = live(threads, LOOKUP_TABLE, args=["20000", "30000"], nodes=nodes)
    assert result.stdout.endswith("\nthe lookups are right\n")
    how_many = re.search(r"^tables in memory +(\d+) instead of (\d+)", result.stdout, re.MULTILINE)
    assert how_many
    expected = {None: 1, "3,1": 2, "cyclic:3": 3}[nodes]
    assert (int(how_many[1]), int(how_many[2])) == (expected, threads)


@pytest.mark.once
def test_a_wrong_table_is_noticed(live: Callable[..., Result]) -> None:
    result = broken(live, 2, "table")
    assert "THE LOOKUPS ARE WRONG\n" in result.stdout


@PLACES
def test_fourier_transform(live: Callable[..., Result], threads: int, nodes: str | None) -> None:
    result = live(threads, FFT, nodes=nodes)
    assert result.stdout.endswith("\nVERIFICATION SUCCESSFUL\n")
    sums = re.findall(r"^checksum \d +(\S+) ", result.stdout, re.MULTILINE)
    assert len(sums) == 6
    assert complex(sums[0]) == pytest.approx(554.6087004964 + 484.5363331978j, rel=1e-11)
    assert complex(sums[5]) == pytest.approx(554.2683411902 + 493.2597244941j, rel=1e-11)


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize(("threads", "nodes"), [(2, None), (7, "4,3")])
def test_a_larger_fourier_transform(
    live: Callable[..., Result], threads: int, nodes: str | None
) -> None:
    result = live(threads, FFT, args=["W"], nodes=nodes)
    assert result.stdout.endswith("\nVERIFICATION SUCCESSFUL\n")


@pytest.mark.once
@pytest.mark.parametrize(("threads", "nodes"), [(2, None), (7, None), (5, "1,4")])
def test_transforms_of_cubes_that_the_threads_do_not_divide(
    live: Callable[..., Result], threads: int, nodes: str | None
) -> None:
    live(threads, OTHER_DATA, args=["cubes"], nodes=nodes)


BAD_TRANSFORMS = ("the time step", "the exchange", "one value of the spectrum")


@pytest.mark.once
@pytest.mark.parametrize("what", BAD_TRANSFORMS)
def test_a_bad_transform_is_noticed(live: Callable[..., Result], what: str) -> None:
    result = broken(live, 2, "transform", what)
    assert "VERIFICATION FAILED\n" in result.stdout


@PLACES
def test_sample_sort(live: Callable[..., Result], threads: int, nodes: str | None) -> None:
    result = live(threads, SAMPLE_SORT, args=["50000"], nodes=nodes)
    assert result.stdout.endswith("\nthe sort is right\n")
    found = re.search(r"^imbalance +(\S+), then (\S+)$", result.stdout, re.MULTILINE)
    assert found
    assert float(found[1]) >= 0.75 * threads
    assert float(found[2]) < 1.08


@pytest.mark.once
@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (7, None), (6, "1,3,2")])
def test_sample_sort_of_any_keys(
    live: Callable[..., Result], threads: int, nodes: str | None
) -> None:
    live(threads, OTHER_DATA, args=["keys"], nodes=nodes)


BAD_SAMPLE_SORTS = ("NOT SORTED", "LOST OR CHANGED", "CHANGED")


@pytest.mark.once
@pytest.mark.parametrize("what", BAD_SAMPLE_SORTS)
def test_a_bad_sample_sort_is_noticed(live: Callable[..., Result], what: str) -> None:
    result = broken(live, 2, "sampled_sort", what)
    assert "THE SORT IS WRONG\n" in result.stdout
    assert what in result.stdout
    assert ("NOT SORTED" in result.stdout) == (what == "NOT SORTED")


@PLACES
def test_edges_in_a_picture(live: Callable[..., Result], threads: int, nodes: str | None) -> None:
    result = live(threads, SOBEL, args=["100"], nodes=nodes)  # 62 rows
    assert result.stdout.count("every edge equal to numpy's\n") == 3


@pytest.mark.once
@pytest.mark.parametrize("width", ["1", "7"])
def test_edges_in_a_small_picture(live: Callable[..., Result], width: str) -> None:
    """Some threads have no row, or a single one."""
    result = live(5, SOBEL, args=[width], nodes="2,3")
    assert result.stdout.count("every edge equal to numpy's\n") == 3


BAD_EDGES = ("no rows of neighbours", "no strongest edge")


@pytest.mark.once
@pytest.mark.parametrize("what", BAD_EDGES)
def test_bad_edges_are_noticed(live: Callable[..., Result], what: str) -> None:
    result = broken(live, 3, "edges", what)
    assert result.stdout.count("NOT EQUAL TO NUMPY'S\n") == 3
