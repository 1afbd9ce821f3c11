"""Fill the tables of README.md and draw the pictures from results/: python -m benchmarks.page."""

import json
from pathlib import Path

from benchmarks.trials import draw_trials
from deepen.bench import Fit, Row, Trial
from deepen.report import draw_contests, draw_growth, fill_page

HERE = Path(__file__).parent
TRIALS = "serve-trials"


def read(name: str) -> list[dict[str, object]]:
    results: list[dict[str, object]] = json.loads((HERE / "results" / f"{name}.json").read_text())["results"]
    return results


def contests(name: str) -> str:
    lines = [
        "| contest | contender | times as fast | lowest - highest round | a second | GFLOP/s | of peak |",
        "|---" * 7 + "|",
    ]
    for row in map(Row.model_validate, read(name)):
        rate = "" if row.gigaflops is None else f"{row.gigaflops:.0f}"
        share = "" if row.share_of_peak is None else f"{100 * row.share_of_peak:.0f} %"
        speed = f"{row.units_per_second:.3g} {row.unit}"
        cells = [row.contest, row.contender, f"{row.ratio:.2f}", f"{row.low:.2f} - {row.high:.2f}"]
        lines.append(f"| {' | '.join([*cells, speed, rate, share])} |")
    return "\n".join(lines)


def growth() -> str:
    lines = [
        "| series | varied | time grows with power | memory grows with power | seconds | peak MB |",
        "|---" * 6 + "|",
    ]
    for fit in map(Fit.model_validate, read("scale")):
        sizes = f"{fit.varied} {', '.join(f'{point.size:g}' for point in fit.points)}"
        seconds = ", ".join(f"{point.seconds:.2f}" for point in fit.points)
        memory = ", ".join(f"{point.megabytes:.0f}" for point in fit.points)
        cells = [fit.series, sizes, f"{fit.time_exponent:.2f}", f"{fit.memory_exponent:.2f}"]
        lines.append(f"| {' | '.join([*cells, seconds, memory])} |")
    return "\n".join(lines)


def trials() -> str:
    found = {one.trial.removeprefix("serve "): one.figures for one in map(Trial.model_validate, read(TRIALS))}
    late, over, end = found["latency"], found["overload"], found["terminating"]
    slower, nonsense = late["slowdown"], found["nonsense"]
    best = min(late["slowdown_p99_at_best"].values())
    rows = [
        ("questions a second over HTTP", f"{late['sustainable_a_second']:.0f}"),
        (
            f"at {late['load']:.0%} of that: times as long as alone, median / p90 / p99",
            f"{slower['median']:.2f} / {slower['p90']:.2f} / {slower['p99']:.2f}",
        ),
        ("the same p99 if steps were all there is to do, at the best of 4 to 64 slots", f"{best:.2f}"),
        ("peak memory at T = 400 relative to T = 4", f"{found['memory']['ratio']:.3f}"),
        (
            f"twice the sustainable load ({over['asked_a_second']:.0f} a second) for a minute",
            f"{over['statuses']['200']:,} answered, {over['wrong']} of them wrong,"
            f" {over['statuses']['429']:,} times 429, {_others(over['statuses'], '200', '429')} other",
        ),
        (
            "latency of those answered, median / p99",
            f"{over['ms']['median']:.0f} / {over['ms']['p99']:.0f} ms",
        ),
        ("memory before and after", f"{over['megabytes'][0]:.0f} / {over['megabytes'][-1]:.0f} MB"),
        (
            "a question alone, right after it",
            f"{over['alone_after_over_before']:.2f} times as long as before",
        ),
        (
            "SIGTERM under full load",
            f"{end['statuses']['200']} answered here, {end['answered_by_its_log']} by the server's log,"
            f" {end['wrong']} wrong, {end['statuses'].get('503', 0)} times 503,"
            f" {end['statuses'].get('-1', 0)} connections that ended without an answer",
        ),
        (
            f"{sum(nonsense['statuses'].values()):,} malformed requests of {nonsense['kinds']} kinds",
            f"{_others(nonsense['statuses'], '400', '404', '413', '422')} without a proper 4xx;"
            f" memory {nonsense['megabytes'][1]:.0f} / {nonsense['megabytes'][-1]:.0f} MB",
        ),
    ]
    return "\n".join(
        ["| trial | measured |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)]
    )


def _others(statuses: dict[str, int], *expected: str) -> int:
    return sum(num for status, num in statuses.items() if status not in expected)


if __name__ == "__main__":
    tables = {name: contests(name) for name in ("train", "grid", "infer", "serve")}
    for name in tables:
        draw_contests([Row.model_validate(row) for row in read(name)], HERE / "results" / f"{name}.png")
    draw_growth([Fit.model_validate(fit) for fit in read("scale")], HERE / "results" / "scale.png")
    draw_trials([Trial.model_validate(trial) for trial in read(TRIALS)], HERE / "results" / f"{TRIALS}.png")
    fill_page(HERE / "README.md", {**tables, "scale": growth(), "trials": trials()})
