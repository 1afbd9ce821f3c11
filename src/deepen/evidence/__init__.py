"""The registry of pieces of evidence: every table and figure of the paper, by name."""

from deepen.evidence.frontier import Frontier
from deepen.evidence.piece import TASKS, Piece

PIECES: dict[str, Piece] = {piece.name: piece for piece in (*(Frontier(task) for task in TASKS),)}
