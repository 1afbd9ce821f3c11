"""Audit all three tasks in every distribution that the page speaks of.

    python experiments/shortcuts/run.py [N [TASK ...]]

Writes a folder for each audit (audit.json, audit.png) and the tables between the markers of README.md.
N is the number of examples of each difficulty (default: 20,000); by default all three tasks are audited.
"""

import sys
from pathlib import Path

from deepen.audit import Audit, audit
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.report import draw_audit, fill_page
from deepen.runs import write_atomically
from deepen.tasks.family_samplers import chance_after

HERE = Path(__file__).parent
AUDITS = [
    ("graph", "paper"),
    ("graph", "certified"),
    ("logic", "paper"),
    ("logic", "certified"),
    ("family", "paper"),
    ("family", "certified"),
]
# In and out of the training range; certified examples can be drawn beyond the published difficulties.
DIFFICULTIES = {
    "graph": (1, 2, 3, 4, 5, 6, 8, 10, 12),
    "logic": (1, 2, 4, 6, 8, 10, 12, 14),
    "family": (2, 3, 4, 5, 6, 7, 8, 9),
}


def table(found: Audit) -> str:
    """Markdown: one row a shortcut."""
    difficulties = list(dict.fromkeys(row.difficulty for row in found.rows))
    lines = [f"| {found.difficulty_name} | " + " | ".join(map(str, difficulties)) + " |"]
    lines.append("|---" * (1 + len(difficulties)) + "|")
    for name, steps in dict.fromkeys((row.shortcut, row.steps) for row in found.rows):
        label = name if steps is None else f"{steps} {name}"
        cells = [row for row in found.rows if (row.shortcut, row.steps) == (name, steps)]
        lines.append(f"| {label} | " + " | ".join(f"{row.accuracy:.3f}" for row in cells) + " |")
    return "\n".join(lines)


def promises(audits: list[Audit]) -> str:
    """The largest excess over what the certificate promises, for each certified task."""
    lines = [
        "| task | promises | n each | best score where .500 is promised | largest excess over a promise |"
    ]
    lines.append("|---|---|---|---|---|")
    for found in audits:
        promised = [row for row in found.rows if row.promised is not None]
        half = max(row.accuracy for row in promised if row.promised == 0.5)
        excess = max(row.accuracy - (row.promised or 0) for row in promised)
        lines.append(f"| {found.task} | {len(promised)} | {found.rows[0].num} | {half:.3f} | {excess:+.3f} |")
    return "\n".join(lines)


def partial_sums() -> str:
    """The exact ceiling of what part of a certified family chain gives away."""
    depths = DIFFICULTIES["family"]
    lines = ["| hops seen | " + " | ".join(f"depth {depth}" for depth in depths) + " |"]
    lines.append("|---" * (1 + len(depths)) + "|")
    for seen in range(max(depths)):
        cells = [f"{chance_after(depth, seen):.3f}" if seen <= depth else "" for depth in depths]
        lines.append(f"| {seen} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    chosen = sys.argv[2:] or list(DIFFICULTIES)
    for task, distribution in AUDITS:
        if task in chosen:
            train, difficulties = get_preset(task, "paper").data.difficulties, DIFFICULTIES[task]
            with Bar(f"auditing {task} {distribution}", len(difficulties)) as bar:
                found = audit(task, distribution, train, difficulties, num, watch=bar.show)
            folder = HERE / f"{task}-{distribution}"
            write_atomically(folder / "audit.json", found.model_dump_json().encode() + b"\n")
            draw_audit(found, folder / "audit.png")
    files = {names: HERE / "-".join(names) / "audit.json" for names in AUDITS}
    audits = {
        names: Audit.model_validate_json(file.read_text()) for names, file in files.items() if file.exists()
    }
    tables = {" ".join(names): table(found) for names, found in audits.items()}
    certified = [found for (_, distribution), found in audits.items() if distribution == "certified"]
    fill_page(HERE / "README.md", {**tables, "partial sums": partial_sums(), "promises": promises(certified)})


if __name__ == "__main__":
    main()
