"""Batch -> Scene: the first hidden state H(0) and how positions may attend to each other.

Three interfaces of falling structural bias (paper, "Task-Specific Perception Interfaces"):
topological sees a graph's edges, hierarchical and unstructured see tokens in order. The last two are
the same module; what differs is the data, whose shuffled facts make distance meaningless. A fourth sees
phrases: fewer positions, and which names each shares with others.
"""

from typing import Final

import torch
from torch import Tensor, nn

from deepen.blocks import rotary_table, sharpness
from deepen.config import ModelConfig
from deepen.layout import Blocks
from deepen.shapes import Batch, Scene


class Topological(nn.Module):
    """A node attends to its in-neighbours and itself, nothing else."""

    num_read: Final = 2  # the readout looks at source and target

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.has_identity = config.perception.vocabulary > 1
        self.crowd = config.perception.crowd
        self.tokens = nn.Embedding(config.perception.vocabulary, config.core.width)
        self.roles = nn.Parameter(torch.empty(2, config.core.width))  # source, target
        self.norm = nn.LayerNorm(config.core.width)
        self.dropout = nn.Dropout(config.core.dropout)

    def forward(self, batch: Batch) -> Scene:
        assert batch.graphs is not None
        assert batch.query is not None
        ids = batch.tokens if self.has_identity else torch.zeros_like(batch.tokens)
        has_role = torch.zeros(*ids.shape, 2, dtype=self.roles.dtype, device=ids.device)
        has_role[0, batch.query, torch.arange(2, device=ids.device)] = 1.0
        hidden = self.tokens(ids) + has_role @ self.roles
        graphs = batch.graphs
        return Scene(
            first=self.dropout(self.norm(hidden)),
            mask=additive(graphs.allowed[:, None], hidden.dtype) if isinstance(graphs, Blocks) else None,
            graphs=graphs,
            sharpness=self._sharpness(graphs.num_in),
            valid=batch.valid,
            read_at=batch.query,
        )

    def _sharpness(self, num_in: Tensor) -> Tensor | None:
        """None where no node has a crowd of in-neighbours, as in training."""
        if self.crowd is None or num_in.max() <= self.crowd:
            return None
        return sharpness(num_in, self.crowd)


class Sequential(nn.Module):
    """Tokens with rotary positions; padding is never attended to."""

    num_read: Final = 1  # the readout looks at <cls>

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width = config.core.width // config.core.heads
        self.perceives = config.perception
        self.tokens = nn.Embedding(config.perception.vocabulary, config.core.width)
        self.norm = nn.LayerNorm(config.core.width)
        self.dropout = nn.Dropout(config.core.dropout)

    def forward(self, batch: Batch) -> Scene:
        hidden = self.dropout(self.norm(self.tokens(batch.tokens)))
        sees = self.perceives
        padded = batch.num_padding > 0
        return Scene(
            first=hidden,
            mask=additive(batch.valid[:, None, None, :], hidden.dtype) if padded else None,
            rotary=rotary_table(self.head_width, sees.rotary_base, sees.rotary_share, numbered(hidden)),
            valid=batch.valid,
            read_at=torch.zeros_like(batch.tokens[:, :1]),
        )


class Phrases(nn.Module):
    """A position for each phrase; who asks is seen by nobody else, so that a text can be asked much at once.

    H(0) of a phrase is a sum over its words, each mapped by a matrix of its place in the phrase.
    """

    num_read: Final = 1

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_width = config.core.width // config.core.heads
        self.perceives = config.perception
        width, words = config.core.width, config.perception.words
        self.tokens = nn.Embedding(config.perception.vocabulary, width)
        self.join = nn.Linear(words * width, width)
        self.names = (
            nn.Parameter(torch.empty(config.core.heads, words, words))
            if config.perception.names_from is not None
            else None
        )
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(config.core.dropout)

    def forward(self, batch: Batch) -> Scene:
        sees = self.perceives
        known = batch.tokens if self.names is None else batch.tokens.clamp(max=sees.vocabulary - 1)
        hidden = self.dropout(self.norm(self.join(self.tokens(known).flatten(2))))
        rotary = rotary_table(self.head_width, sees.rotary_base, sees.rotary_share, numbered(hidden))
        mask = additive(self._may_look(batch)[:, None], hidden.dtype)
        matters = None
        if self.names is not None and sees.names_from is not None:
            alike = likeness(batch.tokens, STRENGTH * self.names, sees.names_from)
            mask = mask + alike
            matters = leads_to_first(alike.detach()) if batch.asked is None else None
        rows_first = torch.zeros_like(batch.tokens[:, :1, 0])
        return Scene(
            first=hidden,
            mask=mask,
            rotary=rotary,
            valid=batch.valid,
            matters=matters,
            read_at=rows_first if batch.asked is None else batch.asked[:, 1:],
            asked_in=None if batch.asked is None else batch.asked[:, :1],
        )

    def _may_look(self, batch: Batch) -> Tensor:
        """(B, L, L): at the text, and at oneself."""
        assert batch.num_asking is not None
        place = torch.arange(batch.valid.shape[1], device=batch.valid.device)
        is_text = batch.valid & (place >= batch.num_asking[:, None])
        return is_text[:, None, :] | (place[:, None] == place)


STRENGTH: Final = 10.0  # so that an optimiser whose steps suit weights moves attention as fast


def likeness(tokens: Tensor, strengths: Tensor, names_from: int) -> Tensor:
    """Sum over places a, b of strengths[h, a, b] wherever word a of phrase i, a name, is word b of phrase j.

    (B, H, L, L), of tokens (B, L, words).
    """
    is_name = tokens >= names_from
    places = is_name.flatten(0, 1).any(dim=0).nonzero().squeeze(1)  # the others are never looked at
    names, is_name, strengths = tokens[..., places], is_name[..., places], strengths[:, places][:, :, places]
    B, L, _ = tokens.shape
    total = strengths.new_zeros(B, len(strengths), L, L)
    for place in range(len(places)):  # one at a time, for there are (words L)^2 pairs
        same = (names[:, :, None, None, place] == names[:, None]) & is_name[:, :, None, None, place]
        total = total + torch.einsum("bijw,hw->bhij", same.to(strengths.dtype), strengths[:, place])
    return total


DRAWN: Final = 2.0  # strength from which on names draw attention: e^2, 7 times that of a phrase with none


def leads_to_first(alike: Tensor) -> Tensor:
    """(B, L): the first phrase, those that shared names draw it to, those that they are drawn to, and so on.

    All of them if it is drawn to none: then it goes by something else.
    """
    looks = (alike >= DRAWN).any(dim=1)
    found = torch.zeros_like(looks[:, 0])
    found[:, 0] = True
    fresh = found.nonzero()
    while len(fresh):  # each phrase is looked from once
        rows, ends = looks[fresh[:, 0], fresh[:, 1]].nonzero(as_tuple=True)
        reached = torch.zeros_like(found)
        reached[fresh[rows, 0], ends] = True
        fresh = (reached & ~found).nonzero()
        found |= reached
    return found | (found.sum(dim=1, keepdim=True) == 1)


def numbered(hidden: Tensor) -> Tensor:
    """(L,): 0, 1, 2, ..."""
    return torch.arange(hidden.shape[1], device=hidden.device, dtype=hidden.dtype)


PERCEPTIONS: dict[str, type[Topological | Sequential | Phrases]] = {
    "topological": Topological,
    "hierarchical": Sequential,
    "unstructured": Sequential,
    "phrases": Phrases,
}


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed, minus infinity where it is not."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, float("-inf"))
