"""The registry of pieces of evidence: every table and figure of the paper, by name."""

from deepen.evidence.baselines import Baselines
from deepen.evidence.depth_embedding import DepthEmbedding
from deepen.evidence.frontier import Frontier
from deepen.evidence.gate_gradient import GateGradient
from deepen.evidence.inference_cost import InferenceCost
from deepen.evidence.piece import TASKS, Piece
from deepen.evidence.ponder import Ponder
from deepen.evidence.supervision import Supervision

PIECES: dict[str, Piece] = {
    piece.name: piece
    for piece in (
        *(Frontier(task) for task in TASKS),
        Baselines(),
        Supervision(),
        Ponder(),
        DepthEmbedding(),
        GateGradient(),
        InferenceCost(),
    )
}
