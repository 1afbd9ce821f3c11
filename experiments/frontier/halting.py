"""When to stop: rules that decide for each question, beside the best fixed T, the oracle and ACT.

    python experiments/frontier/halting.py [TASK ...] [--seeds 0 1 2] [--num 700] [--act] [--runs RUNS]

Needs the runs of specialists.py, which it trains if they are missing. One unroll of every test question
keeps the answer after each step and who would have stopped there; a rule is then a way to read these.
Writes halting.json, halting.png and the table between the markers of README.md.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from training import batches_of, is_current, model_of, one_of, parser_of, settings_of, trained

from deepen.config import RunConfig, changed
from deepen.halting import LearnedHalting, fit_head
from deepen.model import Model
from deepen.peers import build
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import fill_page, save_figure
from deepen.runs import write_atomically
from deepen.shapes import State
from deepen.tasks import Example, examples, get_task
from deepen.unroll import AnswerConvergence, HaltingRule

HERE = Path(__file__).parent
STORED = HERE / "halting.json"
DIFFICULTIES = {  # in the training range, and beyond it
    "graph": ((1, 2, 3, 4, 5), (8, 12, 24, 40)),
    "logic": ((1, 2, 4, 6, 8), (10, 14, 20, 32)),
    "family": ((1, 2, 3, 4, 5), (6, 7, 9, 12)),
}
RULES = ("best fixed T", "oracle", "state", "answer", "learned head", "ACT")
UNSEEN = 1  # the seed of the test examples; those of seed 0 were looked at for most settings of rules
ACT_CAP = {"graph": 12, "logic": 14, "family": 13}  # in training; in the test it has as many as the others


def stops(wants: Tensor, patience: int) -> Tensor:
    """The step at which each of (n, T) rows has been true so often in a row; T if never."""
    in_a_row = torch.zeros(len(wants), dtype=torch.long)
    found = torch.full((len(wants),), wants.shape[1])
    for t, now in enumerate(wants.unbind(dim=1), start=1):
        in_a_row = torch.where(now, in_a_row + 1, 0)
        found = torch.where((in_a_row >= patience) & (found == wants.shape[1]), t, found)
    return found


@torch.no_grad()
def way(
    model: Model, config: RunConfig, asked: list[Example], most: int, rules: dict[str, HaltingRule]
) -> tuple[Tensor, dict[str, Tensor]]:
    """(n, T): whether the answer after each step is right, and for each rule whether it wants to stop."""
    right = torch.zeros(len(asked), most, dtype=torch.bool)
    wants = {name: torch.zeros_like(right) for name in rules}
    for places, batch in batches_of(config, asked):
        step, scene = model.begin(batch)
        before = State(hidden=scene.first)
        for t in range(most):
            after = step(before, scene, t + 1, before.hidden.shape[1])
            right[places, t] = (model.read(after, scene) > 0) == (batch.labels > 0.5)
            for name, rule in rules.items():
                wants[name][places, t] = rule.wants_to_stop(before, after, scene, t + 1)
            before = after
    return right, wants


def asked_at(task: str, difficulty: int, num: int) -> list[Example]:
    """Test examples of a stream of their own; the page tells how often they were looked at."""
    return examples(task, "certified", difficulty, seed=UNSEEN, num=num)


def most_at(difficulty: int) -> int:
    """No rule is given more steps."""
    return 2 * difficulty + 16


def best_steps(right: Tensor) -> int:
    """The T that most answers are right after; of several as good the middle one, the farthest from worse."""
    shares = right.float().mean(dim=0)
    as_good = (shares == shares.max()).nonzero().flatten()
    return int(as_good[len(as_good) // 2]) + 1


def about(config: RunConfig, difficulty: int) -> dict[str, Any]:
    inside = difficulty in DIFFICULTIES[config.task][0]
    of = {"task": config.task, "seed": config.seed, "run_id": config.run_id, "examples_seed": UNSEEN}
    return {**of, "difficulty": difficulty, "in_range": inside}


def compare(model: Model, config: RunConfig, num: int, watch: Callable[[int], None]) -> list[dict[str, Any]]:
    """Every rule on every difficulty; what is chosen is chosen on validation examples."""
    task = config.task
    inside, beyond = DIFFICULTIES[task]
    head = fit_head(model, config)
    found = []
    for place, difficulty in enumerate((*inside, *beyond), start=1):
        most = most_at(difficulty)
        rules: dict[str, HaltingRule] = {
            "state": model.halting(most),
            "answer": AnswerConvergence(most, model.read),
            "learned head": LearnedHalting(most, head),
        }
        chosen_on = examples(task, "certified", difficulty, num=num // 2, split="valid")
        best = best_steps(way(model, config, chosen_on, most, {})[0])
        asked = asked_at(task, difficulty, num)
        right, wants = way(model, config, asked, most, rules)
        taken = {name: stops(wants[name], rule.patience or 1) for name, rule in rules.items()}
        taken["best fixed T"] = torch.full((num,), best)
        # On texts reading the words and comparing takes two steps more than the chain is long.
        taken["oracle"] = torch.full((num,), difficulty + (0 if task == "graph" else 2))
        labels = torch.tensor([one.label for one in asked])
        for name, steps in taken.items():
            found.append(
                {
                    **about(config, difficulty),
                    "settings": settings_of(config) if name == "state" else None,
                    "rule": name,
                    "accuracy": right.gather(1, steps[:, None] - 1).float().mean().item(),
                    "steps": steps.float().mean().item(),
                    "fewest_for_yes": int(steps[labels].min()),
                    "fewest_for_no": int(steps[~labels].min()),
                    "num": num,
                }
            )
        watch(place)
    return found


def adaptive(config: RunConfig, runs: Path) -> Model:
    """The same perception and data; the core that ACT goes with; its cap lifted for the test."""
    core = {"recall": False, "state_norm": False, "state_noise": 0.0, "gate_bias": None}
    cap = ACT_CAP[config.task]
    capped = changed(
        config,
        preset="act",
        **{f"model__core__{name}": value for name, value in core.items()},
        model__act={"cap": cap},
        train__steps=(cap, cap),
        train__detached_start=0.0,
    )
    model, _ = trained(capped, runs)
    lifted = changed(capped, model__act={"cap": most_at(max(DIFFICULTIES[config.task][1]))})
    without_cap = build(lifted.model)
    without_cap.load_state_dict(model.state_dict())
    return without_cap.eval()


def measure_adaptive(config: RunConfig, runs: Path, num: int) -> list[dict[str, Any]]:
    """ACT stops by itself; its steps are those until the last position has halted."""
    model = adaptive(config, runs)
    inside, beyond = DIFFICULTIES[config.task]
    found = []
    for difficulty in (*inside, *beyond):
        right, steps = 0, 0.0
        with torch.no_grad():
            for _, batch in batches_of(config, asked_at(config.task, difficulty, num)):
                output = model(batch, model.halting(most_at(difficulty)))
                right += int(((output.answer > 0) == (batch.labels > 0.5)).sum())
                steps += float(output.num_steps.sum())
        found.append(
            {
                **about(config, difficulty),
                "settings": None,
                "rule": "ACT",
                "accuracy": right / num,
                "steps": steps / num,
                "num": num,
            }
        )
    return found


def worst_gap(rows: list[dict[str, Any]]) -> float:
    """By how much the state rule is below the best fixed T, in the seed where that is most."""
    best = {row["seed"]: row["accuracy"] for row in rows if row["rule"] == "best fixed T"}
    return max(best[row["seed"]] - row["accuracy"] for row in rows if row["rule"] == "state")


def earliest(rows: list[dict[str, Any]]) -> str:
    """How far from the difficulty the state rule's first yes and first no are."""
    of_state = [row for row in rows if row["rule"] == "state"]
    first = {
        answer: min(row[f"fewest_for_{answer}"] - row["difficulty"] for row in of_state)
        for answer in ("yes", "no")
    }
    return " and ".join(f"{answer}: difficulty {steps:+d}" for answer, steps in first.items())


def _listed_nums(rows: list[dict[str, Any]]) -> str:
    return ", ".join(str(num) for num in sorted({row["num"] for row in rows}))


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracy and mean steps, means over the seeds; the bound is 1.5 x difficulty + 4 steps."""
    lines = []
    for task in DIFFICULTIES:
        own = [row for row in rows if row["task"] == task]
        seeds = len({row["seed"] for row in own if row["rule"] == "state"})
        if not seeds:
            continue
        names = ("difficulty", *RULES, "points below best T", "worst seed", "steps allowed")
        lines += ["", f"### {task}", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        for difficulty in (*DIFFICULTIES[task][0], *DIFFICULTIES[task][1]):
            cells, at = [], {}
            for rule in RULES:
                of_rule = [row for row in own if (row["rule"], row["difficulty"]) == (rule, difficulty)]
                if of_rule:
                    at[rule] = mean(row["accuracy"] for row in of_rule), mean(row["steps"] for row in of_rule)
                cells.append(f"{at[rule][0]:.4f}, {at[rule][1]:.1f}" if rule in at else "")
            gap = at["best fixed T"][0] - at["state"][0]
            worst = worst_gap([row for row in own if row["difficulty"] == difficulty])
            allowed = 1.5 * difficulty + 4
            most = max(
                row["steps"] for row in own if row["rule"] == "state" and row["difficulty"] == difficulty
            )
            within = "kept" if at["state"][1] <= allowed else "exceeded"
            within += f", {most:.1f} by one seed" if most > allowed else ""
            note = f"{100 * gap:+.2f} | {100 * worst:+.2f} | {allowed:.1f}: {within}"
            beyond = "" if difficulty in DIFFICULTIES[task][0] else " *"
            lines.append(f"| {difficulty}{beyond} | {' | '.join(cells)} | {note} |")
        lines += [
            "",
            f"{seeds} seeds (ACT: one), n = {_listed_nums(own)} a cell and seed. * beyond the training",
        ]
        lines[-1] += " range."
        if task == "graph":
            lines[-1] += f" The state rule's earliest {earliest(own)}."
    return "\n".join(lines).strip()


def tables(rows: list[dict[str, Any]]) -> dict[str, str]:
    """All that the page shows of them."""
    return {"halting": table(rows)}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Mean steps and accuracy over difficulty, a line for each rule."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tasks = [task for task in DIFFICULTIES if any(row["task"] == task for row in rows)]
    figure = Figure(figsize=(4.2 * len(tasks), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(tasks), squeeze=False, sharex="col")
    for column, task in enumerate(tasks):
        difficulties = [*DIFFICULTIES[task][0], *DIFFICULTIES[task][1]]
        for number, rule in enumerate(RULES):
            of_rule = [row for row in rows if (row["task"], row["rule"]) == (task, rule)]
            known = [d for d in difficulties if any(row["difficulty"] == d for row in of_rule)]
            for panel, name in ((0, "accuracy"), (1, "steps")):
                values = [mean(row[name] for row in of_rule if row["difficulty"] == d) for d in known]
                style = {"linestyle": "--", "color": "grey"} if rule == "oracle" else {"color": f"C{number}"}
                panels[panel][column].plot(
                    known, values, marker="o", markersize=3, label=rule, alpha=0.8, **style
                )
        bound = [1.5 * d + 4 for d in difficulties]
        panels[1][column].plot(
            difficulties, bound, color="black", linewidth=0.7, label="1.5 x difficulty + 4"
        )
        for panel in panels[:, column]:
            panel.axvspan(difficulties[0], DIFFICULTIES[task][0][-1], color="grey", alpha=0.12)
            panel.set_xscale("log", base=2)
            panel.set_xticks(difficulties, [str(d) for d in difficulties])
        panels[0][column].set_title(f"{task} (shaded: training range)")
        panels[0][column].set_ylim(0.45, 1.02)
        panels[1][column].set_yscale("log", base=2)
        panels[1][column].set_xlabel(get_task(task).difficulty_name)
    panels[0][0].set_ylabel("accuracy")
    panels[1][0].set_ylabel("mean steps")
    every = {label: line for line, label in zip(*panels[1][0].get_legend_handles_labels(), strict=True)}
    figure.legend(every.values(), every.keys(), loc="outside lower center", ncols=len(every), fontsize=8)
    save_figure(figure, path)


def main() -> None:
    parser = parser_of(__doc__ or "", num=700)
    parser.add_argument("tasks", nargs="*", type=one_of(DIFFICULTIES), metavar="TASK")
    parser.add_argument("--act", action="store_true", help="train and measure ACT as well, one seed a task")
    options = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else []
    current = [row for row in stored if is_current(row["task"], row["seed"], row["run_id"])]
    as_now = {task: (None, settings_of(get_preset(task, "frontier"))) for task in DIFFICULTIES}
    rows = [
        row
        for row in current
        if row["settings"] in as_now[row["task"]] and row.get("examples_seed") == UNSEEN
    ]
    whole = {(row["task"], row["seed"]) for row in rows if row["rule"] == "state"}
    rows = [row for row in rows if row["rule"] == "ACT" or (row["task"], row["seed"]) in whole]

    def keep(found: list[dict[str, Any]]) -> None:
        rows.extend(found)
        write_atomically(STORED, json.dumps(rows).encode() + b"\n")

    for task in options.tasks or DIFFICULTIES:
        done = {(row["seed"], row["rule"]) for row in rows if row["task"] == task}
        for seed in options.seeds:
            config = get_preset(task, "frontier", seed)
            if (seed, "state") in done:
                continue
            model = model_of(config, options.runs)
            with Bar(f"halting of {config.run_name}", sum(map(len, DIFFICULTIES[task]))) as bar:
                keep(compare(model, config, options.num, bar.show))
        if options.act and (options.seeds[0], "ACT") not in done:
            keep(measure_adaptive(get_preset(task, "frontier", options.seeds[0]), options.runs, options.num))
    draw(rows, HERE / "halting.png")
    fill_page(HERE / "README.md", tables(rows))


if __name__ == "__main__":
    main()
