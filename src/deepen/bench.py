"""Contests in speed: who does the same work in less time, measured so that noise cannot decide.

Every contender lives in a process of its own, set up alike, and they take turns: a slow spell of the
machine meets all of them. What counts is the median over the rounds of the ratio within a round. Peak
speed is measured in the same way, as one more contender that only multiplies matrices.

The contests themselves are in benchmarks/contests.py of the repository, next to their rivals.
"""

import importlib.util
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any, Self

from deepen.config import Record
from deepen.memory import peak_resident_bytes

CONTESTS = Path(__file__).resolve().parents[2] / "benchmarks" / "contests.py"


class BenchError(RuntimeError):
    """A benchmark that cannot be run; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a contender did in one turn."""

    units: float  # examples, answers, steps: what the contest counts
    flop: float = 0.0  # floating-point operations in matrix products; 0 if nobody asks


Contender = Callable[[], Callable[[], Work]]
"""Sets itself up, and returns what is timed."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Contenders by name; the speed of each is given relative to the rival's."""

    about: str
    unit: str
    contenders: Mapping[str, Contender]
    rival: str


class Row(Record):
    """One contender in one contest."""

    contest: str
    contender: str
    rounds: int
    seconds: float
    """Median of a turn."""
    units_per_second: float
    unit: str
    ratio: float
    """Speed relative to the rival, median over the rounds."""
    low: float
    """Smallest ratio of a round."""
    high: float
    """Largest one."""
    gigaflops: float | None
    """Billions of operations in matrix products a second."""
    share_of_peak: float | None
    """Of what plain matrix products reach in the same round; median."""


PEAK = "matrix products alone"
LONGEST_FIGURE = 140  # characters of what is still a figure
SUBJECTS = ("train", "grid", "infer", "serve", "scale")


def load_contests(path: Path = CONTESTS) -> ModuleType:
    """The repository's contests: they need rivals that are not part of the package."""
    if not path.exists():
        raise BenchError(
            "the rivals are not part of the package: run 'deepen bench' from a clone of the repository"
        )
    root = str(path.parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    spec = importlib.util.spec_from_file_location("benchmarks.contests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def find_names(subject: str, words: Sequence[str] | None) -> list[str]:
    """The contests and trials of a subject, or the series of `scale`, that contain one of the words."""
    found = load_contests()
    names = found.SERIES if subject == "scale" else [*found.CONTESTS, *found.TRIALS]
    own = [name for name in names if subject == "scale" or name.startswith(subject)]
    return [name for name in own if words is None or any(word in name for word in words)]


def compete(
    name: str,
    contest: Contest,
    rounds: int,
    watch: Callable[[int], None] = lambda done: None,
    path: Path = CONTESTS,
) -> list[Row]:
    """Let the contenders take turns; one row for each."""
    turns: dict[str, list[tuple[float, Work]]] = {who: [] for who in contest.contenders}
    workers = {who: Worker(path, name, who) for who in contest.contenders}
    try:
        for worker in workers.values():
            worker.turn()  # warm up, one after the other
        for number in range(rounds):
            order = list(workers) if number % 2 == 0 else list(workers)[::-1]
            for who in order:
                turns[who].append(workers[who].turn())
            watch(number + 1)
    finally:
        for worker in workers.values():
            worker.stop()
    speeds = {who: [work.units / seconds for seconds, work in taken] for who, taken in turns.items()}
    rates = {who: [work.flop / seconds / 1e9 for seconds, work in taken] for who, taken in turns.items()}
    rows = []
    for who, taken in turns.items():
        ratios = [one / other for one, other in zip(speeds[who], speeds[contest.rival], strict=True)]
        rate = median(rates[who]) or None
        shares = [one / peak for one, peak in zip(rates[who], rates.get(PEAK, ()), strict=False)]
        rows.append(
            Row(
                contest=name,
                contender=who,
                rounds=rounds,
                seconds=median(seconds for seconds, _ in taken),
                units_per_second=median(speeds[who]),
                unit=contest.unit,
                ratio=median(ratios),
                low=min(ratios),
                high=max(ratios),
                gigaflops=rate,
                share_of_peak=median(shares) if rate and shares else None,
            )
        )
    return rows


def compete_all(names: Sequence[str], rounds: int, watch: Callable[[int, str], None]) -> list[Row]:
    """One contest after the other."""
    contests = load_contests().CONTESTS
    rows: list[Row] = []
    for number, name in enumerate(names):

        def tell(done: int, before: int = number * rounds, name: str = name) -> None:
            watch(before + done, name)

        rows += compete(name, contests[name], rounds, tell)
    return rows


class Trial(Record):
    """What a whole server showed."""

    trial: str
    figures: dict[str, Any]


def is_trial(name: str) -> bool:
    return name in load_contests().TRIALS


def try_all(names: Sequence[str], watch: Callable[[int, str], None]) -> list[Trial]:
    """One trial after the other."""
    trials = []
    for number, name in enumerate(names, start=1):
        watch(number - 1, name)
        trials.append(Trial(trial=name, figures=load_contests().TRIALS[name]()))
        watch(number, name)
    return trials


class Worker:
    """A contender in its own process, which waits for its turn."""

    def __init__(self, path: Path, contest: str, contender: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, path, contest, contender), daemon=True)
        self._process.start()
        theirs.close()

    def turn(self) -> tuple[float, Work]:
        """Seconds, and what was done in them."""
        try:
            with suppress(ConnectionError):  # who failed in setting up is gone, but has said why
                self._line.send("go")
            answer = self._line.recv()
        except (EOFError, ConnectionError):
            self._process.join(5)  # only then is there an exit code
            raise BenchError(f"a contender stopped, exit code {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise BenchError(answer)
        seconds, units, flop = answer
        return seconds, Work(units=units, flop=flop)

    def stop(self) -> None:
        self._line.close()
        self._process.terminate()
        self._process.join()


def _serve(line: Connection, path: Path, contest: str, contender: str) -> None:
    try:
        work = load_contests(path).CONTESTS[contest].contenders[contender]()
        while True:
            line.recv()
            began = time.perf_counter()
            done = work()
            line.send((time.perf_counter() - began, done.units, done.flop))
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:
        line.send(f"{contest}, {contender}: {type(error).__name__}: {error}")


class Point(Record):
    """Time and peak memory at one size, in a process of its own."""

    series: str
    size: float
    """What is varied: steps, positions, nodes, edges."""
    seconds: float
    megabytes: float
    """Peak resident memory above that of the idle process."""


class Fit(Record):
    """seconds ~ size^exponent, and the same for memory."""

    series: str
    varied: str
    points: tuple[Point, ...]
    time_exponent: float
    memory_exponent: float

    @classmethod
    def of(cls, series: str, varied: str, points: Sequence[Point]) -> Self:
        sizes = [point.size for point in points]
        return cls(
            series=series,
            varied=varied,
            points=tuple(points),
            time_exponent=exponent(sizes, [point.seconds for point in points]),
            memory_exponent=exponent(sizes, [max(point.megabytes, 1.0) for point in points]),
        )


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of log value over log size, by least squares."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mean_x) ** 2 for a in x)


def measure_point(series: str, size: float) -> Point:
    """One point of a series of benchmarks/contests.py, in a fresh process."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_measure, args=(theirs, series, size), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = mine.recv()
    except EOFError:
        raise BenchError(f"{series} at {size}: the process stopped, exit code {process.exitcode}") from None
    finally:
        process.terminate()
        process.join()
    if isinstance(answer, str):
        raise BenchError(answer)
    return Point(series=series, size=size, seconds=answer[0], megabytes=answer[1])


def num_points(names: Sequence[str]) -> int:
    """How many points some series have."""
    series = load_contests().SERIES
    return sum(len(series[name].sizes) for name in names)


def grow(names: Sequence[str], watch: Callable[[int, str], None]) -> list[Fit]:
    """One series after the other."""
    found = load_contests().SERIES
    done = 0
    fits = []
    for name in names:
        points = []
        for size in found[name].sizes:
            points.append(measure_point(name, size))
            done += 1
            watch(done, name)
        fits.append(Fit.of(name, found[name].varied, points))
    return fits


def _measure(line: Connection, series: str, size: float) -> None:
    try:
        work = load_contests().SERIES[series].prepare(size)
        work(True)  # a short turn, so that code and tables are loaded
        times = []

        def three_turns() -> None:
            for _ in range(3):
                began = time.perf_counter()
                work(False)
                times.append(time.perf_counter() - began)

        grown = peak_resident_bytes(three_turns)
        if grown is None:
            raise BenchError("this system does not tell how much memory a process needs")
        line.send((median(times), grown / 2**20))
    except KeyboardInterrupt:
        return
    except Exception as error:
        line.send(f"{series} at {size}: {type(error).__name__}: {error}")


@dataclass(frozen=True, kw_only=True)
class Series:
    """How time and memory grow with one size."""

    varied: str
    sizes: Sequence[float]
    prepare: Callable[[Any], Callable[[bool], None]]
    """A size to work that is done shortly (True) or in full (False)."""


def bench_table(rows: Sequence[Row]) -> str:
    """One line a contender."""
    lines = [
        f"{'contest':28} {'contender':32} {'ratio':>6} {'low':>6} {'high':>6}"
        f" {'a second':>12} {'GFLOP/s':>8} {'peak':>6}"
    ]
    for row in rows:
        rate = "" if row.gigaflops is None else f"{row.gigaflops:.0f}"
        share = "" if row.share_of_peak is None else f"{100 * row.share_of_peak:.0f}%"
        lines.append(
            f"{row.contest:28} {row.contender:32} {row.ratio:6.2f} {row.low:6.2f} {row.high:6.2f}"
            f" {row.units_per_second:12.4g} {rate:>8} {share:>6}"
        )
    return "\n".join(lines)


def fit_table(fits: Sequence[Fit]) -> str:
    """Exponents of time and memory, then the points."""
    lines = [f"{'series':40} {'varied':10} {'time ~':>8} {'memory ~':>9}"]
    for fit in fits:
        lines.append(f"{fit.series:40} {fit.varied:10} {fit.time_exponent:8.2f} {fit.memory_exponent:9.2f}")
        for point in fit.points:
            lines.append(f"{'':40} {point.size:10g} {point.seconds:7.3f}s {point.megabytes:6.0f}MB")
    return "\n".join(lines)


def trial_table(trials: Sequence[Trial]) -> str:
    """One line a figure; what is too long for a line is in the JSON."""
    lines = []
    for trial in trials:
        lines.append(trial.trial)
        for name, figure in trial.figures.items():
            shown = f"{figure:.4g}" if isinstance(figure, float) else json.dumps(figure, default=str)
            if len(shown) <= LONGEST_FIGURE:
                lines.append(f"  {name:26} {shown}")
    return "\n".join(lines)


def to_json(results: Sequence[Record], provenance: Mapping[str, Any]) -> bytes:
    """Rows or fits with where they were measured."""
    content = {"provenance": provenance, "results": [one.model_dump(mode="json") for one in results]}
    return json.dumps(content, indent=1).encode() + b"\n"
