"""Train the frontier presets and measure them on certified examples, far outside their training range.

    python experiments/frontier/specialists.py [TASK ...] [--seeds 0 1 2] [--num 700] [--runs RUNS]

Finished runs are reused, torn ones resumed. Writes specialists.json, one picture a task, and the tables
between the markers of README.md, from all that has been measured so far.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training import is_current, model_of, one_of, parser_of, trained

from deepen.config import GridConfig, RunConfig
from deepen.grid import Cell, Grid, measure, tally
from deepen.model import Model
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import draw_frontier, fill_page
from deepen.runs import write_atomically
from deepen.stats import wilson
from deepen.tasks import examples

HERE = Path(__file__).parent
STORED = HERE / "specialists.json"
TARGETS = {  # certified accuracy that is aimed at, by difficulty
    "graph": {1_000: 0.99},
    "logic": {**dict.fromkeys(range(1, 9), 0.995), 14: 0.98, 20: 0.95, 32: 0.90},
    "family": {**dict.fromkeys(range(1, 6), 0.99), 9: 0.95, 12: 0.90},
}


NEAR = GridConfig(
    distribution="certified",
    difficulties=(1, 2, 3, 4, 5, 8, 12, 24),
    steps=(1, 2, 3, 4, 5, 8, 12, 24),
    num_examples=2_000,
)
FAR = (200, 1_000)  # hops: graphs of about 450 and 2,200 nodes, where training has at most 16


STRICTER = ("certified-inside", "certified-even")  # families that leave no way around sums
STRICTER_DEPTHS = (1, 2, 3, 4, 5, 7, 9, 12)
LONG = 36  # steps for that: twice the hops from where the facts begin, at the most


def cells_at(
    model: Model, config: RunConfig, distribution: str, difficulty: int, num: int, steps: tuple[int, ...]
) -> list[Cell]:
    """Accuracy at some steps; the ceiling is that of who needs a step for each hop."""
    asked = examples(config.task, distribution, difficulty, num=num)
    with Bar(f"measuring {config.run_name}, {distribution} {difficulty}", num) as bar:
        found = tally(model, config, asked, max(steps), bar.show)
    cells = []
    for t in steps:
        low, high = wilson(found.accuracy(t), num)
        cells.append(
            Cell(
                difficulty=difficulty,
                steps=t,
                accuracy=found.accuracy(t),
                low=low,
                high=high,
                true_positive_rate=found.rate(True, t),
                true_negative_rate=found.rate(False, t),
                num=num,
                ceiling=1.0 if t >= difficulty else 0.5,
            )
        )
    return cells


def with_far(one: dict[str, Any], hops: int, runs: Path, num: int) -> dict[str, Any]:
    """A graph's result, so many hops added: a third of the steps, one too few, just enough."""
    grid = Grid.model_validate(one["grid"])
    near = [cell for cell in grid.cells if cell.difficulty != hops]
    config = RunConfig.model_validate(one["config"])
    steps = (hops // 3, hops - 1, hops)
    far = cells_at(model_of(config, runs), config, "certified", hops, num, steps)
    cells = sorted([*near, *far], key=lambda cell: (cell.difficulty, cell.steps))
    return {**one, "grid": grid.model_copy(update={"cells": tuple(cells)}).model_dump(mode="json")}


def measured_at(one: dict[str, Any], hops: int) -> int:
    """How many examples of so many hops a result has."""
    return max((cell["num"] for cell in one["grid"]["cells"] if cell["difficulty"] == hops), default=0)


def result(config: RunConfig, runs: Path, num: int) -> dict[str, Any]:
    """Train one config and measure its grid."""
    model, run = trained(config, runs)
    wanted = (NEAR if config.task == "graph" else config.grid).model_copy(update={"num_examples": num})
    with Bar(f"measuring {config.run_name}", len(wanted.difficulties) * wanted.num_examples) as bar:
        grid = measure(model, config, wanted, watch=bar.show)
    if config.task != "graph":
        write_atomically(run.grid_file, grid.model_dump_json().encode() + b"\n")
    stricter: dict[str, list[Any]] = {}
    for distribution in STRICTER if config.task == "family" else ():
        found = [cells_at(model, config, distribution, depth, num, (LONG,)) for depth in STRICTER_DEPTHS]
        stricter[distribution] = [cell.model_dump(mode="json") for (cell,) in found]
    described = json.loads(run.config_file.read_text())
    return {
        **described,
        "stricter": stricter,
        "parameters": model.num_parameters,
        "seconds": run.seconds,
        "grid": grid.model_dump(mode="json"),
    }


def table(results: list[dict[str, Any]]) -> str:
    """Mean over the seeds, the interval of all their examples, and each seed by itself."""
    task = results[0]["config"]["task"]
    enough = 1 if task == "graph" else 2  # steps for each hop or level
    name, some = ("hops", "T = hops") if task == "graph" else ("depth", "T = 2 depth")
    lines = [f"| {name} | T = {name} / 3 | {some} | 95 % interval | by seed | aimed at | n |"]
    lines.append("|---" * 7 + "|")
    grids = [Grid.model_validate(one["grid"]) for one in results]
    for difficulty in dict.fromkeys(cell.difficulty for cell in grids[0].cells):
        few, many = max(1, difficulty // 3), enough * difficulty
        measured = {cell.steps for cell in grids[0].cells if cell.difficulty == difficulty}
        if not {few, many} <= measured:
            continue
        early = [grid.cell(difficulty, few).accuracy for grid in grids]
        cells = [grid.cell(difficulty, many) for grid in grids]
        total = sum(cell.num for cell in cells)
        mean = sum(cell.accuracy * cell.num for cell in cells) / total
        low, high = wilson(mean, total)
        aim = TARGETS[task].get(difficulty)
        columns = (
            str(difficulty),
            f"{sum(early) / len(early):.3f}" if difficulty >= 3 else "",
            f"{mean:.4f}",
            f"{low:.4f} - {high:.4f}",
            " ".join(f"{cell.accuracy:.4f}" for cell in cells),
            "" if aim is None else f"{aim:g}: {'reached' if mean >= aim else 'not reached'}",
            str(total),
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def table_of_stricter(results: list[dict[str, Any]]) -> str:
    """Families that leave no way around sums, mean over the seeds."""
    names = ("depth", *(f"{name}, T = {LONG} | 95 % interval | by seed" for name in STRICTER), "n, each")
    lines = [f"| {' | '.join(names)} |", "|---" * (2 + 3 * len(STRICTER)) + "|"]
    for place, depth in enumerate(STRICTER_DEPTHS):
        columns = [str(depth)]
        for name in STRICTER:
            cells = [Cell.model_validate(one["stricter"][name][place]) for one in results]
            total = sum(cell.num for cell in cells)
            mean = sum(cell.accuracy * cell.num for cell in cells) / total
            low, high = wilson(mean, total)
            by_seed = " ".join(f"{cell.accuracy:.4f}" for cell in cells)
            columns += [f"{mean:.4f}", f"{low:.4f} - {high:.4f}", by_seed]
        lines.append(f"| {' | '.join([*columns, str(total)])} |")
    return "\n".join(lines)


def times(results: list[dict[str, Any]]) -> str:
    lines = ["| run | parameters | updates | seconds | threads | code |", "|---" * 6 + "|"]
    for one in results:
        config = one["config"]
        name = f"{config['task']} seed {config['seed']}"
        numbers = f"{one['parameters']:,} | {config['train']['updates']:,} | {one['seconds']:.0f}"
        lines.append(f"| {name} | {numbers} | {one['machine']['threads']} | {one['code']['commit']} |")
    return "\n".join(lines)


def _of_task(results: list[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    return [one for one in results if one["config"]["task"] == task]


def tables(results: list[dict[str, Any]]) -> dict[str, str]:
    """All that the page shows of them."""
    found = {"times": times(results)}
    for task in TARGETS:
        own = _of_task(results, task)
        found[task] = table(own) if own else "Not measured yet."
    family = _of_task(results, "family")
    return {**found, "stricter": table_of_stricter(family) if family else "Not measured yet."}


def in_order(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        results, key=lambda one: (list(TARGETS).index(one["config"]["task"]), one["config"]["seed"])
    )


def main() -> None:
    parser = parser_of(__doc__ or "", num=700)
    parser.add_argument("tasks", nargs="*", type=one_of(TARGETS), metavar="TASK")
    options = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else []
    found = {
        one["run_id"]: one
        for one in stored
        if is_current(one["config"]["task"], one["config"]["seed"], one["run_id"])
    }
    wanted = [
        get_preset(task, "frontier", seed) for task in options.tasks or TARGETS for seed in options.seeds
    ]

    def keep(one: dict[str, Any]) -> None:
        found[one["run_id"]] = one
        write_atomically(STORED, json.dumps(in_order(found.values())).encode() + b"\n")

    for config in wanted:
        if config.run_id not in found:
            keep(result(config, options.runs, options.num))
    for config in wanted:
        for hops in FAR if config.task == "graph" else ():
            if measured_at(found[config.run_id], hops) < options.num:
                keep(with_far(found[config.run_id], hops, options.runs, options.num))
    results = in_order(found.values())
    for task in ("logic", "family"):  # the picture of graphs is in ../foundation
        if own := _of_task(results, task):
            draw_frontier(Grid.model_validate(own[0]["grid"]), HERE / f"{task}.png")
    fill_page(HERE / "README.md", tables(results))


if __name__ == "__main__":
    main()
