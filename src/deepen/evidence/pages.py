"""Stored evidence -> pages: tables, verdicts and pictures between the markers of Markdown files.

Nothing is trained or measured here. Of several budgets in a folder the largest counts.
"""

from collections.abc import Mapping
from os.path import relpath
from pathlib import Path

from deepen.evidence.piece import (
    Budget,
    Claim,
    Distribution,
    Evidence,
    EvidenceError,
    Piece,
    Plan,
    read_evidence,
)
from deepen.evidence.tables import claims_table, comparison_table, markdown, runs_table
from deepen.report import fill_page

BUDGETS: tuple[Budget, ...] = ("paper", "cpu", "smoke")
SKELETON = """# {title}

<!-- claims -->
<!-- /claims -->

<!-- picture -->
<!-- /picture -->

## Beside the published figures
<!-- comparison -->
<!-- /comparison -->

## Everything
<!-- table -->
<!-- /table -->
"""
OTHER_MODEL = (
    "Trained and tested on certified examples, by the same rules; published figures in it are of published"
    " examples. The nodes of certified graphs have no names: there are more of them than letters."
)
OF_RUNS = """
## On certified examples
<!-- certified -->
<!-- /certified -->

## Runs
<!-- runs -->
<!-- /runs -->
"""


def read_best(piece: Piece, folder: Path, distribution: Distribution) -> Evidence | None:
    """The results of the largest budget, or None if there are none."""
    for budget in BUDGETS:
        file = folder / f"{Plan(budget=budget, distribution=distribution).stem}.json"
        if file.exists():
            evidence = read_evidence(file)
            if evidence.piece != piece.name:
                raise EvidenceError(f"{file} holds results of {evidence.piece}, not of {piece.name}")
            return evidence
    return None


def judged(piece: Piece, evidence: Evidence) -> list[Claim]:
    """The claims with their verdicts; a smoke test proves nothing."""
    claims = piece.claims(evidence)
    if evidence.plan.budget != "smoke":
        return claims
    return [claim.model_copy(update={"verdict": "not tested"}) for claim in claims]


def write_pages(pieces: Mapping[str, Piece], experiments: Path, readme: Path | None) -> list[Path]:
    """Fill the page of every piece that has results, and the table of claims in the README."""
    written, lines = [], []
    for name, piece in pieces.items():
        folder = experiments / name
        evidence = read_best(piece, folder, "paper")
        if evidence is None:
            continue
        page = folder / "README.md"
        stem = evidence.plan.stem
        if not page.exists():
            skeleton = SKELETON + OF_RUNS * bool(evidence.runs)
            page.write_text(skeleton.format(title=piece.title))
        piece.draw(evidence, folder / f"{stem}.png")
        claims = judged(piece, evidence)
        tasks = evidence.plan.tasks
        some = f" --tasks {' '.join(tasks)}" if set(tasks) < set(piece.tasks) else ""
        made = f"Made by `deepen reproduce {name} --budget {evidence.plan.budget}{some}`"
        tables = {
            "claims": claims_table(claims),
            "picture": f"![{name}]({stem}.png)\n\n{made}; all rows are in `{stem}.json`.",
            "comparison": comparison_table(piece.compare(evidence)),
            "table": piece.table(evidence),
        }
        if evidence.runs:
            certified = read_best(piece, folder, "certified")
            if certified is not None:
                piece.draw(certified, folder / f"{certified.plan.stem}.png")
            tables["certified"] = _certified(piece, certified)
            tables["runs"] = runs_table([one for one in (evidence, certified) if one is not None])
        fill_page(page, tables)
        written.append(page)
        link = f"[{name}]({relpath(page, readme.parent if readme else experiments)})"
        if evidence.plan.budget != "smoke":
            lines += [(link, one.claim, one.verdict, one.figures) for one in claims]
    if readme is not None and lines:
        fill_page(readme, {"claims": markdown(("piece", "the paper says", "here", "figures"), lines)})
        written.append(readme)
    return written


def _certified(piece: Piece, evidence: Evidence | None) -> str:
    if evidence is None:
        return "Not measured yet."
    picture = f"![{piece.name}, certified]({evidence.plan.stem}.png)"
    parts = (OTHER_MODEL, picture, claims_table(judged(piece, evidence)), piece.table(evidence))
    return "\n\n".join(parts)
