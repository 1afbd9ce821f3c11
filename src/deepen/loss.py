"""Silent thinking, and its blend with per-step supervision."""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy


def blended_loss(logits: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """L(alpha) = (1 - alpha) CE(y(T), y) + alpha / T * sum over t of CE(y(t), y).

    `logits` is (B, K): the last step alone for silent thinking (alpha = 0), else every step.
    """
    final = cross_entropy(logits[:, -1], labels)
    if alpha == 0:
        return final
    every = cross_entropy(logits, labels[:, None].expand_as(logits))
    return (1 - alpha) * final + alpha * every
