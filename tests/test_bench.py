"""The benchmark's own arithmetic, and the fast paths that have no twin elsewhere: bytes, threads."""

import threading
from math import inf

import pytest
import torch
from conftest import deepen as run_deepen
from conftest import tiny
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import deepen
from benchmarks.queueing import simulate
from deepen.bench import (
    BenchError,
    Fit,
    Point,
    bench_table,
    compete,
    exponent,
    load_contests,
    trial_table,
    try_all,
)
from deepen.model import DepthRecurrent
from deepen.packed import int8
from deepen.parallel import in_parallel
from deepen.presets import get_preset
from deepen.reasoner import Reasoner
from deepen.shapes import Scene, State

CPU = torch.device("cpu")
FAKE = """
from time import sleep
from deepen.bench import PEAK, Contest, Work

def contender(units, flop=0.0, wrong=False):
    def turn():
        if wrong:
            raise ValueError("out of breath")
        sleep(0.02)
        return Work(units=units, flop=flop)
    return lambda: turn

def no_show():
    raise ValueError("overslept")

quick, slow, peak = contender(30, 5e8), contender(10, 2e8), contender(1, 1e9)
def contest(**contenders):
    return Contest(about="", unit="laps", contenders=contenders, rival="slow")

CONTESTS = {
    "race": contest(quick=quick, slow=slow, **{PEAK: peak}),
    "fall": contest(slow=contender(1, wrong=True)),
    "absent": contest(slow=slow, late=no_show),
}
SERIES = {}
TRIALS = {"run": lambda: {"laps": 3, "mean": 1.23456, "all": list(range(1000))}}
"""


@pytest.fixture
def contests(tmp_path):
    path = tmp_path / "benchmarks" / "contests.py"
    path.parent.mkdir()
    path.write_text(FAKE)
    return path


def test_contenders_take_turns_and_are_compared_round_by_round(contests):
    done = []
    rows = compete("race", load_contests(contests).CONTESTS["race"], 3, done.append, contests)
    quick, slow, peak = rows
    assert done == [1, 2, 3]
    assert slow.ratio == slow.low == slow.high == 1.0
    assert quick.low <= quick.ratio <= quick.high
    assert 2 < quick.ratio < 4.5
    assert 0.3 < quick.share_of_peak < 0.8
    assert peak.share_of_peak == 1.0
    assert quick.rounds == 3
    assert "quick" in bench_table(rows)


def test_a_contender_that_fails_says_why(contests):
    with pytest.raises(BenchError, match="fall, slow: ValueError: out of breath"):
        compete("fall", load_contests(contests).CONTESTS["fall"], 1, path=contests)


def test_a_contender_that_cannot_be_set_up_says_why(contests):
    with pytest.raises(BenchError, match="absent, late: ValueError: overslept"):
        compete("absent", load_contests(contests).CONTESTS["absent"], 1, path=contests)


def test_without_the_repository_there_are_no_rivals(tmp_path):
    with pytest.raises(BenchError, match="from a clone"):
        load_contests(tmp_path / "benchmarks" / "contests.py")


def test_trials_have_a_line_for_each_figure(contests, monkeypatch):
    monkeypatch.setattr("deepen.bench.load_contests", lambda: load_contests(contests))
    seen = []
    (trial,) = try_all(["run"], lambda done, name: seen.append((done, name)))
    assert seen == [(0, "run"), (1, "run")]
    assert trial_table([trial]).split() == ["run", "laps", "3", "mean", "1.235"]
    assert trial.figures["all"][-1] == 999


def test_a_simulated_queue_without_company_is_as_fast_as_alone():
    """By hand: at a rate of almost nothing everyone is alone; with no cost of company a step is a step."""
    _, slower = simulate(one=1.0, more=0.1, slots=4, rate=1e-6)
    assert max(slower) < 1.001
    rate, _ = simulate(one=1.0, more=0.0, slots=10**6, rate=inf)
    assert rate == pytest.approx(20_000 / 40), "all at once: done when the longest is"
    busy = [simulate(one=1.0, more=0.1, slots=4, rate=r)[1] for r in (0.1, 0.2)]
    assert sum(busy[0]) < sum(busy[1])


def test_exponents_are_slopes_of_logarithms():
    sizes = [1, 2, 4, 8]
    assert exponent(sizes, [3 * size**2 for size in sizes]) == pytest.approx(2)
    points = [Point(series="s", size=size, seconds=size, megabytes=7) for size in sizes]
    fit = Fit.of("s", "steps", points)
    assert fit.time_exponent == pytest.approx(1)
    assert fit.memory_exponent == pytest.approx(0)


def test_unknown_contests_are_named(tmp_path):
    done = run_deepen("bench", "infer", "--only", "nonsense", cwd=tmp_path)
    assert done.returncode == 2
    assert "infer every state" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert run_deepen("bench", "--rounds", "0", cwd=tmp_path).returncode == 2


def test_the_count_of_operations_is_that_of_the_products():
    """Slow twin: the framework's own counter."""
    model = DepthRecurrent(get_preset("logic", "paper").model).eval()
    first = torch.randn(3, 20, 256)
    valid, read_at = torch.ones(3, 20, dtype=torch.bool), torch.zeros(3, 1, dtype=torch.long)
    scene = Scene(first=first, mask=None, valid=valid, read_at=read_at)
    step = model.core.prepare()
    with torch.no_grad(), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        step(State(hidden=first), scene, 1, 20)
    assert counter.get_total_flops() == model.flop_per_step(3, 20)


# Weights of one byte.


def test_a_product_of_bytes_is_close_and_never_overflows():
    """Seven bits of input leave room for the sum of two products; eight would saturate on ones."""
    weight, bias, x = 0.05 * torch.randn(96, 256), torch.randn(96), torch.randn(4, 9, 256)
    with torch.inference_mode():
        exact = torch.nn.functional.linear(x, weight, bias)
        error = (int8(weight, bias)(x) - exact).abs().mean() / exact.abs().mean()
        assert 0 < error < 0.03
        ones = int8(torch.ones(8, 512), None)(torch.ones(2, 512))
        torch.testing.assert_close(ones, torch.full((2, 8), 512.0), rtol=0.01, atol=0)


def test_bytes_give_the_answers_of_floats():
    """Of 2,400 answers of the shipped model, before, at and after the frontier, 99.8 % are the same."""
    exact, rounded = deepen.load("graph"), deepen.load("graph", precision="int8")
    same = total = 0
    for hops in (1, 3, 6, 12):
        questions = [one.question for one in deepen.examples("graph", "cut", hops, seed=9, num=100)]
        for one, other in zip(
            exact.answer_many(questions, steps=2 * hops + 2),
            rounded.answer_many(questions, steps=2 * hops + 2),
            strict=True,
        ):
            pairs = list(zip(one.trace, other.trace, strict=True))
            same += sum((a > 0.5) == (b > 0.5) for a, b in pairs)
            total += len(pairs)
    assert total > 2_400
    assert same / total >= 0.998


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="float32, int8, got 'int4'"):
        deepen.load("graph", precision="int4")


# Threads.


def test_results_come_in_order_and_the_number_of_threads_comes_back():
    torch.set_num_threads(2)
    try:
        seen = set()

        def work(number):
            seen.add(threading.get_ident())
            assert torch.get_num_threads() == 1
            assert torch.is_inference_mode_enabled()
            return number * number

        assert list(in_parallel(work, range(40), CPU)) == [number * number for number in range(40)]
        assert threading.get_ident() not in seen
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_two_callers_in_two_threads_leave_the_number_of_threads_as_it_was():
    """The first to come is the last to leave, and still finds what it had."""
    torch.set_num_threads(2)
    try:
        mine = in_parallel(lambda number: number, range(9), CPU)
        next(mine)
        other = threading.Thread(target=lambda: list(in_parallel(lambda number: number, range(9), CPU)))
        other.start()
        other.join()
        assert list(mine) == list(range(1, 9))
        assert torch.get_num_threads() == 2
        assert list(in_parallel(lambda _: torch.get_num_threads(), range(3), CPU)) == [1, 1, 1]
    finally:
        torch.set_num_threads(1)


def test_what_goes_wrong_in_a_thread_is_raised_and_the_number_of_threads_comes_back():
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            list(in_parallel(lambda number: 1 // number, [3, 0, 2], CPU))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("task", ["graph", "logic"])
def test_threads_change_no_answer(task):
    config = tiny(task)
    reasoner = Reasoner(DepthRecurrent(config.model), config)
    questions = [
        one.question for hardness in (1, 3, 5) for one in deepen.examples(task, difficulty=hardness, num=40)
    ]
    alone = reasoner.answer_many(questions, steps=5)
    torch.set_num_threads(2)
    try:
        together = reasoner.answer_many(questions, steps=5)
    finally:
        torch.set_num_threads(1)
    for one, other in zip(alone, together, strict=True):
        assert one.trace == pytest.approx(other.trace, abs=1e-5)
