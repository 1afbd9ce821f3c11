"""deepen bench: speed against the plain way, and growth with size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import tyro

from deepen.bench import (
    SUBJECTS,
    bench_table,
    compete_all,
    find_names,
    fit_table,
    grow,
    is_trial,
    load_contests,
    num_points,
    to_json,
    trial_table,
    try_all,
)
from deepen.config import Record
from deepen.console import errors_in_one_line, fail, say
from deepen.progress import Bar
from deepen.report import draw_contests, draw_growth
from deepen.runs import provenance, write_atomically

Result = TypeVar("Result", bound=Record)


@dataclass(frozen=True, kw_only=True)
class BenchCommand:
    """Measure speed against the plain way and against peers; writes JSON and a picture for each subject."""

    subject: tyro.conf.Positional[Literal["all", "train", "grid", "infer", "serve", "scale"]] = "all"
    """What to measure: training, grids, inference, mixed depths and a server under load, growth with size,
    or everything."""
    rounds: int = 5
    """How often the contenders take turns."""
    only: tuple[str, ...] | None = None
    """Only contests, trials and series whose names contain one of these words."""
    out: Path = Path("bench")
    """The folder for the results."""
    json: bool = False
    """Print the results as JSON instead of tables."""


def bench_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("bench"):
        command = tyro.cli(BenchCommand, prog="deepen bench", args=arguments)
    if command.rounds < 1:
        fail(f"--rounds must be at least 1, got {command.rounds}")
    subjects = SUBJECTS if command.subject == "all" else (command.subject,)
    chosen = {subject: names for subject in subjects if (names := find_names(subject, command.only))}
    if not chosen:
        known = ", ".join(name for subject in subjects for name in find_names(subject, None))
        fail(f"nothing to measure is called like {' '.join(command.only or ())} (known: {known})")
    command.out.mkdir(parents=True, exist_ok=True)
    for subject, names in chosen.items():
        _bench(subject, names, command)


def _bench(subject: str, names: Sequence[str], command: BenchCommand) -> None:
    """One subject: its results as JSON, table and picture."""
    trials = [name for name in names if is_trial(name)]
    contests = [name for name in names if name not in trials]
    if subject == "scale":
        with Bar("measuring", num_points(names)) as bar:
            fits = grow(names, watch=bar.show)
        _leave(subject, fits, fit_table(fits), draw_growth, command)
        return
    if contests:
        with Bar("competing", len(contests) * command.rounds) as bar:
            rows = compete_all(contests, command.rounds, watch=bar.show)
        _leave(subject, rows, bench_table(rows), draw_contests, command)
    if trials:
        with Bar("trying", len(trials)) as bar:
            tried = try_all(trials, watch=bar.show)
        _leave(f"{subject}-trials", tried, trial_table(tried), load_contests().draw_trials, command)


def _leave(
    name: str,
    results: Sequence[Result],
    table: str,
    draw: Callable[[Sequence[Result], Path], None],
    command: BenchCommand,
) -> None:
    file, picture = command.out / f"{name}.json", command.out / f"{name}.png"
    content = to_json(results, provenance())
    write_atomically(file, content)
    draw(results, picture)
    print(content.decode() if command.json else table)
    say(f"the figures are in {file}, the picture is {picture.resolve()}")
