"""Silent thinking, its blend with per-step supervision, and a fuller answer than yes or no."""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from torch.nn.functional import cross_entropy as categorical_cross_entropy


def blended_loss(logits: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """L(alpha) = (1 - alpha) CE(y(T), y) + alpha / T * sum over t of CE(y(t), y).

    `logits` is (B, K): the last step alone for silent thinking (alpha = 0), else every step; `labels` is
    (B,), or (B, K) where steps have labels of their own.
    """
    labels = labels.view(len(logits), -1).expand_as(logits)
    final = cross_entropy(logits[:, -1], labels[:, -1])
    if alpha == 0:
        return final
    return (1 - alpha) * final + alpha * cross_entropy(logits, labels)


def known_within(labels: Tensor, difficulty: Tensor, steps: Tensor) -> Tensor:
    """(B, K): yes from the step on that can know it, t = difficulty; before that nobody can."""
    return labels[:, None] * (steps[None] >= difficulty[:, None])


def told_loss(logits: Tensor, words: Tensor) -> Tensor:
    """CE of (questions, words) logits with the words that would have been right to claim; 0: not known."""
    total = categorical_cross_entropy(logits, words, ignore_index=0, reduction="sum")
    return total / (words != 0).sum().clamp(min=1)
