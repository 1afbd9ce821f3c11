"""Grids -> tables and figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from deepen.audit import Audit
from deepen.bench import PEAK, Fit, Row
from deepen.grid import Cell, Grid
from deepen.runs import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPARKS = "▁▂▃▄▅▆▇█"


def table(grid: Grid) -> str:
    """Accuracy, then both rates, in per cent; 100 means every single one."""
    blocks: list[tuple[str, Callable[[Cell], float | None]]] = [
        ("accuracy", lambda cell: cell.accuracy),
        ("true-positive rate", lambda cell: cell.true_positive_rate),
        ("true-negative rate", lambda cell: cell.true_negative_rate),
        ("ceiling: what a look-up scores with T steps of honest work", lambda cell: cell.ceiling),
    ]
    label = grid.difficulty_name
    lines = []
    for title, value in blocks:
        lines.append(f"{title}, % (columns: steps)")
        lines.append(f"{label:>8} " + "".join(f"{steps:>4}" for steps in grid.config.steps))
        for difficulty in grid.config.difficulties:
            shown = [_percent(value(grid.cell(difficulty, steps))) for steps in grid.config.steps]
            lines.append(f"{difficulty:>8} " + "".join(f"{text:>4}" for text in shown))
        lines.append("")
    widest = max((cell.high - cell.low for cell in grid.cells), default=0.0)
    lines.append(f"n = {grid.config.num_examples} a row; the widest 95% interval is {widest:.3f}")
    lines.append(summary(grid))
    return "\n".join(lines)


def summary(grid: Grid) -> str:
    """Reach and slack in two lines."""
    label = grid.difficulty_name
    reach = "none" if grid.reach is None else f"{grid.reach} {label}"
    slack = ", ".join(f"{h}: {'never' if s is None else f'{s:+d}'}" for h, s in grid.slack.items())
    return f"reach: {reach} (largest {label} solved at >= .99 given twice as many steps)\nslack: {slack}"


def _percent(share: float | None) -> str:
    # Rounded down, so that 100 is only printed for a flawless cell.
    return "-" if share is None else str(int(100 * share + 1e-9))


def audit_table(audit: Audit) -> str:
    """One line a shortcut, one column a difficulty, in per cent; ! where a certificate is broken."""
    difficulties = list(dict.fromkeys(row.difficulty for row in audit.rows))
    lines = [f"accuracy of shortcuts, % (columns: {audit.difficulty_name}; n = {audit.rows[0].num} each)"]
    lines.append(f"{'':40}" + "".join(f"{difficulty:>8}" for difficulty in difficulties))
    for name, steps in dict.fromkeys((row.shortcut, row.steps) for row in audit.rows):
        label = name if steps is None else f"{steps} {name}"
        cells = [row for row in audit.rows if (row.shortcut, row.steps) == (name, steps)]
        shown = [f"{100 * row.accuracy:.1f}{'!' if row.breaks_its_promise else ' '}" for row in cells]
        lines.append(f"{label:40}" + "".join(f"{text:>8}" for text in shown))
    promised = [row for row in audit.rows if row.promised is not None]
    if promised:
        worst = max(promised, key=lambda row: row.accuracy - (row.promised or 0))
        lines.append(
            f"certified: {len(promised)} promises, {sum(row.breaks_its_promise for row in promised)} broken;"
            f" the largest excess is {100 * (worst.accuracy - (worst.promised or 0)):.1f} points"
            f" ({worst.shortcut}, {audit.difficulty_name} {worst.difficulty})"
        )
    return "\n".join(lines)


def draw_audit(audit: Audit, path: Path) -> None:
    """What can be scored with k steps of information: a curve for each difficulty."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    difficulties = list(dict.fromkeys(row.difficulty for row in audit.rows))
    for place, difficulty in enumerate(difficulties):
        rows = [row for row in audit.rows if row.difficulty == difficulty]
        colour = colormaps["viridis"](0.9 * place / max(1, len(difficulties) - 1))
        curve = [(row.steps, row.accuracy) for row in rows if row.steps is not None]
        surface = max(row.accuracy for row in rows if row.steps is None)
        axes.plot(*zip(*curve, strict=True), marker="o", markersize=3.5, color=colour, label=str(difficulty))
        axes.plot([-0.6], [surface], marker="_", markersize=14, markeredgewidth=2, color=colour)
    axes.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("steps of honest work (bars at the left: the best surface statistic, no work at all)")
    axes.set_ylabel("accuracy of a look-up")
    axes.set_ylim(0.3, 1.02)
    axes.set_title(f"{audit.task}, {audit.distribution}: what can be scored with k steps of information")
    axes.legend(title=audit.difficulty_name, fontsize=8, loc="lower right", ncols=2)
    save_figure(figure, path)


AROUND = "| hops | T = h-1 | T = h | T = 1.1h | T = 3h | n |"


def around_the_frontier(grid: Grid, difficulties: Iterable[int]) -> list[str]:
    """Markdown rows under AROUND: accuracies with their intervals, where they were measured."""
    measured: dict[tuple[int, int | None], Cell] = {(one.difficulty, one.steps): one for one in grid.cells}
    rows = []
    for h in difficulties:
        a_tenth_more = h + h // 10 if h >= 10 else None
        cells = [measured.get((h, steps)) for steps in (h - 1, h, a_tenth_more, 3 * h)]
        shown = [
            "" if cell is None else f"{cell.accuracy:.3f} [{cell.low:.3f}, {cell.high:.3f}]" for cell in cells
        ]
        rows.append(f"| {h} | {' | '.join(shown)} | {grid.config.num_examples} |")
    return rows


def fill_page(page: Path, tables: Mapping[str, str]) -> None:
    """Put each table between its markers, <!-- name --> and <!-- /name -->, in a Markdown page."""
    text = page.read_text()
    for name, content in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        if (text.count(start), text.count(end)) != (1, 1) or text.index(start) > text.index(end):
            raise ValueError(
                f"{page} has no place for '{name}': it needs <!-- {name} --> and, after it, <!-- /{name} -->,"
                " each on a line of its own and once"
            )
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = f"{before}<!-- {name} -->\n{content}\n<!-- /{name} -->\n{after}"
    write_atomically(page, text.encode())


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A curve between 0 and 1 in one line of text."""
    stride = max(1, -(-len(values) // width))
    return "".join(SPARKS[min(int(value * len(SPARKS)), len(SPARKS) - 1)] for value in values[::stride])


def draw_frontier(grid: Grid, path: Path) -> None:
    """The heatmap: dashed lines at the training boundaries, a solid one where T = difficulty."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = grid.config.difficulties, grid.config.steps
    accuracy = [[grid.cell(row, column).accuracy for column in columns] for row in rows]
    figure = Figure(figsize=(2.2 + 0.52 * len(columns), 1.9 + 0.42 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(accuracy, vmin=0.45, vmax=1.0, cmap="viridis", aspect="auto", origin="lower")
    for y, values in enumerate(accuracy):
        for x, value in enumerate(values):
            ink = "black" if value > 0.8 else "white"
            text = f"{value:.2f}" if value < 0.995 or value == 1 else ">.99"
            axes.text(x, y + 0.12, text, ha="center", va="center", fontsize=8, color=ink)
            ceiling = grid.cell(rows[y], columns[x]).ceiling
            if ceiling < 0.995:
                axes.text(x, y - 0.26, f"{ceiling:.2f}", ha="center", va="center", fontsize=5.5, color=ink)
    for edge in _boundaries(columns, grid.train_steps):
        axes.axvline(edge, color="crimson", linestyle="--", linewidth=1.6)
    for edge in _boundaries(rows, grid.train_difficulties):
        axes.axhline(edge, color="crimson", linestyle="--", linewidth=1.6)
    _draw_diagonal(axes.plot, rows, columns)
    axes.set_xticks(range(len(columns)), [str(column) for column in columns])
    axes.set_yticks(range(len(rows)), [str(row) for row in rows])
    axes.set_xlabel("thinking steps T")
    axes.set_ylabel(grid.difficulty_name)
    (low, high), (fewest, most) = grid.train_difficulties, grid.train_steps
    axes.set_title(
        f"{grid.task}: accuracy, n = {grid.config.num_examples} a row\n"
        f"dashed: training range ({grid.difficulty_name} {low}-{high}, T {fewest}-{most});"
        f" white: T = {grid.difficulty_name};\n"
        "small: what a look-up scores with T steps of honest work",
        fontsize=10,
    )
    figure.colorbar(image, ax=axes, label="accuracy")
    save_figure(figure, path)


def save_figure(figure: "Figure", path: Path) -> None:
    """The same picture, the same bytes."""
    picture = BytesIO()
    figure.savefig(picture, dpi=130, metadata={"Software": None})
    write_atomically(path, picture.getvalue())


def _boundaries(values: Sequence[int], trained: tuple[int, int]) -> list[float]:
    """Where, between two ticks, training began and ended; nothing at the rim of the picture."""
    inside = [place for place, value in enumerate(values) if trained[0] <= value <= trained[1]]
    if not inside:
        return []
    return [edge for edge in (inside[0] - 0.5, inside[-1] + 0.5) if -0.5 < edge < len(values) - 0.5]


def _draw_diagonal(plot: Callable[..., object], rows: Sequence[int], columns: Sequence[int]) -> None:
    """A staircase left of the first cell of each row that has as many steps as its difficulty."""
    edges = [sum(column < row for column in columns) - 0.5 for row in rows]
    xs = [edge for edge in edges for _ in range(2)]
    ys = [level for y in range(len(rows)) for level in (y - 0.5, y + 0.5)]
    plot(xs, ys, color="white", linewidth=1.4)


def draw_contests(rows: Sequence[Row], path: Path) -> None:
    """A bar for each contender: how many times as fast as its rival, with the range over the rounds."""
    from matplotlib.figure import Figure

    rivals_itself = [row for row in rows if row.low == row.high == 1.0]
    shown = [row for row in rows if row.contender != PEAK and row not in rivals_itself]
    figure = Figure(figsize=(8, 0.8 + 0.32 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(shown):
        ours = row.contender.startswith(("deepen", "each"))
        axes.barh(place, row.ratio, color="#2b6cb0" if ours else "#b0b7c3")
        axes.plot([row.low, row.high], [place, place], color="#1a202c", linewidth=1)
        share = "" if row.share_of_peak is None else f"  ({100 * row.share_of_peak:.0f}% of peak)"
        axes.text(row.high, place, f"  {row.ratio:.2f}x{share}", va="center", fontsize=8)
    axes.axvline(1, color="#1a202c", linewidth=0.8)
    names = [f"{row.contest}: {row.contender}" for row in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(row.high for row in shown))
    axes.set_xlabel("times as fast as the rival (bar: median; line: all rounds)")
    save_figure(figure, path)


def draw_growth(fits: Sequence[Fit], path: Path) -> None:
    """Time and peak memory over size, one line a series, with the fitted exponents."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for fit in fits:
        sizes = [point.size / fit.points[0].size for point in fit.points]
        label = f"{fit.series}: time {fit.time_exponent:.2f}, memory {fit.memory_exponent:.2f}"
        time.plot(sizes, [point.seconds for point in fit.points], "o-", label=label)
        memory.plot(sizes, [max(point.megabytes, 1.0) for point in fit.points], "o-")
    for axes, title in ((time, "seconds"), (memory, "peak memory, MB")):
        axes.set(xscale="log", yscale="log", xlabel="size, relative to the smallest", title=title)
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, title="exponents")
    save_figure(figure, path)
