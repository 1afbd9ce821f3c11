"""Rows chosen, and shown as Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

from deepen.evidence.noise import Compared
from deepen.evidence.piece import Claim, Evidence, Row


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows in which all the named columns have the given values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The different values of a column, in the order of their appearance."""
    return list(dict.fromkeys(row[column] for row in rows if column in row))


def listed(values: Iterable[float]) -> str:
    """Fractions with three digits, whole numbers as they are."""
    return ", ".join(f"{value:.3f}" if isinstance(value, float) else str(value) for value in values) or "none"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; fractions are given with three digits."""
    shown = [
        " | ".join(
            "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row
        )
        for row in rows
    ]
    return "\n".join(
        f"| {line} |" for line in [" | ".join(columns), " | ".join("---" for _ in columns), *shown]
    )


def comparison_table(compared: Iterable[Compared]) -> str:
    """Ours, published, the difference, and whether it is inside the noise."""
    rows = []
    for one in compared:
        digits = 0 if one.published.value >= 1000 else 3
        difference = f"{one.difference:+,.{digits}f}"
        figures = [f"{value:,.{digits}f}" for value in (one.ours.value, one.published.value)]
        inside = ("yes" if one.is_noise else "no") if one.noise else "not random"
        rows.append((one.what, *figures, difference, f"{one.noise:.3f}", inside))
    if not rows:
        return "Not compared: these models had only a part of the published training."
    return markdown(("figure", "ours", "published", "difference", "noise", "inside the noise"), rows)


def claims_table(claims: Iterable[Claim]) -> str:
    return markdown(
        ("the paper says", "here", "figures"), [(one.claim, one.verdict, one.figures) for one in claims]
    )


def runs_table(evidence: Iterable[Evidence]) -> str:
    """One line a run: how much of the published training it had, and where."""
    rows = [
        (
            one.run,
            f"{one.updates:,}",
            f"{100 * one.share:.0f} %",
            f"{100 * one.share_of_examples:.0f} %",
            one.batch,
            f"{one.parameters:,}",
            f"{one.seconds:.0f}",
            one.threads,
            one.code,
        )
        for some in evidence
        for one in some.runs
    ]
    named = "run, updates, of the published, of its examples, batch, parameters, seconds, threads, code"
    return markdown(named.split(", "), rows)
