"""Silent thinking against per-step supervision, on graphs: the sweep over alpha and width.

L(alpha) = (1 - alpha) CE(y(T), y) + alpha / T * sum over t of CE(y(t), y)

Beside the published columns stand what a look-up scores on all that one masked step can see (the paper
takes every accuracy above a half for a shortcut), the true-positive rate at 10 hops, and 10 hops with five
times the published cap of steps. One more row labels step t with "reachable within t", which a step can know.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from deepen.audit import fit, score
from deepen.batches import training_example
from deepen.config import RunConfig, changed
from deepen.evidence.noise import Compared, Estimate, of_seeds, sampling_error
from deepen.evidence.piece import Claim, Evidence, Job, Piece, Plan, Row, Verdict
from deepen.evidence.published import published_figures
from deepen.evidence.tables import distinct, markdown, select
from deepen.grid import draw_examples, tally
from deepen.model import Model
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import save_figure
from deepen.tasks import examples

OUTSIDE = (6, 8, 10, 12)
DEEPER_WIDTH = 256  # at which the paper finds silent thinking to solve 10 hops
FURTHER = 100  # five times the published cap
TRAINED_STEPS = range(1, 9)
TESTED = 500  # graphs for each number of hops, here and there
Means = dict[float, dict[str, float]]
"""Alpha to the figures of a row."""
FIGURES = ("step1_12hop", "hop10", "ood", "train_step_mean")


def settings(plan: Plan) -> list[tuple[int, float]]:
    """Width and alpha of every row."""
    if plan.budget == "smoke":
        return [(32, alpha) for alpha in (0.0, 0.1, 1.0)]
    both = [(width, alpha) for width in (128, 256) for alpha in (0.0, 0.1, 1.0)]
    small = [(32, 0.0), (32, 1.0)]
    if plan.budget == "cpu":
        return both
    dose = [(width, alpha) for width in (128, 256) for alpha in (0.25, 0.5, 0.75, 0.9)]
    return both + dose + small + [(width, alpha) for width in (64, 192, 384) for alpha in (0.0, 1.0)]


def seeds_for(plan: Plan, width: int) -> tuple[int, ...]:
    """As many as published: five from d = 192 on; within the budget of a CPU three."""
    seeds = plan.seeds_for("graph")
    if plan.seeds is None and plan.budget == "paper" and width >= 192:
        return (*seeds, 45, 46)
    return seeds


class Supervision(Piece):
    """Table "supervision strategies" and the figures of its text."""

    name = "supervision"
    title = "Silent thinking against intermediate supervision"
    tasks = ("graph",)

    def jobs(self, plan: Plan) -> list[Job]:
        jobs = []
        for width, alpha in settings(plan):
            for seed in seeds_for(plan, width):
                names = {"width": width, "alpha": alpha, "labels": "final"}
                jobs.append(Job(_config(plan, width, alpha, seed), names))
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
        return [
            {
                "parameters": model.num_parameters,
                "step1_12hop": found[12].accuracy(1),
                "step1_12hop_look_up": one_step_look_up(config.grid.distribution, 12),
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
                        published=_estimate(width, alpha, figure, others, sampling_error(mean(others), num)),
                    )
                )
        return compared

    def claims(self, evidence: Evidence) -> list[Claim]:
        width = min(DEEPER_WIDTH, max(distinct(evidence.rows, "width")))
        at = {alpha: _means(evidence, width, alpha) for d, alpha in _rows_of(evidence) if d == width}
        claims = [self._early_answers(width, at), self._deeper(evidence, width, at)]
        return claims + self._labels(evidence, width, at) + self._growth(evidence)

    def _early_answers(self, width: int, at: Means) -> Claim:
        silent, full = at[0.0]["step1_12hop"], at[1.0]["step1_12hop"]
        look_up = at[0.0]["step1_12hop_look_up"]
        verdict: Verdict = "not confirmed"
        if full - silent >= 0.05:
            verdict = "confirmed, with a caveat" if full <= look_up + 0.02 else "confirmed"
        return Claim(
            claim="Per-step supervision answers 12-hop questions after one step, so it learns shortcuts",
            verdict=verdict,
            figures=f"d = {width}, step 1, 12 hops: silent {silent:.3f}, alpha = 1 {full:.3f}; all that one"
            f" masked step can see of these graphs allows {look_up:.3f}, not a half",
        )

    def _deeper(self, evidence: Evidence, width: int, at: Means) -> Claim:
        supervised = {alpha: row for alpha, row in at.items() if alpha}
        gain = at[0.0]["hop10"] - max(row["hop10"] for row in supervised.values())
        late = max(row["hop10_further"] for row in supervised.values()) >= 0.9
        small = {alpha: _means(evidence, 32, alpha) for d, alpha in _rows_of(evidence) if d == 32 != width}
        elsewhere = bool(small) and small[1.0]["hop10"] >= small[0.0]["hop10"]
        verdict: Verdict = "not confirmed"
        if gain >= 0.1:
            verdict = "confirmed, with a caveat" if late or elsewhere else "confirmed"
        figures = "; ".join(
            f"alpha = {alpha:g} {row['hop10']:.3f}, {row['hop10_further']:.3f} at T = {FURTHER}"
            for alpha, row in sorted(at.items())
        )
        if small:
            figures += "; at d = 32 " + ", ".join(f"alpha = {a:g} {r['hop10']:.3f}" for a, r in small.items())
        return Claim(
            claim="Only silent thinking solves 10 hops at d = 256",
            verdict=verdict,
            figures=f"10 hops at d = {width}: {figures}",
        )

    def _labels(self, evidence: Evidence, width: int, at: Means) -> list[Claim]:
        known = select(evidence.rows, labels="within t", width=width)
        if not known:
            return []
        within, final, silent = mean(row["hop10"] for row in known), at[1.0]["hop10"], at[0.0]["hop10"]
        harms = final <= silent - 0.1
        verdict: Verdict = "not confirmed"
        if harms:
            verdict = "confirmed" if within <= (final + silent) / 2 else "confirmed, with a caveat"
        return [
            Claim(
                claim="Supervising every step undermines extrapolation (also with labels a step can know)",
                verdict=verdict,
                figures=f"10 hops at d = {width}: silent {silent:.3f}, final labels {final:.3f}, labels"
                f" 'reachable within t' {within:.3f} ({len(known)} seed{'s' * (len(known) > 1)})",
            )
        ]

    def _growth(self, evidence: Evidence) -> list[Claim]:
        wide = [d for d in (128, 256, 384) if {(d, 0.0), (d, 1.0)} <= set(_rows_of(evidence))]
        if len(wide) < 2:
            return []
        silent, full = ([_means(evidence, d, alpha)["ood"] for d in wide] for alpha in (0.0, 1.0))
        grows = silent[-1] - silent[0] >= 0.03 and abs(full[-1] - full[0]) <= 0.03
        listed = [" ".join(f"{value:.3f}" for value in values) for values in (silent, full)]
        return [
            Claim(
                claim="With width silent thinking goes deeper, per-step supervision does not",
                verdict="confirmed" if grows else "not confirmed",
                figures=f"OOD at d = {', '.join(map(str, wide))}: silent {listed[0]}, alpha = 1 {listed[1]}",
            )
        ]

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
        dose.text(0.02, rows[0]["step1_12hop_look_up"], "all that one step can see", va="bottom", fontsize=8)
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


@cache
def one_step_look_up(distribution: str, hops: int) -> float:
    """What a look-up scores on all that one masked step can see: who leads to the source and the target."""

    def view(question: Any) -> tuple[bool, int, int, bool]:
        before: dict[Any, set[Any]] = {node: set() for node in question["nodes"]}
        for start, end in question["edges"]:
            before[end].add(start)
        source, target = question["source"], question["target"]
        return source in before[target], len(before[target]), len(before[source]), target in before[source]

    own, drawn = (examples("graph", distribution, hops, num=2000, split=one) for one in ("train", "valid"))
    table = fit([view(one.question) for one in own], [one.label for one in own])
    return score(table, [view(one.question) for one in drawn], [one.label for one in drawn])


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
    names = (*FIGURES, "hop10_further", "step1_12hop_look_up")
    return {name: mean(row[name] for row in rows) for name in names}


def _estimate(width: int, alpha: float, figure: str, values: Sequence[float], sampling: float) -> Estimate:
    """Of some figures only the mean over the seeds is published; it stands there for each of them."""
    if [width, alpha] in published_figures()["supervision"]["only_means"].get(figure, ()):
        return Estimate(value=mean(values), sampling=sampling, seeds=len(values))
    return of_seeds(values, sampling)


def _published(width: int, alpha: float) -> Sequence[dict[str, Any]]:
    return select(published_figures()["supervision"]["per_seed"], width=width, alpha=alpha)
