"""deepen grid: accuracy over difficulty and steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from deepen.config import GridConfig
from deepen.console import errors_in_one_line, fail, make_folder, say
from deepen.grid import measure
from deepen.progress import Bar
from deepen.reasoner import find
from deepen.report import draw_frontier, table
from deepen.runs import Run, load_model, write_atomically


@dataclass(frozen=True, kw_only=True)
class GridCommand:
    """Measure accuracy over (difficulty x steps), write grid.json, draw frontier.png."""

    run: tyro.conf.Positional[str]
    """A run folder; or, with --out, a weights file or the name of a shipped checkpoint."""
    distribution: str | None = None
    """Which generator makes the test examples; by default as the run's config says."""
    difficulties: tuple[int, ...] | None = None
    """Rows to measure; by default as the run's config says."""
    steps: tuple[int, ...] | None = None
    """Columns to measure; by default as the run's config says."""
    num_examples: int | None = None
    """Examples for each difficulty; by default as the run's config says."""
    out: Path | None = None
    """The folder for grid.json and frontier.png; by default the run folder."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    json: bool = False
    """Print the grid as JSON instead of a table."""


def grid_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("grid"):
        command = tyro.cli(GridCommand, prog="deepen grid", args=arguments)
    source = find(command.run)
    if command.out is None and not source.is_dir():
        fail(f"{command.run} is not a run folder: say with --out where grid.json and frontier.png go")
    model, config = load_model(source, command.device)
    changes = {
        name: value
        for name in ("distribution", "difficulties", "steps", "num_examples")
        if (value := getattr(command, name)) is not None
    }
    wanted = GridConfig.model_validate({**config.grid.model_dump(), **changes})
    folder = Run(command.out or source)
    make_folder(folder.path, config.task, wanted.distribution, wanted.difficulties)
    with Bar("measuring", len(wanted.difficulties) * wanted.num_examples) as bar:
        grid = measure(model, config, wanted, watch=bar.show)
    write_atomically(folder.grid_file, grid.model_dump_json(indent=1).encode() + b"\n")
    draw_frontier(grid, folder.figure_file)
    print(grid.model_dump_json() if command.json else table(grid))
    say(f"the figures are in {folder.grid_file}, the picture is {folder.figure_file.resolve()}")
