"""Do the depth embeddings that training never touched matter? And what the gate does at the boundary.

T is drawn up to t_max in training, so later steps add rows of the depth table that still are noise. They
are replaced by zeros, by the last trained row and by fresh noise, and the whole grid is measured again.

Beyond the published figures: the single cell that differs most, since a mean over cells most of which are
pinned at 1 or at a half hides it; true-positive rates; and on graphs a model trained without any depth
embedding. The published gate means count padding, ours do not; and of a graph only the nodes that can
reach a queried node are in the row, the others cannot change an answer.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise, product
from math import sqrt
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from deepen.batches import in_batches
from deepen.config import RunConfig, changed
from deepen.evidence.noise import Compared, of_share
from deepen.evidence.piece import Claim, Evidence, Job, Piece, Plan, Row, Verdict, fewest_updates, shares
from deepen.evidence.published import published_figures
from deepen.evidence.tables import distinct, markdown, select
from deepen.grid import draw_examples, tally
from deepen.model import DepthRecurrent, Model
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import save_figure
from deepen.shapes import State
from deepen.tasks import Example, get_task

VARIANTS = ("baseline", "zero", "clamp", "reinit")
DRAWS = (1234, 5678, 9012)
AGREE = 0.005  # "at most .5 percentage points"
EXPLAINS = 0.02  # what the replaced rows would have to cost to be the reason
CELL_AGREES = 0.02  # a single cell that differs by more makes a caveat


class DepthEmbedding(Piece):
    name = "depth-embedding"
    title = "Depth embeddings beyond the training range, and the gate across its boundary"

    def jobs(self, plan: Plan) -> list[Job]:
        jobs = []
        for task in plan.tasks:
            config = plan.fitted(get_preset(task, "paper", plan.seeds_for(task)[0]))
            if plan.budget == "cpu":  # six grids are measured instead of one
                config = changed(config, grid__num_examples=min(500, config.grid.num_examples))
            jobs.append(Job(config, {"trained": "published"}))
            if task == "graph":
                jobs.append(Job(changed(config, model__core__depth_rows=None), {"trained": "without"}))
        return jobs

    def measure(self, model: Model, config: RunConfig, plan: Plan) -> list[Row]:
        assert isinstance(model, DepthRecurrent)
        (low, high), last, most = config.data.difficulties, config.train.steps[1], max(config.grid.steps)
        asked = {h: draw_examples(config.task, config.grid, h) for h in config.grid.difficulties}
        variants = with_other_rows(model, last)
        rows: list[Row] = []
        with Bar(f"measuring {config.run_name}", len(asked) * len(variants)) as bar:
            for difficulty, questions in asked.items():
                for (variant, draw), ablated in variants.items():
                    found = tally(ablated, config, questions, most)
                    rows += [
                        {
                            "kind": "accuracy",
                            "variant": variant,
                            "draw": draw,
                            "difficulty": difficulty,
                            "difficulty_range": "in" if low <= difficulty <= high else "out",
                            "steps": steps,
                            "steps_range": "in" if steps <= last else "beyond",
                            "accuracy": found.accuracy(steps),
                            "true_positive_rate": found.rate(True, steps),
                            "num": found.total,
                        }
                        for steps in config.grid.steps
                    ]
                    bar.show(len(rows) // len(config.grid.steps))
        return rows + gate_rows(model, config, [one for row in asked.values() for one in row], most)

    def compare(self, evidence: Evidence) -> list[Compared]:
        published = published_figures()["depth_embedding"]
        compared = []
        for task in distinct(evidence.rows, "task"):
            rows = select(evidence.rows, task=task, trained="published")
            published_num = published_figures()["training"][task]["test_per_difficulty"] * len(
                published_figures()["baselines"]["ood_difficulties"][task]
            )
            for variant, theirs in published["ood_beyond"][task].items():
                cells = _corner(rows, variant=variant)
                # Every T of a difficulty, and every draw, is asked the same questions.
                num = cells[0]["num"] * len(distinct(cells, "difficulty"))
                what = f"{task}, {variant}: unseen difficulties, T beyond training"
                ours, theirs = of_share(_mean(cells), num), of_share(theirs, published_num)
                compared.append(Compared(what=what, ours=ours, published=theirs))
        return compared

    def claims(self, evidence: Evidence) -> list[Claim]:
        tasks = distinct(evidence.rows, "task")
        agreement = [claim for task in tasks for claim in _agreement(evidence, task)]
        return agreement + [_continuity(evidence, task) for task in tasks]

    def table(self, evidence: Evidence) -> str:
        lines, gates = [], []
        most = max(row["t"] for row in select(evidence.rows, kind="gate"))
        for task in distinct(evidence.rows, "task"):
            rows = select(evidence.rows, task=task)
            measured = [(row["variant"], row["draw"]) for row in select(rows, kind="accuracy")]
            for variant, draw in dict.fromkeys(measured):
                cells = select(rows, variant=variant, draw=draw)
                quadrants = [
                    _mean(select(cells, difficulty_range=difficulty, steps_range=steps))
                    for difficulty, steps in product(("in", "out"), ("in", "beyond"))
                ]
                lines.append((task, f"{variant} {draw or ''}".strip(), *quadrants))
            for trained, column in product(distinct(rows, "trained"), ("mean", "std")):
                values = [row[column] for row in select(rows, trained=trained, kind="gate")]
                gates.append((task, trained, column, *values, *[None] * (most - len(values))))
        quadrants_named = ("seen, T trained", "seen, T beyond", "unseen, T trained", "unseen, T beyond")
        accuracies = markdown(("task", "untrained rows", *quadrants_named), lines)
        steps_named = [f"t={t}" for t in range(1, most + 1)]
        return f"{accuracies}\n\n{markdown(('task', 'depth embedding', 'gate', *steps_named), gates)}"

    def draw(self, evidence: Evidence, path: Path) -> None:
        from matplotlib.figure import Figure

        published = published_figures()["depth_embedding"]
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        ticks: list[str] = []
        for number, task in enumerate(distinct(evidence.rows, "task")):
            rows, colour = select(evidence.rows, task=task), f"C{number}"
            for variant in distinct(rows, "variant"):
                cells = _corner(rows, variant=variant)
                draws = [_mean(select(cells, draw=draw)) for draw in distinct(cells, "draw")]
                left.plot([len(ticks)] * len(draws), draws, "o", color=colour)
                theirs = published["ood_beyond"][task].get(variant)
                if theirs is not None:
                    left.plot(len(ticks), theirs, "_", color="black", markersize=16)
                ticks.append(variant)
            gate, theirs = select(rows, trained="published", kind="gate"), published["gate_mean"][task]
            share = fewest_updates(evidence, task)
            label = task if share >= 1 else f"{task}, {shares(evidence, task)}"
            right.plot([row["t"] for row in gate], [row["mean"] for row in gate], color=colour, label=label)
            right.plot(range(1, len(theirs) + 1), theirs, "--", color=colour, alpha=0.6)
            right.axvline(len(select(gate, steps_range="in")) + 0.5, color=colour, linestyle=":")
        left.set_xticks(range(len(ticks)), ticks, rotation=90)
        left.set(ylim=(0.45, 1.02), ylabel="accuracy, unseen difficulties, T beyond")
        left.set_title("untrained depth embeddings replaced (bars: published)", fontsize=10)
        right.set(ylim=(0, None), xticks=range(0, 25, 4), xlabel="step t", ylabel="mean gate z(t)")
        right.set_title("dashed: published; dotted: the end of the training range", fontsize=10)
        right.legend(fontsize=8, loc="lower right")
        save_figure(figure, path)


def with_other_rows(model: DepthRecurrent, first: int) -> dict[tuple[str, int | None], DepthRecurrent]:
    """(variant, draw) -> the model with other depth embeddings from row `first` on, if it has any."""
    if model.core.depth is None:
        return {("without", None): model}
    table = model.core.depth.weight.detach()
    untrained = table[first:]
    values: dict[tuple[str, int | None], Tensor] = {
        ("baseline", None): untrained,
        ("zero", None): torch.zeros_like(untrained),
        ("clamp", None): table[first - 1].expand_as(untrained),
    }
    for draw in DRAWS:
        noise = torch.randn(untrained.shape, generator=torch.Generator().manual_seed(draw))
        values["reinit", draw] = untrained.std() * noise
    variants = {name: deepcopy(model) for name in values}
    for name, ablated in variants.items():
        ablated.core.get_parameter("depth.weight").data[first:] = values[name]
    return variants


@torch.no_grad()
def gate_rows(model: Model, config: RunConfig, asked: Sequence[Example], most: int) -> list[Row]:
    """Mean and deviation of z(t) over positions and channels; the error of the mean is over positions."""
    encoded = [get_task(config.task).encode(one.question) for one in asked]
    sums, num = torch.zeros(most, 3, dtype=torch.float64), 0
    for _, batch in in_batches(encoded, [one.label for one in asked], config.model.core.feedforward):
        step, scene = model.begin(batch)
        state = State(hidden=scene.first)
        num += int(scene.valid.sum())
        for t in range(1, most + 1):
            state = step(state, scene, t, scene.first.shape[1])
            assert state.gate is not None
            z = state.gate[scene.valid].double()  # (positions, D)
            own = z.mean(dim=1)
            sums[t - 1] += torch.stack([own.sum(), z.square().mean(dim=1).sum(), own.square().sum()])
    return [
        {
            "kind": "gate",
            "t": t,
            "steps_range": "in" if t <= config.train.steps[1] else "beyond",
            "mean": average,
            "std": sqrt(square - average**2),
            "error": sqrt(max(0.0, own_square - average**2) / num),
        }
        for t, (average, square, own_square) in enumerate((sums / num).tolist(), start=1)
    ]


def _agreement(evidence: Evidence, task: str) -> list[Claim]:
    rows = select(evidence.rows, task=task, trained="published", kind="accuracy")
    beyond = _corner(rows)
    means = [_mean(select(beyond, variant=variant)) for variant in VARIANTS]
    draws = [_mean(select(beyond, draw=draw)) for draw in DRAWS]
    spread, inside = max(means) - min(means), max(map(_spread, _by_cell(select(rows, steps_range="in"))))
    cells = _by_cell(beyond)
    pinned = sum(all(row["accuracy"] in (0.5, 1.0) for row in cell) for cell in cells)
    worst = max(cells, key=_spread)
    lowest, *_, highest = sorted(worst, key=lambda row: float(row["accuracy"]))
    figures = (
        f"means differ by {100 * spread:.1f} points, by {100 * (max(draws) - min(draws)):.1f} between draws;"
        f" {pinned} of {len(cells)} cells are pinned at 1 or a half, the one that differs most is difficulty"
        f" {lowest['difficulty']} at T = {lowest['steps']}, {lowest['variant']} {lowest['accuracy']:.3f},"
        f" {highest['variant']} {highest['accuracy']:.3f}; columns of trained T differ by {100 * inside:g}"
    )
    agree = round(spread, 3) <= AGREE and inside == 0
    lost = means[0] - min(means)
    others = ", ".join(f"{name} {value:.3f}" for name, value in zip(VARIANTS, means, strict=True))
    without = _corner(evidence.rows, task=task, variant="without")
    if without:
        others += f"; trained without depth embeddings {_mean(without):.3f}"
        lost = max(lost, means[0] - _mean(without))
    return [
        Claim(
            claim=f"With other untrained depth embeddings accuracy is the same within .5 points ({task})",
            verdict=_verdict(evidence, task, agree and _spread(worst) <= CELL_AGREES, agree),
            figures=figures,
        ),
        Claim(
            claim=f"So extrapolation does not rest on them ({task})",
            verdict=_verdict(evidence, task, lost <= AGREE, lost <= EXPLAINS),
            figures=f"beyond the trained difficulties and steps: {others}",
        ),
    ]


def _continuity(evidence: Evidence, task: str) -> Claim:
    """The jump at the boundary beside those between trained steps, first those where the gate has settled."""
    gate = select(evidence.rows, task=task, trained="published", kind="gate")
    last = len(select(gate, steps_range="in"))
    jumps = [abs(after["mean"] - before["mean"]) for before, after in pairwise(gate)]
    here, trained, settled = jumps[last - 1], max(jumps[: last - 1]), max(jumps[last // 2 : last - 1])
    return Claim(
        claim=f"The gate shows no discontinuity at the boundary ({task})",
        verdict=_verdict(evidence, task, here <= settled, here <= trained),
        figures=f"from t = {last} to {last + 1} its mean moves by {here:.4f}; between trained steps by up to"
        f" {trained:.4f}, in the second half of them by up to {settled:.4f}",
    )


def _verdict(evidence: Evidence, task: str, holds: bool, holds_somewhat: bool) -> Verdict:
    if fewest_updates(evidence, task) < 1:
        return "not tested"
    return "confirmed" if holds else "confirmed, with a caveat" if holds_somewhat else "not confirmed"


def _corner(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The cells of unseen difficulties beyond the trained T."""
    return select(rows, difficulty_range="out", steps_range="beyond", **wanted)


def _by_cell(rows: Sequence[Row]) -> list[list[Row]]:
    """The variants of each cell of the grid."""
    difficulties, steps = distinct(rows, "difficulty"), distinct(rows, "steps")
    return [select(rows, difficulty=h, steps=T) for h in difficulties for T in steps]


def _spread(cell: Sequence[Row]) -> float:
    """How far apart the variants are in one cell."""
    accuracies = [float(row["accuracy"]) for row in cell]
    return max(accuracies) - min(accuracies)


def _mean(cells: Iterable[Row]) -> float:
    return mean(float(cell["accuracy"]) for cell in cells)
