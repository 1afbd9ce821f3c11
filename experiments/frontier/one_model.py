"""One model for all three tasks, beside the three specialists, and what its attention goes by in each.

    python experiments/frontier/one_model.py [--seeds 0 1 2] [--num 700] [--runs RUNS]

Trains what is missing. Writes one_model.json and the tables between the markers of README.md.
"""

import json
from copy import deepcopy
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from training import is_current, model_of, parser_of

from deepen.config import RunConfig
from deepen.grid import tally
from deepen.model import Model
from deepen.perception import Phrases
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import fill_page
from deepen.runs import write_atomically
from deepen.stats import wilson
from deepen.tasks import examples

HERE = Path(__file__).parent
STORED = HERE / "one_model.json"
DIFFICULTIES = {  # those of the training range, then some beyond it
    "graph": (1, 2, 3, 4, 5, 8, 12, 24, 40),
    "logic": (1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 32),
    "family": (1, 2, 3, 4, 5, 9, 12),
}
HARDEST = {"graph": 5, "logic": 8, "family": 5}
USES = {"whole": (), "without shared names": ("names",), "without positions": ("rotary",)}
USES["without both"] = ("names", "rotary")


def accuracy(model: Model, config: RunConfig, task: str, difficulty: int, num: int) -> float:
    """At T = 2 x difficulty + 2, the same for every model."""
    asked = examples(task, "certified", difficulty, num=num)
    steps = 2 * difficulty + 2
    return tally(model, config, asked, steps).accuracy(steps)


def without(model: Model, parts: tuple[str, ...]) -> Model:
    """The model with some of what its attention goes by switched off; what phrases mean stays."""
    bare = deepcopy(model)
    perception = bare.perception
    assert isinstance(perception, Phrases)
    if "names" in parts and perception.names is not None:
        with torch.no_grad():
            perception.names.zero_()
    if "rotary" in parts:
        perception.perceives = perception.perceives.model_copy(update={"rotary_share": 0.0})
    return bare


def cells_of(config: RunConfig) -> list[tuple[str, int]]:
    """All tasks and difficulties that a model is asked about."""
    tasks = DIFFICULTIES if config.task == "all" else [config.task]
    return [(task, difficulty) for task in tasks for difficulty in DIFFICULTIES[task]]


def measured(config: RunConfig, runs: Path, num: int) -> list[dict[str, Any]]:
    """A trained model on all its tasks; of the one model also with parts switched off, within the range."""
    model = model_of(config, runs)
    about = {"model": config.task, "seed": config.seed, "run_id": config.run_id}
    rows = []
    cells = cells_of(config)
    with Bar(f"measuring {config.run_name}", len(cells)) as bar:
        for place, (task, difficulty) in enumerate(cells, start=1):
            for use, parts in USES.items():
                if parts and (config.task != "all" or difficulty > HARDEST[task]):
                    continue
                used = without(model, parts) if parts else model
                asked = num if not parts else num // 4
                right = accuracy(used, config, task, difficulty, asked)
                row = {"task": task, "difficulty": difficulty, "use": use, "accuracy": right, "num": asked}
                rows.append({**about, **row})
            bar.show(place)
    return rows


def beside_the_specialists(rows: list[dict[str, Any]]) -> str:
    names = ("task, difficulty", "specialist", "one model", "95 % interval", "difference", "by seed", "n")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for task, difficulties in DIFFICULTIES.items():
        for difficulty in difficulties:
            own = {
                who: [
                    row
                    for row in rows
                    if (row["model"], row["task"], row["difficulty"], row["use"])
                    == (who, task, difficulty, "whole")
                ]
                for who in (task, "all")
            }
            if not (own[task] and own["all"]):
                continue
            alone, together = (mean(row["accuracy"] for row in own[who]) for who in (task, "all"))
            num = sum(row["num"] for row in own["all"])
            low, high = wilson(together, num)
            mark = "" if difficulty <= HARDEST[task] else " *"
            figures = f"{alone:.4f} | {together:.4f} | {low:.4f} - {high:.4f}"
            seeds = " ".join(f"{row['accuracy']:.4f}" for row in own["all"])
            gap = f"{100 * (together - alone):+.2f}"
            lines.append(f"| {task} {difficulty}{mark} | {figures} | {gap} | {seeds} | {num} |")
    return "\n".join([*lines, "", "* beyond the training range. Points; n of the one model."])


def goes_by(rows: list[dict[str, Any]]) -> str:
    """What is left of each task's accuracy in the training range."""
    lines = ["| task | " + " | ".join(USES) + " |", "|---" * (1 + len(USES)) + "|"]
    for task in DIFFICULTIES:
        shown = []
        for use in USES:
            left = [
                row["accuracy"]
                for row in rows
                if (row["model"], row["task"], row["use"]) == ("all", task, use)
                and row["difficulty"] <= HARDEST[task]
            ]
            shown.append(f"{mean(left):.3f}")
        lines.append(f"| {task} | {' | '.join(shown)} |")
    return "\n".join(lines)


def tables(rows: list[dict[str, Any]]) -> dict[str, str]:
    """All that the page shows of them."""
    return {"one": beside_the_specialists(rows), "uses": goes_by(rows)}


def main() -> None:
    parser = parser_of(__doc__ or "", num=700)
    options = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else []
    rows = [row for row in stored if is_current(row["model"], row["seed"], row["run_id"])]
    for task in (*DIFFICULTIES, "all"):
        for seed in options.seeds:
            config = get_preset(task, "frontier", seed)
            own = [row for row in rows if row["run_id"] == config.run_id]
            whole = {(row["task"], row["difficulty"], row["num"]) for row in own if row["use"] == "whole"}
            if whole != {(*cell, options.num) for cell in cells_of(config)}:
                rows = [row for row in rows if row not in own] + measured(config, options.runs, options.num)
                write_atomically(STORED, json.dumps(rows).encode() + b"\n")
    fill_page(HERE / "README.md", tables(rows))


if __name__ == "__main__":
    main()
