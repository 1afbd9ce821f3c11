"""Silent thinking against per-step supervision, on graphs: the sweep over alpha and width.

L(alpha) = (1 - alpha) CE(y(T), y) + alpha / T * sum over t of CE(y(t), y)

Beside the published columns stand what an honest look-up scores after one step (the paper takes every
accuracy above a half for a shortcut), the true-positive rate at 10 hops, and 10 hops with twice the
published cap of steps. An additional row labels step t with "reachable within t", which a model can know.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from deepen.audit import ceiling
from deepen.batches import training_example
from deepen.config import RunConfig, changed
from deepen.evidence.piece import (
    Claim,
    Compared,
    Evidence,
    Job,
    Piece,
    Plan,
    Row,
    distinct,
    markdown,
    of_seeds,
    sampling_error,
    select,
)
from deepen.evidence.published import published_figures
from deepen.grid import draw_examples, tally
from deepen.model import Model
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import save_figure

OUTSIDE = (6, 8, 10, 12)
DEEPER_WIDTH = 256  # at which the paper finds silent thinking to solve 10 hops
FURTHER = 40  # twice the published cap
TRAINED_STEPS = range(1, 9)
TESTED = 500  # graphs for each number of hops, here and there
FIGURES = ("step1_12hop", "hop10", "ood", "train_step_mean")


def settings(plan: Plan) -> list[tuple[int, float]]:
    """Width and alpha of every row."""
    if plan.budget == "smoke":
        return [(32, alpha) for alpha in (0.0, 0.1, 1.0)]
    both = [(width, alpha) for width in (128, 256) for alpha in (0.0, 0.1, 1.0)]
    small = [(32, 0.0), (32, 1.0)]
    if plan.budget == "cpu":
        return both + small
    dose = [(width, alpha) for width in (128, 256) for alpha in (0.25, 0.5, 0.75, 0.9)]
    return both + dose + small + [(width, alpha) for width in (64, 192, 384) for alpha in (0.0, 1.0)]


class Supervision(Piece):
    """Table "supervision strategies" and the figures of its text."""

    name = "supervision"
    title = "Silent thinking against intermediate supervision"

    def jobs(self, plan: Plan) -> list[Job]:
        jobs = []
        for width, alpha in settings(plan):
            seeds = plan.seeds_for("graph")
            for seed in seeds[:1] if width == 32 and plan.budget == "cpu" else seeds:
                jobs.append(
                    Job(
                        _config(plan, width, alpha, seed), {"width": width, "alpha": alpha, "labels": "final"}
                    )
                )
        # Where silent thinking is said to go deeper.
        width = min(DEEPER_WIDTH, max(width for width, _ in settings(plan)))
        known_seeds = plan.seeds_for("graph")[: None if plan.budget == "paper" else 1]
        for seed in known_seeds:
            known = changed(_config(plan, width, 1.0, seed), train__step_labels="within")
            jobs.append(Job(known, {"width": width, "alpha": 1.0, "labels": "within t"}))
        return jobs

    def measure(self, model: Model, config: RunConfig, plan: Plan) -> list[Row]:
        with Bar(f"measuring {config.run_name}", len(OUTSIDE) + 1) as bar:
            found = {}
            for number, hops in enumerate(OUTSIDE, start=1):
                found[hops] = tally(model, config, draw_examples("graph", config.grid, hops), FURTHER)
                bar.show(number)
            assert config.data.train_set is not None
            seen = [training_example(config, index) for index in range(config.data.train_set)]
            trained = tally(model, config, seen, TRAINED_STEPS[-1])
            bar.show(len(OUTSIDE) + 1)
        enough = {hops: [T for T in config.grid.steps if hops <= T] for hops in OUTSIDE}
        best = {hops: max(enough[hops], key=found[hops].accuracy) for hops in OUTSIDE}
        honest = ceiling("graph", config.grid.distribution, config.data.difficulties, [12])
        return [
            {
                "parameters": model.num_parameters,
                "step1_12hop": found[12].accuracy(1),
                "step1_12hop_look_up": honest(12, 1),
                "hop10": found[10].accuracy(best[10]),
                "hop10_true_positive_rate": found[10].rate(True, best[10]),
                "hop10_further": found[10].accuracy(FURTHER),
                "ood": mean(found[hops].accuracy(best[hops]) for hops in OUTSIDE),
                "train_step_mean": mean(trained.accuracy(T) for T in TRAINED_STEPS),
                "num": found[10].total,
            }
        ]

    def compare(self, evidence: Evidence) -> list[Compared]:
        compared = []
        for width, alpha in _rows_of(evidence):
            ours = select(evidence.rows, width=width, alpha=alpha, labels="final")
            theirs = _published(width, alpha)
            if not theirs:
                continue
            for figure in FIGURES:
                values, others = [row[figure] for row in ours], [row[figure] for row in theirs]
                num = 12_000 if figure == "train_step_mean" else TESTED * (4 if figure == "ood" else 1)
                compared.append(
                    Compared(
                        what=f"d = {width}, alpha = {alpha:g}, {figure}",
                        ours=of_seeds(values, sampling_error(mean(values), num)),
                        published=of_seeds(others, sampling_error(mean(others), num)),
                    )
                )
        return compared

    def claims(self, evidence: Evidence) -> list[Claim]:
        widest = max(distinct(evidence.rows, "width"))
        at = {
            alpha: _means(evidence, widest, alpha) for width, alpha in _rows_of(evidence) if width == widest
        }
        silent, full = at[0.0], at[1.0]
        look_up = silent["step1_12hop_look_up"]
        early = full["step1_12hop"] - silent["step1_12hop"] >= 0.05
        deeper = (
            silent["hop10"] - max(row["hop10"] for alpha, row in at.items() if alpha) if len(at) > 1 else 0.0
        )
        claims = [
            Claim(
                claim="Per-step supervision answers 12-hop questions after one step, which is a shortcut",
                verdict="not confirmed"
                if not early
                else "confirmed, with a caveat"
                if full["step1_12hop"] <= look_up + 0.02
                else "confirmed",
                figures=f"d = {widest}, step 1, 12 hops: silent {silent['step1_12hop']:.3f}, alpha = 1"
                f" {full['step1_12hop']:.3f}; an honest look-up of one step's view scores {look_up:.3f},"
                " so it need not be a fault of the model",
            ),
            Claim(
                claim="Only silent thinking turns width into depth: 10 hops at d = 256",
                verdict="confirmed" if deeper >= 0.1 else "not confirmed",
                figures=f"10 hops at d = {widest}: "
                + ", ".join(f"alpha = {alpha:g} {row['hop10']:.3f}" for alpha, row in sorted(at.items())),
            ),
        ]
        known = select(evidence.rows, labels="within t")
        if known:
            width = known[0]["width"]
            final = _means(evidence, width, 1.0)
            claims.append(
                Claim(
                    claim="What harms is a loss at every step (not its labels, which no early step can know)",
                    verdict="confirmed" if known[0]["ood"] <= final["ood"] + 0.02 else "not confirmed",
                    figures=f"d = {width}, alpha = 1, OOD: final labels {final['ood']:.3f}, labels 'reachable"
                    f" within t' {known[0]['ood']:.3f} (10 hops {known[0]['hop10']:.3f})",
                )
            )
        return claims

    def table(self, evidence: Evidence) -> str:
        lines = []
        for width, alpha, labels in dict.fromkeys(
            (row["width"], row["alpha"], row["labels"]) for row in evidence.rows
        ):
            rows = select(evidence.rows, width=width, alpha=alpha, labels=labels)
            theirs = _published(width, alpha) if labels == "final" else []
            cells: list[object] = [width, f"{alpha:g}", labels, f"{rows[0]['parameters']:,}", len(rows)]
            for figure in FIGURES:
                published = f" ({mean(row[figure] for row in theirs):.3f})" if theirs else ""
                cells.append(f"{mean(row[figure] for row in rows):.3f}{published}")
            seeds = " ".join(f"{row['hop10']:.3f}" for row in rows)
            rates = mean(row["hop10_true_positive_rate"] for row in rows)
            further = mean(row["hop10_further"] for row in rows)
            lines.append([*cells, seeds, rates, further, rows[0]["step1_12hop_look_up"]])
        columns = (
            "d, alpha, step labels, parameters, seeds, 12 hops at step 1, 10 hops, OOD, train (step mean),"
            f" 10 hops by seed, TPR of it, 10 hops at T = {FURTHER}, look-up at step 1"
        )
        return "In brackets: published.\n\n" + markdown(columns.split(", "), lines)

    def draw(self, evidence: Evidence, path: Path) -> None:
        """Dose-response over alpha, and OOD over width."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(14, 4), layout="constrained")
        dose, deep, capacity = figure.subplots(1, 3)
        rows = select(evidence.rows, labels="final")
        for colour, width in enumerate(distinct(rows, "width")):
            alphas = sorted(distinct(select(rows, width=width), "alpha"))
            for axes, name in ((dose, "step1_12hop"), (deep, "ood")):
                ours = [mean(row[name] for row in select(rows, width=width, alpha=a)) for a in alphas]
                axes.plot(alphas, ours, "o-", color=f"C{colour}", label=f"d = {width}")
                known = [a for a in alphas if _published(width, a)]
                theirs = [mean(row[name] for row in _published(width, a)) for a in known]
                axes.plot(known, theirs, "x--", color=f"C{colour}", alpha=0.6)
        dose.axhline(rows[0]["step1_12hop_look_up"], color="grey", linestyle=":")
        dose.text(0.02, rows[0]["step1_12hop_look_up"], "honest look-up", va="bottom", fontsize=8)
        dose.set(xlabel="alpha", title="12 hops after one step")
        deep.set(xlabel="alpha", title="OOD, enough steps")
        for colour, alpha in enumerate((0.0, 1.0)):
            widths = sorted(distinct(select(rows, alpha=alpha), "width"))
            points = [(row["width"], row["ood"]) for row in select(rows, alpha=alpha)]
            if points:
                capacity.plot(*zip(*points, strict=True), "o", color=f"C{colour}", alpha=0.5)
                means = [mean(row["ood"] for row in select(rows, width=w, alpha=alpha)) for w in widths]
                capacity.plot(widths, means, "-", color=f"C{colour}", label=f"alpha = {alpha:g}")
            theirs = [
                (w, mean(row["ood"] for row in _published(w, alpha))) for w in (32, 64, 128, 192, 256, 384)
            ]
            capacity.plot(*zip(*theirs, strict=True), "x--", color=f"C{colour}", alpha=0.6)
        capacity.set(xlabel="width d", title="OOD over width")
        for axes in (dose, deep, capacity):
            axes.legend(fontsize=8, title="crosses: published", title_fontsize=8)
        save_figure(figure, path)


def _config(plan: Plan, width: int, alpha: float, seed: int) -> RunConfig:
    """Heads of 32 channels, a feed-forward part twice as wide."""
    return changed(
        plan.fitted(get_preset("graph", "paper", seed)),
        train__alpha=alpha,
        model__core__width=width,
        model__core__heads=width // 32,
        model__core__feedforward=2 * width,
    )


def _rows_of(evidence: Evidence) -> list[tuple[int, float]]:
    rows = select(evidence.rows, labels="final")
    return list(dict.fromkeys((row["width"], row["alpha"]) for row in rows))


def _means(evidence: Evidence, width: int, alpha: float) -> dict[str, float]:
    """The means over the seeds of one row's figures."""
    rows = select(evidence.rows, width=width, alpha=alpha, labels="final")
    return {name: mean(row[name] for row in rows) for name in (*FIGURES, "step1_12hop_look_up")}


def _published(width: int, alpha: float) -> Sequence[dict[str, Any]]:
    return select(published_figures()["supervision"]["per_seed"], width=width, alpha=alpha)
