"""Train the frontier presets and measure them on certified examples, far outside their training range.

    python experiments/frontier/specialists.py [TASK ...] [--seeds 0 1 2] [--runs RUNS]

Finished runs are reused, torn ones resumed. Writes specialists.json, one picture a task, and the tables
between the markers of README.md, from all that has been measured so far.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from deepen.config import RunConfig
from deepen.grid import Grid, measure
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import draw_frontier, fill_page
from deepen.runs import load_model, write_atomically
from deepen.stats import wilson
from deepen.train import train

HERE = Path(__file__).parent
STORED = HERE / "specialists.json"
TARGETS = {  # certified accuracy that is aimed at, by difficulty
    "logic": {**dict.fromkeys(range(1, 9), 0.995), 14: 0.98, 20: 0.95, 32: 0.90},
    "family": {**dict.fromkeys(range(1, 6), 0.99), 9: 0.95, 12: 0.90},
}


def result(config: RunConfig, runs: Path) -> dict[str, Any]:
    """Train one config and measure its grid."""
    path = runs / config.run_name
    with Bar(f"training {config.run_name}", config.train.updates) as bar:
        run = train(config, path, resume=True, watch=lambda update, loss, accuracy: bar.show(update))
    model, _ = load_model(path, "cpu")
    with Bar(f"measuring {config.run_name}", len(config.grid.difficulties) * config.grid.num_examples) as bar:
        grid = measure(model, config, config.grid, watch=bar.show)
    described = json.loads(run.config_file.read_text())
    return {
        **described,
        "parameters": model.num_parameters,
        "seconds": run.seconds,
        "grid": grid.model_dump(mode="json"),
    }


def table(results: list[dict[str, Any]]) -> str:
    """Mean over the seeds, the interval of all their examples, and each seed by itself."""
    lines = ["| depth | T = depth / 3 | T = 2 depth | 95 % interval | by seed | aimed at | n |"]
    lines.append("|---" * 7 + "|")
    task = results[0]["config"]["task"]
    grids = [Grid.model_validate(one["grid"]) for one in results]
    for difficulty in grids[0].config.difficulties:
        early = [grid.cell(difficulty, max(1, difficulty // 3)).accuracy for grid in grids]
        cells = [grid.cell(difficulty, 2 * difficulty) for grid in grids]
        total = sum(cell.num for cell in cells)
        mean = sum(cell.accuracy * cell.num for cell in cells) / total
        low, high = wilson(mean, total)
        aim = TARGETS[task].get(difficulty)
        columns = (
            str(difficulty),
            f"{sum(early) / len(early):.3f}",
            f"{mean:.4f}",
            f"{low:.4f} - {high:.4f}",
            " ".join(f"{cell.accuracy:.4f}" for cell in cells),
            "" if aim is None else f"{aim:g}: {'reached' if mean >= aim else 'not reached'}",
            str(total),
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def times(results: list[dict[str, Any]]) -> str:
    lines = ["| run | parameters | updates | seconds | threads | code |", "|---" * 6 + "|"]
    for one in results:
        config = one["config"]
        name = f"{config['task']} seed {config['seed']}"
        numbers = f"{one['parameters']:,} | {config['train']['updates']:,} | {one['seconds']:.0f}"
        lines.append(f"| {name} | {numbers} | {one['machine']['threads']} | {one['code']['commit']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[[], *TARGETS], default=list(TARGETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    results = json.loads(STORED.read_text()) if STORED.exists() else []
    for task in options.tasks:
        for seed in options.seeds:
            config = get_preset(task, "frontier", seed)
            if not any(one["run_id"] == config.run_id for one in results):
                results.append(result(config, options.runs))
                write_atomically(STORED, json.dumps(results).encode() + b"\n")
    tables = {"times": times(results)}
    for task in TARGETS:
        own = [one for one in results if one["config"]["task"] == task]
        if own:
            tables[task] = table(own)
            draw_frontier(Grid.model_validate(own[0]["grid"]), HERE / f"{task}.png")
    fill_page(HERE / "README.md", tables)


if __name__ == "__main__":
    main()
