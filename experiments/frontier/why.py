"""Why it works: two starts, one end; how fast news travels; what each ingredient contributes.

    python experiments/frontier/why.py [starts] [news] [ablation] [--seeds 0 1 2] [--runs RUNS]

`starts` and `news` need the runs of specialists.py, which they train if they are missing; `ablation` trains
a short run for every ingredient left out. Writes why.json, why.png and the tables in README.md.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from training import batches_of, model_of, one_of, parser_of, trained

from deepen.config import RunConfig, changed
from deepen.grid import tally
from deepen.model import Model
from deepen.presets import get_preset
from deepen.report import fill_page, save_figure
from deepen.runs import write_atomically
from deepen.shapes import Batch, State
from deepen.tasks import Example, examples, get_task

HERE = Path(__file__).parent
STORED = HERE / "why.json"
NUM = 200
SEEDS = (0, 1, 2)
DIFFICULTIES = {"graph": (2, 5, 12, 24), "logic": (2, 8, 14, 20), "family": (2, 5, 9)}
SHORT: dict[str, dict[str, Any]] = {  # what an ablation trains instead of the preset
    "graph": {},
    "logic": {"train__updates": 1_500, "data__batch": 32},
    "family": {"train__updates": 1_500, "data__difficulties": (1, 3), "train__steps": (3, 8)},
}
TOP = {"graph": (5, 24), "logic": (8, 14), "family": (3, 5)}  # where it is measured: in the range, beyond it
INGREDIENTS: dict[str, dict[str, dict[str, Any]]] = {
    "graph": {
        "nothing left out": {},
        "recall": {"model__core__recall": False},
        "state norm": {"model__core__state_norm": False},
        "state noise": {"model__core__state_noise": 0.0},
        "gate": {"model__core__gate_bias": None},
        "nothing, a depth embedding added": {"model__core__depth_rows": 20},
    },
    "logic": {
        "nothing left out": {},
        "recall": {"model__core__recall": False},
        "state norm": {"model__core__state_norm": False},
        "state noise": {"model__core__state_noise": 0.0},
        "several questions a text": {"data__questions": 1, "train__slack": None},
        "shared names": {"model__perception__names_from": None, "model__perception__vocabulary": 90},
    },
    "family": {
        "nothing left out": {},
        "recall": {"model__core__recall": False},
        "state norm": {"model__core__state_norm": False},
        "state noise": {"model__core__state_noise": 0.0},
        "1,024 units (256 instead)": {"model__core__feedforward": 256},
        "several questions a text, and the right word": {
            "data__questions": 1,
            "train__slack": None,
            "model__tells": False,
        },
        "saying the right word": {"model__tells": False},
        "shared names, and the right word": {"model__perception__names_from": None, "model__tells": False},
    },
}


def think(model: Model, batch: Batch, start: Tensor | None, most: int) -> tuple[Tensor, Tensor]:
    """The last state, and (questions, T) whether the answer is right after each step."""
    step, scene = model.begin(batch)
    state = State(hidden=scene.first if start is None else start)
    right = []
    for t in range(1, most + 1):
        state = step(state, scene, t, state.hidden.shape[1])
        right.append((model.read(state, scene) > 0) == (batch.labels > 0.5))
    return state.hidden, torch.stack(right, dim=1)


@torch.no_grad()
def two_starts(model: Model, config: RunConfig) -> list[dict[str, Any]]:
    """From H(0) and from Gaussian noise: do both end in the same state?"""
    torch.manual_seed(0)
    found = []
    for difficulty in DIFFICULTIES[config.task]:
        asked = examples(config.task, "certified", difficulty, num=NUM)
        distances, sizes, agree, right = [], [], [], []
        for _, batch in batches_of(config, asked):
            most = 3 * difficulty + 16
            usual, correct = think(model, batch, None, most)
            noise = torch.randn_like(usual) * usual.std()
            other, correct_too = think(model, batch, noise, most)
            distances.append((usual - other).norm(dim=-1)[batch.valid])
            sizes.append(usual.norm(dim=-1)[batch.valid])
            agree.append((correct == correct_too)[:, -1])
            right.append(correct_too[:, -1])
        relative = torch.cat(distances) / torch.cat(sizes)
        found.append(
            {
                "difficulty": difficulty,
                "median_distance": relative.median().item(),
                "same_place": (relative < 0.01).float().mean().item(),
                "same_answer": torch.cat(agree).float().mean().item(),
                "accuracy_from_noise": torch.cat(right).float().mean().item(),
                "num": NUM,
            }
        )
    return found


def with_news(config: RunConfig, difficulty: int) -> list[tuple[Example, Example]]:
    """Pairs of questions of one size and opposite answers; what differs is `difficulty` steps away."""
    drawn = examples(config.task, "certified", difficulty, num=2 * NUM)
    if config.task != "graph":
        return list(zip(drawn[::2], drawn[1::2], strict=True))
    task, pairs = get_task("graph"), []
    for one in drawn[::2]:
        first = list(one.certificate["route"][:2])
        turned = [edge if list(edge) != first else first[::-1] for edge in one.question["edges"]]
        other = {**one.question, "edges": turned}
        if not task.verify(other):  # the first edge of the route, turned round, leaves no way
            pairs.append((Example(question=other, label=False, difficulty=difficulty), one))
    return pairs


@torch.no_grad()
def news(model: Model, config: RunConfig) -> list[dict[str, Any]]:
    """The state settled on one question goes on with its twin: how many steps until the answer is new?"""
    found = []
    for difficulty in DIFFICULTIES[config.task]:
        most = 3 * difficulty + 16
        taken = []
        for before, after in with_news(config, difficulty):
            old, new = (next(batches_of(config, [one]))[1] for one in (before, after))
            settled, known = think(model, old, None, most)
            if not known[0, -1]:
                continue
            _, right = think(model, new, settled, most)
            if right[0, -1]:
                wrong = (~right[0]).nonzero()
                taken.append(int(wrong.max()) + 2 if len(wrong) else 1)
        found.append(
            {
                "difficulty": difficulty,
                "steps": mean(taken) if taken else None,
                "low": float(np.percentile(taken, 5)) if taken else None,
                "high": float(np.percentile(taken, 95)) if taken else None,
                "num": len(taken),
            }
        )
    return found


def without(task: str, ingredient: str, seed: int) -> RunConfig:
    """A short run of the preset with one thing left out."""
    return changed(get_preset(task, "frontier", seed), **SHORT[task], **INGREDIENTS[task][ingredient])


def ablated(config: RunConfig, runs: Path) -> dict[str, Any]:
    model, _ = trained(config, runs)
    row: dict[str, Any] = {"run_id": config.run_id}
    for name, difficulty in zip(("inside", "beyond"), TOP[config.task], strict=True):
        asked = examples(config.task, "certified", difficulty, num=1_000)
        steps = 2 * difficulty + 2
        measured = tally(model, config, asked, steps)
        row[name] = measured.accuracy(steps)
        row[f"{name}_true_positives"] = measured.rate(True, steps)
    return {**row, "num": 1_000}


def table_of_starts(found: dict[str, Any]) -> str:
    lines = ["| task, difficulty | median distance | positions in the same place | same answer | right |"]
    lines.append("|---" * 5 + "|")
    for task, seeds in found.items():
        for place, difficulty in enumerate(DIFFICULTIES[task]):
            rows = [rows[place] for rows in seeds.values()]
            names = ("median_distance", "same_place", "same_answer", "accuracy_from_noise")
            values = [mean(row[name] for row in rows) for name in names]
            shown = f"{values[0]:.1e} | {values[1]:.3f} | {values[2]:.3f} | {values[3]:.3f}"
            lines.append(f"| {task} {difficulty} | {shown} |")
    seeds = ", ".join(f"{task} {len(of_task)}" for task, of_task in found.items())
    return "\n".join([*lines, "", f"n = {NUM} a row and seed. Seeds: {seeds}."])


def table_of_news(found: dict[str, Any]) -> str:
    lines = [
        "| task | " + "steps until the answer is new, by difficulty | steps a level or hop |",
        "|---|---|---|",
    ]
    for task, seeds in found.items():
        shown, points = [], []
        for place, difficulty in enumerate(DIFFICULTIES[task]):
            rows = [rows[place] for rows in seeds.values() if rows[place]["steps"] is not None]
            if rows:
                steps = mean(row["steps"] for row in rows)
                low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
                shown.append(f"{difficulty}: {steps:.1f} ({low:.0f} - {high:.0f})")
                points.append((difficulty, steps))
        slope = f"{np.polyfit(*zip(*points, strict=True), 1)[0]:.2f}" if len(points) > 1 else ""
        lines.append(f"| {task} | {', '.join(shown) or 'never'} | {slope} |")
    return "\n".join(lines)


def table_of_ablation(rows: list[dict[str, Any]]) -> str:
    lines = ["| task | left out | in the range | beyond it | by seed, beyond |", "|---" * 5 + "|"]
    for task, ingredients in INGREDIENTS.items():
        for ingredient in ingredients:
            own = [row for row in rows if (row["task"], row["ingredient"]) == (task, ingredient)]
            if own:
                inside, beyond = (mean(row[name] for row in own) for name in ("inside", "beyond"))
                seeds = " ".join(f"{row['beyond']:.3f}" for row in sorted(own, key=lambda row: row["seed"]))
                lines.append(f"| {task} | {ingredient} | {inside:.3f} | {beyond:.3f} | {seeds} |")
    measured = ", ".join(f"{task} {low} and {high}" for task, (low, high) in TOP.items())
    about = f"Measured at {measured}, T = 2 x difficulty + 2, n = 1,000 a seed."
    short = "; ".join(f"{task} {_listed(changes)}" for task, changes in SHORT.items() if changes)
    return "\n".join([*lines, "", f"{about} Trained like the presets but for this: {short}."])


def _listed(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('__', '.')} {value}" for name, value in changes.items())


def tables(stored: dict[str, Any]) -> dict[str, str]:
    """All that the page shows of it."""
    tables_of = {"starts": table_of_starts, "news": table_of_news, "ablation": table_of_ablation}
    return {
        name: make(stored[name]) if stored.get(name) else "Not measured yet."
        for name, make in tables_of.items()
    }


def draw(stored: dict[str, Any], path: Path) -> None:
    """Left: how fast news travels. Right: what is lost without each ingredient."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ablation = stored.get("ablation", [])
    figure = Figure(figsize=(12 if ablation else 6, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, *others = figure.subplots(1, 2 if ablation else 1, squeeze=False)[0]
    for number, (task, seeds) in enumerate(stored.get("news", {}).items()):
        for rows in seeds.values():
            known = [row for row in rows if row["steps"] is not None]
            left.plot(
                [row["difficulty"] for row in known],
                [row["steps"] for row in known],
                marker="o",
                color=f"C{number}",
                label=task if rows is next(iter(seeds.values())) else None,
            )
    left.axline((0, 0), slope=1, color="grey", linestyle=":", label="one step each")
    left.set(xlabel="how far away the news is (hops, levels)", ylabel="steps until the answer is new")
    left.legend()
    for right in others:
        _draw_ablation(ablation, right)
    save_figure(figure, path)


def _draw_ablation(rows: list[dict[str, Any]], right: Any) -> None:
    labels = list(dict.fromkeys((row["task"], row["ingredient"]) for row in rows))
    for place, (task, ingredient) in enumerate(labels):
        own = [row for row in rows if (row["task"], row["ingredient"]) == (task, ingredient)]
        for name, colour in (("inside", "C0"), ("beyond", "C3")):
            values = [row[name] for row in own]
            right.plot(values, [place] * len(values), "o", color=colour, alpha=0.7)
    right.set_yticks(range(len(labels)), [f"{task}: {ingredient}" for task, ingredient in labels])
    right.invert_yaxis()
    right.axvline(0.5, color="grey", linestyle=":")
    right.set(xlabel="accuracy without it (blue: in range, red: beyond it)")


def only_current(stored: dict[str, Any]) -> dict[str, Any]:
    """What was measured of the presets and ablations as they are now."""
    found: dict[str, Any] = {}
    for part in ("starts", "news"):
        for task, of_task in stored.get(part, {}).items():
            now = {get_preset(task, "frontier", seed).run_id for seed in SEEDS}
            if kept := {run_id: rows for run_id, rows in of_task.items() if run_id in now}:
                found.setdefault(part, {})[task] = kept
    found["ablation"] = [
        row
        for row in stored.get("ablation", [])
        if row["ingredient"] in INGREDIENTS[row["task"]]
        and without(row["task"], row["ingredient"], row["seed"]).run_id == row["run_id"]
    ]
    return found


def main() -> None:
    parts: dict[str, Callable[[Model, RunConfig], Any]] = {"starts": two_starts, "news": news}
    parser = parser_of(__doc__ or "")
    chosen = (*parts, "ablation")
    parser.add_argument("parts", nargs="*", type=one_of(chosen), metavar="PART", help=", ".join(chosen))
    parser.add_argument("--tasks", nargs="+", choices=list(DIFFICULTIES), default=list(DIFFICULTIES))
    options = parser.parse_args()
    wanted = options.parts or chosen
    stored = only_current(json.loads(STORED.read_text())) if STORED.exists() else {}

    def keep() -> None:
        write_atomically(STORED, json.dumps(stored).encode() + b"\n")

    for task in options.tasks:
        for seed in options.seeds:
            for part in [name for name in parts if name in wanted]:
                config = get_preset(task, "frontier", seed)
                of_task = stored.setdefault(part, {}).setdefault(task, {})
                if config.run_id not in of_task:
                    of_task[config.run_id] = parts[part](model_of(config, options.runs), config)
                    keep()
            for ingredient in INGREDIENTS[task] if "ablation" in wanted else ():
                config = without(task, ingredient, seed)
                rows = stored.setdefault("ablation", [])
                if not any(row["run_id"] == config.run_id for row in rows):
                    about = {"task": task, "ingredient": ingredient, "seed": seed}
                    rows.append({**about, **ablated(config, options.runs)})
                    keep()
    draw(stored, HERE / "why.png")
    fill_page(HERE / "README.md", tables(stored))


if __name__ == "__main__":
    main()
