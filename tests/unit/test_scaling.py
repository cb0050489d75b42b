"""Prices on large shapes from those on smaller ones: formulas, and plans that can still be run."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from unit.test_predict import call_on

from xupc.algorithms import registry
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import Clock, run
from xupc.plan.plan import Plan
from xupc.plan.steps import BlockRef, Copy, Ranks, Signal, Wait
from xupc.predict import machine_file, scaling
from xupc.predict.candidates import Question, priced
from xupc.predict.price import programs_of, steps_of, work_of
from xupc.predict.scaling import EXACT, Measured, Shape, TooLarge, predict
from xupc.topology.tree import Tree
from xupc.tuning.selection import registered_name
from xupc.tuning.selection_file import built_in

DEFAULT = machine_file.find("default")
Formula = Callable[[int, int], float]


def asked(collective: str, nodes: int, threads: int, nbytes: int) -> Question:
    shape = f"{nodes}x{threads}"
    return Question(collective, nbytes, shape, nodes * threads, "mpich", "fabric")


class Formulas:
    """Prices by a formula; it keeps the shapes that were priced."""

    def __init__(self, time: Formula, work: Formula = lambda n, t: n * t) -> None:
        self.time = time
        self.work = work
        self.priced: list[Shape] = []

    def measure(self, shape: Shape) -> Measured:
        self.priced.append(shape)
        return Measured(float(self.time(*shape)))

    def predict(self, nodes: int, threads: int) -> scaling.Prediction:
        return predict((nodes, threads), self.measure, lambda shape: int(self.work(*shape)))


# --- formulas -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formula",
    [
        lambda n, t: 500 + 90 * math.ceil(math.log2(n)) + 7 * t,
        lambda n, t: 100 + 30 * n + 2 * t * t,
        lambda n, t: 3 * n * t * t,
        lambda n, t: 40 * math.ceil(math.log2(n)) * t,
    ],
)
@pytest.mark.parametrize("shape", [(10_000, 128), (1000, 4), (300, 3)])
def test_sums_and_products_are_found(formula: Formula, shape: Shape) -> None:
    found = Formulas(formula).predict(*shape)
    assert found.time == pytest.approx(formula(*shape), rel=1e-6)
    assert found.error < 1e-6


def test_small_shapes_are_not_predicted() -> None:
    found = Formulas(lambda n, t: n * n * t).predict(EXACT // 4, 4)
    assert (found.time, found.error, found.how) == (EXACT // 4 * EXACT, 0.0, "")
    assert found.sample == (EXACT // 4, 4)


def test_an_odd_growth_shows_as_an_error() -> None:
    assert Formulas(lambda n, t: n * n + t).predict(10_000, 128).error > 0.3
    mixed = Formulas(lambda n, t: n * n * t + n * t * t)
    assert mixed.predict(10_000, 4).error > 0.3


def test_long_plans_are_left_out() -> None:
    long = Formulas(lambda n, t: 100.0 * n, lambda n, t: n**3)
    assert long.predict(10_000, 4).time == pytest.approx(1e6, rel=0.01)
    assert max(n for n, _ in long.priced) == 32  # 32 ** 3 is the most work on a shape
    with pytest.raises(TooLarge):
        Formulas(lambda n, t: 1.0, lambda n, t: 1 << 20).predict(10_000, 128)


@pytest.mark.parametrize("formula", [lambda n, t: 3 * (n - 1) * t * t, lambda n, t: 40 * (n - 1)])
def test_long_plans_on_four_nodes_are_replaced_by_those_on_two(formula: Formula) -> None:
    found = Formulas(formula, lambda n, t: 1 << 17 if n >= 4 and t > 4 else n * t)
    assert found.predict(1000, 64).time == pytest.approx(formula(1000, 64), rel=1e-6)
    assert found.predict(1000, 64).error < 1e-6
    assert {n for n, t in found.priced if t > 4} == {2}
    with pytest.raises(TooLarge):
        Formulas(formula, lambda n, t: 1 << 17 if t > 4 else n * t).predict(1000, 64)


def test_a_long_exchange_on_many_nodes_has_a_price() -> None:
    """A node sends a block of each of its threads to each thread elsewhere, over one link."""
    question = Question("all_exchange", 1 << 20, "1000x64", 64_000, "mpich", "tcp")
    machine = machine_file.find("gigabit")
    found = priced(question, "multicore:rounds", machine, built_in())
    assert found.missing == ""
    assert found.traffic.busiest == 64 * 64 * 999 << 20
    assert found.time == pytest.approx(found.traffic.busiest / machine.rates().wire, rel=0.02)
    assert found.high < 1.1 * found.time


def test_long_plans_of_many_threads_are_left_out() -> None:
    """What more threads add follows from up to 16 of them, by its own terms."""
    long = Formulas(lambda n, t: 10 * n + 5 * t + 3 * t * t, lambda n, t: t**3 * n * 2)
    found = long.predict(1000, 128)
    assert found.time == pytest.approx(long.time(1000, 128), rel=1e-6)
    assert max(t for _, t in long.priced) <= 16
    assert found.how.count("threads^2") == 1


def test_few_numbers_of_nodes_have_others_between() -> None:
    long = Formulas(lambda n, t: 7 + 3 * n, lambda n, t: n**4)
    assert long.predict(10_000, 2).time == pytest.approx(30_007, rel=1e-6)
    assert sorted({n for n, _ in long.priced}) == [2, 3, 4, 6, 8, 12]


def test_two_nodes_may_have_a_schedule_of_their_own() -> None:
    """As those of a binary tree of long blocks: two nodes take half the time of four."""
    tree = Formulas(lambda n, t: 9000.0 if n == 2 else 17_000 + 400 * math.ceil(math.log2(n)))
    found = tree.predict(10_000, 2)
    assert found.time == pytest.approx(tree.time(10_000, 2), rel=1e-6)
    assert found.error < 1e-6


def test_a_line_that_fits_well_is_not_followed_further() -> None:
    linear, odd = Formulas(lambda n, t: 7 + 3 * n), Formulas(lambda n, t: n**1.5)
    linear.predict(10_000, 2)
    odd.predict(10_000, 2)
    assert max(n for n, _ in linear.priced) == 32
    assert max(n for n, _ in odd.priced) == 256


def test_a_shape_with_long_plans_is_predicted_too() -> None:
    long = Formulas(lambda n, t: 10 * n, lambda n, t: n * t * 500)
    found = long.predict(64, 4)
    assert found.time == pytest.approx(640, rel=1e-6)
    assert found.how
    assert (64, 4) not in long.priced


def test_shapes_that_a_variant_cannot_have_are_left_out() -> None:
    def work(nodes: int, threads: int) -> int:
        if nodes < 4:
            raise TooLarge
        return nodes * threads

    few = Formulas(lambda n, t: 5 * n, work)
    assert few.predict(1000, 2).time == pytest.approx(5000, rel=1e-6)
    assert min(n for n, _ in few.priced) == 4


# --- plans --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["multicore:binomial", "multicore:chain", "multicore:star"])
def test_a_predicted_broadcast_is_that_of_its_plans(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """512 threads predicted from at most 128 are as if their plans ran."""
    question = asked("all_broadcast", 64, 8, 64)
    exact = priced(question, name, DEFAULT, built_in())
    monkeypatch.setattr(scaling, "EXACT", 128)
    found = priced(question, name, DEFAULT, built_in())
    assert exact.how == "" != found.how
    assert found.time == pytest.approx(exact.time, rel=0.02)
    assert found.traffic == exact.traffic
    assert found.low < found.time < found.high


@pytest.mark.parametrize(
    ("collective", "name", "messages", "busiest"),
    [
        ("all_broadcast", "multicore:star", lambda n, t: n - 1, lambda n, t: (n - 1) * 64),
        ("all_broadcast", "push", lambda n, t: (n - 1) * t, lambda n, t: (n - 1) * t * 64),
        ("all_exchange", "push",
         lambda n, t: n * (n - 1) * t * t, lambda n, t: (n - 1) * t * t * 64),
    ],
)  # fmt: skip
def test_the_traffic_of_large_shapes(
    collective: str, name: str, messages: Formula, busiest: Formula,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    nodes, threads = 600, 4
    monkeypatch.setattr(scaling, "EXACT", 64)
    found = priced(asked(collective, nodes, threads, 64), name, DEFAULT, built_in())
    assert found.how
    assert found.traffic.messages == pytest.approx(messages(nodes, threads), rel=1e-6)
    assert found.traffic.busiest == pytest.approx(busiest(nodes, threads), rel=1e-6)


@pytest.mark.parametrize(
    ("collective", "nbytes", "shape"),
    [("all_broadcast", 1 << 18, (16, 2)), ("all_gather_all", 1 << 15, (5, 4)),
     ("all_reduce_mpi_all", 8, (1, 8)), ("all_exchange", 512, (2, 3))],
)  # fmt: skip
def test_the_work_is_estimated_from_few_plans(collective: str, nbytes: int, shape: Shape) -> None:
    """It is at least the steps of all threads, up to a factor of 2, and known without all plans."""
    call = call_on(shape, collective, nbytes)
    for entry in registry.registered(registered_name(collective)):
        for variant in entry.variants:
            if variant.can_run(call):
                steps = steps_of(programs_of(variant, call))
                work = work_of(variant, call, 1 << 30)
                assert work >= steps / 2, variant.name
                assert work_of(variant, call, 1) >= 2, variant.name


def test_a_thread_that_waits_for_many_reads_each_signal_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thread k signals after k copies, and thread 0 waits for all of them in this order."""
    read = []
    whole = Clock._raised_at

    def counted(self: Clock, key: tuple[int, int], value: int) -> float | None:
        read.append(key)
        return whole(self, key, value)

    monkeypatch.setattr(Clock, "_raised_at", counted)
    size = 16
    copy = [Copy(BlockRef(0, k), BlockRef(1, k), 100) for k in range(size)]
    steps = [[*[copy[k]] * k, Signal(0, Ranks(0))] for k in range(size)]
    steps[0].append(Wait(0, Ranks(0, size)))
    tree = Tree([0] * size)
    plans = [
        Plan("test", "test", rank, size, (tuple(each), ()), 0, ("no", "no"))
        for rank, each in enumerate(steps)
    ]
    ended = run([Program(plan, tree) for plan in plans], Rates(1.0, 5.0, 1.0, 0.0)).end
    assert ended == (size - 1) * 100 + 5
    assert len(read) <= 2 * size
