"""The cost of thinking: the core's memory and latency against T, and the cache of a model that writes.

The paper holds everything its core occupies, in float32, against the key-value cache alone, in float16,
of a backbone four times as wide. Here the same is done, and once more with a backbone of the core's own
width; and the time a token takes, which the paper leaves out, stands beside the time of a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import correlation, linear_regression
from typing import Any

import torch

from deepen.config import CoreConfig
from deepen.evidence.memory_probe import (
    Backbone,
    in_fresh_process,
    measure_cache,
    measure_core,
    measure_latency,
    measure_model,
)
from deepen.evidence.noise import Compared, Estimate
from deepen.evidence.piece import Budget, Claim, Evidence, Piece, Plan, Row, Verdict
from deepen.evidence.published import published_figures
from deepen.evidence.tables import distinct, markdown, select
from deepen.progress import Bar
from deepen.report import save_figure

LENGTH = 128
STEPS = (1, 2, 4, 8, 16, 32, 64)
CORE = CoreConfig(width=256, heads=8, feedforward=1024, depth_rows=128, gate_bias=-2.0)
PUBLISHED = Backbone(width=1024, heads=16, layers=24)  # GPT-2 medium
MATCHED = Backbone(width=256, heads=8, layers=24)
FLAT = 0.02
MEGABYTE = 1e6  # as in the published figures


@dataclass(frozen=True)
class Setting:
    """What is measured within a budget."""

    core: CoreConfig
    backbones: tuple[Backbone, ...]
    batches: tuple[int, ...]
    steps: tuple[int, ...]


SETTINGS: dict[Budget, Setting] = {
    "smoke": Setting(
        core=CoreConfig(width=32, heads=2, feedforward=64, depth_rows=8, gate_bias=-2.0),
        backbones=(Backbone(width=32, heads=2, layers=2),),
        batches=(1, 2),
        steps=(1, 2, 4),
    ),
    "cpu": Setting(CORE, (PUBLISHED, MATCHED), batches=(1, 8, 32), steps=STEPS),
    "paper": Setting(CORE, (PUBLISHED, MATCHED), batches=(1, 32, 128, 512), steps=STEPS),
}


class InferenceCost(Piece):
    """Memory and latency against the number of thinking steps."""

    name = "inference-cost"
    title = "Computational and memory complexity"
    tasks = ()

    @property
    def published(self) -> dict[str, Any]:
        figures: dict[str, Any] = published_figures()["inference_cost"]
        return figures

    def measure_untrained(self, plan: Plan) -> list[Row]:
        setting, threads = SETTINGS[plan.budget], torch.get_num_threads()
        core, steps = setting.core, setting.steps
        rows, done = [measure_model(CORE, LENGTH)], 0
        with Bar("measuring", len(setting.backbones) + len(setting.batches) * (1 + len(steps))) as bar:
            # The backbones first: whoever lacks their library should not learn it at the end.
            for backbone in setting.backbones:
                rows += in_fresh_process(measure_cache, backbone, LENGTH, steps, threads)
                bar.show(done := done + 1)
            for batch in setting.batches:
                seconds = in_fresh_process(measure_latency, core, batch, LENGTH, steps, threads)
                bar.show(done := done + 1, f"B = {batch}")
                for T in steps:
                    memory = in_fresh_process(measure_core, core, batch, LENGTH, T, threads)
                    rows.append({**memory, "seconds": seconds[T]})
                    bar.show(done := done + 1, f"B = {batch}, T = {T}")
        return rows

    def compare(self, evidence: Evidence) -> list[Compared]:
        model = select(evidence.rows, kind="model")[0]
        compared = [
            _exactly("parameters of the core", model["parameters"], self.published["core_parameters"])
        ]
        if not _is_published_scale(evidence) or not _is_linear(evidence):
            return compared
        a_token = _bytes_per_token(evidence, PUBLISHED.width)
        here = "live tensors on a CPU, published: CUDA memory with library workspace"
        compared.append(
            _exactly("cache, bytes a token, d = 1024", a_token, self.published["cache_bytes_per_token"])
        )
        for batch in self._published_batches(evidence):
            core = _footprint(evidence, batch)
            figures = (
                ("cache over core at T = 64", 64 * batch * a_token / core, "kv_over_core_T64"),
                ("T at which the cache passes the core", core / (batch * a_token), "crossover_T"),
                ("core's peak, MB", core / MEGABYTE, "peak_mb"),
            )
            compared += [
                _exactly(f"{what}, B = {batch} ({here})", ours, self.published[name][str(batch)])
                for what, ours, name in figures
            ]
        return compared

    def claims(self, evidence: Evidence) -> list[Claim]:
        return [
            self._flat_memory(evidence),
            self._linear_latency(evidence),
            self._cache_passes(evidence),
            self._cheaper_together(evidence),
        ]

    def _flat_memory(self, evidence: Evidence) -> Claim:
        """From two steps on: the first has the input itself as its state, and no gate before it."""
        grown, process, figures = [], [], []
        for batch in _batches(evidence):
            few, many = _core_row(evidence, batch, 2), _core_row(evidence, batch, _most_steps(evidence))
            grown.append(many["live_bytes"] / few["live_bytes"] - 1)
            if many["process_bytes"]:  # not every system says
                process.append(many["process_bytes"] / few["process_bytes"] - 1)
            figures.append(
                f"B = {batch}: {few['live_bytes'] / MEGABYTE:.2f} MB at T = 2,"
                f" {many['live_bytes'] / MEGABYTE:.2f} at T = {many['steps']}"
            )
        verdict: Verdict = "confirmed" if max(process, default=0) <= FLAT else "confirmed, with a caveat"
        return Claim(
            claim="Peak memory does not grow with T",
            verdict=verdict if max(map(abs, grown)) <= FLAT else "not confirmed",
            figures=f"live tensors, {'; '.join(figures)}; the process, with what its allocator has freed and"
            f" keeps: {', '.join(f'{100 * share:+.0f} %' for share in process) or 'not measured'}",
        )

    def _cheaper_together(self, evidence: Evidence) -> Claim:
        most = _most_steps(evidence)
        each = {batch: _core_row(evidence, batch, most)["seconds"] / batch for batch in _batches(evidence)}
        falls = all(after < before for before, after in pairwise(each.values()))
        listed = ", ".join(f"{1000 * seconds:.0f} ms (B = {batch})" for batch, seconds in each.items())
        return Claim(
            claim="Latency a query falls as the batch grows",
            verdict="confirmed" if falls else "not confirmed",
            figures=f"T = {most}: {listed}; two cores are busy with a few queries, a GPU is not",
        )

    def _linear_latency(self, evidence: Evidence) -> Claim:
        shares = {batch: _fit(evidence, batch)[2] for batch in _batches(evidence)}
        return Claim(
            claim="Latency is linear in T",
            verdict="confirmed" if min(shares.values()) > 0.99 else "not confirmed",
            figures="R^2 of a straight line: " + ", ".join(f"{r:.4f} (B = {b})" for b, r in shares.items()),
        )

    def _cache_passes(self, evidence: Evidence) -> Claim:
        """In the published batches, no later than published; a caveat, if not in all or at matched width."""
        claim = "The key-value cache grows linearly with T and passes the core's footprint at T = 19-31"
        batches = self._published_batches(evidence)
        if not batches or not _is_published_scale(evidence):
            return Claim(claim=claim, verdict="not tested", figures="needs d = 1024 and a published batch")
        most, is_linear = _most_steps(evidence), _is_linear(evidence)
        wide, matched = (_bytes_per_token(evidence, width) for width in (PUBLISHED.width, MATCHED.width))
        in_time, matched_shares, figures = [], [], []
        for batch in batches:
            core = _footprint(evidence, batch)
            crossing = core / (batch * wide)
            in_time.append(crossing <= self.published["crossover_T"][str(batch)])
            matched_shares.append(most * batch * matched / core)
            figures.append(
                f"B = {batch}: passed at T = {crossing:.1f}; at T = {most} it is"
                f" {most * batch * wide / core:.2f} of the core, at matched width (d = 256)"
                f" {matched_shares[-1]:.2f}"
            )
        never = [b for b in _batches(evidence) if _footprint(evidence, b) > most * b * wide]
        if never:
            figures.append(f"not passed by T = {most} at B = {', '.join(map(str, never))}")
        caveat = bool(never) or min(matched_shares) <= 1
        verdict: Verdict = "confirmed, with a caveat" if caveat else "confirmed"
        return Claim(
            claim=claim,
            verdict=verdict if is_linear and all(in_time) else "not confirmed",
            figures=f"{'exactly' if is_linear else 'not'} linear; thinking tokens only; {'; '.join(figures)}",
        )

    def _published_batches(self, evidence: Evidence) -> list[int]:
        return [batch for batch in _batches(evidence) if str(batch) in self.published["crossover_T"]]

    def table(self, evidence: Evidence) -> str:
        """The core's points with the caches they meet; then the backbones; then the cost model."""
        widths = distinct(select(evidence.rows, kind="cache"), "width")
        points = []
        for row in select(evidence.rows, kind="core"):
            caches = [row["steps"] * row["batch"] * _bytes_per_token(evidence, width) for width in widths]
            process = row["process_bytes"]
            points.append(
                (
                    row["batch"],
                    row["steps"],
                    f"{row['live_bytes'] / MEGABYTE:.2f}",
                    "" if process is None else f"{process / MEGABYTE:.1f}",
                    f"{1e3 * row['seconds'] / row['batch']:.3f}",
                    *(f"{cache / MEGABYTE:.2f} ({cache / row['live_bytes']:.2f})" for cache in caches),
                )
            )
        columns = ("B", "T", "live tensors, MB", "process, MB", "ms a query")
        caches_named = [f"cache of T tokens, d = {width}, MB (of the core)" for width in widths]
        return "\n\n".join(
            (
                markdown((*columns, *caches_named), points),
                self._backbone_table(evidence, widths),
                self._model_table(evidence),
            )
        )

    def _backbone_table(self, evidence: Evidence, widths: Sequence[int]) -> str:
        """Thinking of one question: a token of a backbone beside a step of the core."""
        most = _most_steps(evidence)
        core = _core_row(evidence, 1, most)
        lines: list[tuple[object, ...]] = [
            (f"core, d = {core['width']}", "none", f"{1e3 * core['seconds'] / most:.2f}", most)
        ]
        for width in widths:
            (row,) = _generated(evidence, width, batch=1)
            lines.append(
                (
                    f"{row['layers']} layers, d = {width}",
                    f"{_bytes_per_token(evidence, width):,}",
                    f"{1e3 * row['seconds'] / row['steps']:.2f}",
                    f"{row['layers'] * most:,}",
                )
            )
        columns = ("B = 1", "cache, bytes a token", "ms a step or token", f"layers in a row at T = {most}")
        return markdown(columns, lines)

    def _model_table(self, evidence: Evidence) -> str:
        (row,) = select(evidence.rows, kind="model")
        formulas = {
            "parameters": "parameters, 6 d^2 + 2 d f + 10 d + f + 128 d",
            "flop": "FLOP a step, 4 L^2 d + 12 L d^2 + 4 L d f",
        }
        lines = [
            (formula, f"{row[f'{name}_formula']:,}", f"{row[name]:,}") for name, formula in formulas.items()
        ]
        return markdown(("core, d = 256, f = 1024, L = 128", "formula", "counted"), lines)

    def draw(self, evidence: Evidence, path: Path) -> None:
        from matplotlib import colormaps
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 4.6), layout="constrained")
        memory, latency = figure.subplots(1, 2)
        batches, widths = _batches(evidence), distinct(select(evidence.rows, kind="cache"), "width")
        styles = dict(zip(widths, ("--", ":"), strict=False))
        for place, batch in enumerate(batches):
            colour = colormaps["viridis"](0.85 * place / max(1, len(batches) - 1))
            rows = select(evidence.rows, kind="core", batch=batch)
            steps = [row["steps"] for row in rows]
            memory.plot(steps, [row["live_bytes"] / MEGABYTE for row in rows], "o-", color=colour, ms=4)
            for width, style in styles.items():
                cache = [T * batch * _bytes_per_token(evidence, width) / MEGABYTE for T in steps]
                memory.plot(steps, cache, style, color=colour)
            slope, start, share = _fit(evidence, batch)
            label = f"core, B = {batch} ($R^2$ = {share:.4f})"
            times = [1e3 * row["seconds"] / batch for row in rows]
            latency.plot(steps, times, "o", color=colour, ms=4, label=label)
            latency.plot(steps, [1e3 * (start + slope * T) / batch for T in steps], "-", color=colour, lw=1)
        for width, marker in zip(widths, "xs", strict=False):
            for row in _generated(evidence, width, batch=1):
                label = f"{row['layers']} layers, d = {width}, B = 1, tokens"
                latency.plot(
                    row["steps"], 1e3 * row["seconds"], marker, color="crimson", mfc="none", label=label
                )
        memory.plot([], [], "o-", color="grey", ms=4, label="core: all live tensors, float32")
        for width, style in styles.items():
            memory.plot([], [], style, color="grey", label=f"cache of T tokens, d = {width}, float16")
        memory.set(xscale="log", yscale="log", title="memory, MB")
        memory.set_xticks(steps, [str(T) for T in steps])
        memory.minorticks_off()
        latency.set(ylim=(0, None), title="latency a query, ms; lines: straight fits")
        for axes in (memory, latency):
            axes.set_xlabel("thinking steps or tokens T")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
        save_figure(figure, path)


def _exactly(what: str, ours: float, published: float) -> Compared:
    """Nothing of this is random."""
    return Compared(what=what, ours=Estimate(value=ours), published=Estimate(value=published))


def _is_published_scale(evidence: Evidence) -> bool:
    return bool(select(evidence.rows, kind="cache", width=PUBLISHED.width, layers=PUBLISHED.layers))


def _batches(evidence: Evidence) -> list[int]:
    return distinct(select(evidence.rows, kind="core"), "batch")


def _most_steps(evidence: Evidence) -> int:
    most: int = max(distinct(select(evidence.rows, kind="core"), "steps"))
    return most


def _core_row(evidence: Evidence, batch: int, steps: int) -> Row:
    return select(evidence.rows, kind="core", batch=batch, steps=steps)[0]


def _footprint(evidence: Evidence, batch: int) -> int:
    """The core's peak at the largest T."""
    live: int = _core_row(evidence, batch, _most_steps(evidence))["live_bytes"]
    return live


def _bytes_per_token(evidence: Evidence, width: int) -> int:
    """What the cache of one sequence grows by."""
    row = select(evidence.rows, kind="cache", width=width, batch=1, steps=_most_steps(evidence))[0]
    a_token: int = row["thinking_bytes"] // row["steps"]
    return a_token


def _is_linear(evidence: Evidence) -> bool:
    """Whether every measured cache is batch x T x bytes a token, so that other batches can be scaled to."""
    return all(
        row["thinking_bytes"] == row["batch"] * row["steps"] * _bytes_per_token(evidence, row["width"])
        for row in select(evidence.rows, kind="cache")
    )


def _generated(evidence: Evidence, width: int, batch: int) -> list[Row]:
    rows = select(evidence.rows, kind="cache", width=width, batch=batch)
    return [row for row in rows if row["seconds"] is not None]


def _fit(evidence: Evidence, batch: int) -> tuple[float, float, float]:
    """Seconds as a straight line of T: slope, intercept, R^2."""
    rows = select(evidence.rows, kind="core", batch=batch)
    steps, seconds = [float(row["steps"]) for row in rows], [float(row["seconds"]) for row in rows]
    line = linear_regression(steps, seconds)
    return line.slope, line.intercept, correlation(steps, seconds) ** 2
