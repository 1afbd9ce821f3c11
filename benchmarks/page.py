"""Fill the tables of README.md and draw the pictures from results/: python benchmarks/page.py."""

import json
from pathlib import Path

from deepen.bench import Fit, Row
from deepen.report import draw_contests, draw_growth, fill_page

HERE = Path(__file__).parent


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


if __name__ == "__main__":
    tables = {name: contests(name) for name in ("train", "grid", "infer")}
    for name in tables:
        draw_contests([Row.model_validate(row) for row in read(name)], HERE / "results" / f"{name}.png")
    draw_growth([Fit.model_validate(fit) for fit in read("scale")], HERE / "results" / "scale.png")
    fill_page(HERE / "README.md", {**tables, "scale": growth()})
