"""What is seen of the state -> one logit: an MLP on the states of the positions the scene points at.

Pair of nodes (source and target, concatenated) for graphs, <cls> for text: the same module over two
positions or one (paper, "Task-Specific Readout Mechanisms").
"""

from torch import Tensor, nn
from torch.nn import functional as F

from deepen.shapes import Scene


class Readout(nn.Module):
    """LN - Linear - GELU - Dropout - Linear."""

    def __init__(self, width: int, num_positions: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(num_positions * width)
        self.hidden = nn.Linear(num_positions * width, width)
        self.dropout = nn.Dropout(dropout)
        self.logit = nn.Linear(width, 1)

    def forward(self, seen: Tensor, scene: Scene) -> Tensor:
        chosen = seen[scene.rows, scene.read_at].flatten(1)  # (questions, positions * D)
        logit: Tensor = self.logit(self.dropout(F.gelu(self.hidden(self.norm(chosen)))))
        return logit.squeeze(-1)
