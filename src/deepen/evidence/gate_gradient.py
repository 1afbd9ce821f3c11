"""Does a gate bias of -2 keep the gradient alive over T steps, and would it vanish with a bias of 0?

The paper calculates and measures nothing: of dH(t)/dH(t-1) = (1 - z) + z dC/dH it follows the first term,
with z at its initial bias, to .88^T and .5^T. Here the gradient that reaches H(0) is measured, relative
to the one at H(T), and beside it what arrives along the identity path alone: the gradient at H(T) times the
product of the measured (1 - z), channel by channel, for a gate that is open in one channel and closed in the
next lets through what no mean of them would. The candidate C = H + e_t + ... contains H itself, so what the
path loses the other term can bring back.

Three gates (bias -2, bias 0, none), with LayerScale and without; at initialisation on graphs and logic,
and after training on graphs.
"""

from itertools import product
from math import exp, log10
from pathlib import Path
from statistics import mean

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from deepen.batches import collate
from deepen.config import PaperTask, RunConfig, changed
from deepen.evidence.noise import Compared, Estimate, of_seeds
from deepen.evidence.piece import SEEDS, Claim, Evidence, Job, Piece, Plan, Row, Verdict
from deepen.evidence.published import published_figures
from deepen.evidence.tables import distinct, markdown, select
from deepen.model import DepthRecurrent, Model
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import save_figure
from deepen.shapes import Batch, State
from deepen.tasks import examples, get_task

BIASES = (-2.0, 0.0, None)
SCALES = (1e-4, None)
MEASURED: tuple[PaperTask, ...] = ("graph", "logic")
PANELS = (("initial", "logic"), ("initial", "graph"), ("trained", "graph"))
UPDATES_ON_TWO_CORES = 1_000
AT = 20  # the T of the paper's example
VANISHED = 1e-3


class GateGradient(Piece):
    name = "gate-gradient"
    title = "Why a negative gate bias prevents vanishing gradients"
    tasks = MEASURED

    def jobs(self, plan: Plan) -> list[Job]:
        if "graph" not in plan.tasks:
            return []
        configs = _configs("graph", plan, plan.seeds_for("graph")[0])
        if plan.budget == "cpu":
            configs = [changed(config, train__updates=UPDATES_ON_TWO_CORES) for config in configs]
        return [Job(config, {"when": "trained", **_ingredients(config)}) for config in configs]

    def measure(self, model: Model, config: RunConfig, plan: Plan) -> list[Row]:
        own = _ingredients(config)
        return [{**own, **row} for row in attenuations(model, _batch(config, plan), _steps(plan))]

    def measure_untrained(self, plan: Plan) -> list[Row]:
        seeds = plan.seeds or (SEEDS[:1] if plan.budget == "smoke" else SEEDS)
        tasks = [task for task in MEASURED if task in plan.tasks]
        configs = [config for task in tasks for seed in seeds for config in _configs(task, plan, seed)]
        rows: list[Row] = []
        with Bar("measuring initial models", len(configs)) as bar, torch.random.fork_rng():
            for number, config in enumerate(configs, start=1):
                torch.manual_seed(config.seed)  # the weights that a training starts from
                model = DepthRecurrent(config.model).eval()
                own = {"task": config.task, "seed": config.seed, "when": "initial"}
                rows += [{**own, **row} for row in self.measure(model, config, plan)]
                bar.show(number)
        return rows

    def compare(self, evidence: Evidence) -> list[Compared]:
        """Logarithms, since the figures span seven orders of magnitude."""
        published = published_figures()["gate_gradient"]
        decays = {-2.0: published["decay_T20_bias_minus_2"], 0.0: published["decay_T20_bias_0"]}
        initial = select(evidence.rows, when="initial", task="logic", layer_scale=1e-4, T=AT)
        compared = []
        for (bias, decay), column in product(decays.items(), ("identity_path", "attenuation")):
            values = [log10(row[column]) for row in select(initial, gate_bias=bias)]
            if values:
                compared.append(
                    Compared(
                        what=f"log10 {column.replace('_', ' ')}, logic, initial, {_named(bias)}, T = {AT}",
                        ours=of_seeds(values),
                        published=Estimate(value=log10(decay)),
                    )
                )
        return compared

    def claims(self, evidence: Evidence) -> list[Claim]:
        initial = select(evidence.rows, when="initial", task="logic", layer_scale=1e-4, T=AT)
        if not initial:
            return []
        alive = _mean(select(initial, gate_bias=-2.0), "attenuation")
        symmetric = _mean(select(initial, gate_bias=0.0), "attenuation")
        path = _mean(select(initial, gate_bias=-2.0), "identity_path")
        verdicts: list[Verdict] = ["not confirmed", "confirmed" if path >= alive / 2 else "not confirmed"]
        if symmetric < VANISHED <= alive:
            as_predicted = 1 / 3 <= alive / predicted(-2.0, AT) <= 3
            verdicts[0] = "confirmed" if as_predicted else "confirmed, with a caveat"
        published = {"logic": 1e-4, "graph": None}  # LayerScale of the published models
        paths = [
            f"{task}, {when}: {_mean(rows, 'identity_path'):.2g} of {_mean(rows, 'attenuation'):.2g}"
            for when, task in PANELS
            if (
                rows := select(
                    evidence.rows, when=when, task=task, layer_scale=published[task], gate_bias=-2.0, T=AT
                )
            )
        ]
        return [
            Claim(
                claim="Gate bias -2 keeps the gradient alive over 20+ steps: .88^T instead of .5^T",
                verdict=verdicts[0],
                figures=f"logic, initial, gradient at H(0) relative to H({AT}): {_summary(evidence)}"
                + "; the candidate contains H, so that (1 - z) + z = 1" * (symmetric >= VANISHED),
            ),
            Claim(
                claim="The identity path dominates; LayerScale makes the rest negligible at initialisation",
                verdict=verdicts[1],
                figures=f"the path alone, of all that arrives, T = {AT}, bias -2: {'; '.join(paths)}",
            ),
        ]

    def table(self, evidence: Evidence) -> str:
        steps = [T for T in (1, 4, 8, 12, 16, AT, 24, 28) if select(evidence.rows, T=T)]
        lines = []
        for (when, task), scale, bias in product(PANELS, SCALES, BIASES):
            rows = select(evidence.rows, when=when, task=task, layer_scale=scale, gate_bias=bias)
            if rows:
                cells = [f"{_mean(select(rows, T=T), 'attenuation'):.2g}" for T in steps]
                path = "" if bias is None else f"{_mean(select(rows, T=AT), 'identity_path'):.2g}"
                size = f"{_mean(select(rows, T=AT), 'norm'):.2g}"
                lines.append(
                    (when, task, _named(bias), f"{scale:g}" if scale else "none", *cells, path, size)
                )
        columns = ("weights", "task", "gate", "LayerScale", *(f"T={T}" for T in steps))
        return markdown((*columns, f"identity path, T={AT}", f"norm at H(0), T={AT}"), lines)

    def draw(self, evidence: Evidence, path: Path) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(12, 4.2), layout="constrained")
        for axes, (when, task) in zip(figure.subplots(1, 3, sharey=True), PANELS, strict=True):
            shown = select(evidence.rows, when=when, task=task)
            for (number, bias), scale in product(enumerate(BIASES), SCALES):
                rows = select(shown, layer_scale=scale, gate_bias=bias)
                label = f"{_named(bias)}, {'LayerScale' if scale else 'no LayerScale'}"
                style = "-" if scale else ".-"
                axes.plot(*_curve(rows, "attenuation"), style, color=f"C{number}", label=label)
            for number, bias in enumerate((-2.0, 0.0)):
                rows = select(shown, layer_scale=1e-4, gate_bias=bias)
                label = f"{_named(bias)}: the identity path alone"
                axes.plot(*_curve(rows, "identity_path"), ":", color=f"C{number}", linewidth=2.5, label=label)
                decay = [predicted(bias, T) for T in range(1, 29)]
                label = f"{_named(bias)}: predicted, {decay[0]:.2g}$^T$"
                axes.plot(range(1, 29), decay, "--", color="black", linewidth=0.8, label=label)
            updates = max((one.updates for one in evidence.runs), default=0)
            title = f"{task}, {when}" + f" ({updates:,} updates)" * (when == "trained")
            axes.set(yscale="log", xlabel="steps T", title=title)
            axes.grid(alpha=0.3)
        figure.axes[0].set_ylabel("gradient at H(0) relative to H(T)")
        labelled = figure.axes[0].get_legend_handles_labels()
        figure.legend(*labelled, loc="outside lower center", ncols=5, fontsize=8)
        save_figure(figure, path)


def attenuations(model: Model, batch: Batch, steps: tuple[int, ...]) -> list[Row]:
    """One unroll of all positions, and a gradient from the loss after each T back to H(0)."""
    step, scene = model.begin(batch)
    start = scene.first.detach().requires_grad_()
    state, path, rows = State(hidden=start), torch.ones_like(start), []
    for t in range(1, max(steps) + 1):
        state = step(state, scene, t, start.shape[1])
        if state.gate is not None:
            path = path * (1 - state.gate.detach())
        if t in steps:
            loss = cross_entropy(model.read(state, scene), batch.labels)
            at_start, at_end = torch.autograd.grad(loss, [start, state.hidden], retain_graph=True)
            norm = at_start.norm().item()
            rows.append(
                {
                    "T": t,
                    "norm": norm,
                    "attenuation": norm / at_end.norm().item(),
                    "identity_path": None
                    if state.gate is None
                    else (at_end * path).norm().item() / at_end.norm().item(),
                }
            )
    return rows


def predicted(bias: float, num_steps: int) -> float:
    """(1 - sigmoid(bias))^T: the identity path with every gate at its bias."""
    return (1 + exp(bias)) ** -num_steps


def _configs(task: PaperTask, plan: Plan, seed: int) -> list[RunConfig]:
    config = plan.fitted(get_preset(task, "paper", seed))
    return [
        changed(config, model__core__gate_bias=bias, model__core__layer_scale=scale)
        for scale, bias in product(SCALES, BIASES)
    ]


def _ingredients(config: RunConfig) -> Row:
    core = config.model.core
    return {"gate_bias": core.gate_bias, "layer_scale": core.layer_scale}


def _batch(config: RunConfig, plan: Plan) -> Batch:
    """The same questions for every model of a task, of the middle training difficulty."""
    num = 4 if plan.budget == "smoke" else 16
    middle = sum(config.data.difficulties) // 2
    drawn = examples(config.task, config.data.distribution, middle, seed=0, num=num, split="valid")
    encode = get_task(config.task).encode
    return collate([encode(one.question) for one in drawn], [one.label for one in drawn])


def _steps(plan: Plan) -> tuple[int, ...]:
    return (1, 8, AT) if plan.budget == "smoke" else tuple(range(1, 29))


def _mean(rows: list[Row], column: str) -> float:
    """Over the seeds; of logarithms, so that no seed outweighs the others."""
    return float(10 ** mean(log10(row[column]) for row in rows))


def _curve(rows: list[Row], column: str) -> tuple[list[int], list[float]]:
    steps = distinct(rows, "T")
    return steps, [_mean(select(rows, T=T), column) for T in steps]


def _named(bias: float | None) -> str:
    return "no gate" if bias is None else f"bias {bias:g}"


def _summary(evidence: Evidence) -> str:
    """The initial models of the paper's example at T = 20, in words."""
    parts = []
    for scale in SCALES:
        rows = select(evidence.rows, when="initial", task="logic", layer_scale=scale, T=AT)
        found = [
            f"{_named(bias)} {_mean(select(rows, gate_bias=bias), 'attenuation'):.2g}" for bias in BIASES
        ]
        parts.append(f"{'with' if scale else 'without'} LayerScale {', '.join(found)}")
    return "; ".join(parts)
