"""How graphs lie in memory: the small ones of a batch as blocks, a large one as an edge list.

Edge lists are also how small graphs lie that come and go (lanes.py): there is nothing to pad but the
number of in-neighbours.

A node's state k steps before the end can change the answer only if k edges or fewer lead from it to one
of the two nodes that are read. So all nodes of a batch stand in one row, in the order of that distance:
what still matters is always the first part of the row, and leaving the rest out costs nothing. Nodes
from which no path leads to a queried node are not even in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, device

SMALL = 512  # nodes of a graph that is never an edge list
SPARSE = 16  # nor is one whose matrix is less than so many times as large as its list
EDGES_AT_ONCE = 2**18  # of a large graph: what an attention step holds in memory at a time

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Movable:
    """A record of tensors."""

    def to(self, target: device) -> Self:
        """The same record on another device."""

        def moved(value: Any) -> Any:
            if isinstance(value, Tensor | Movable):
                return value.to(target)
            return tuple(moved(one) for one in value) if isinstance(value, tuple) else value

        return replace(self, **{one.name: moved(getattr(self, one.name)) for one in fields(self)})


@dataclass(frozen=True, kw_only=True)
class Blocks(Movable):
    """Small graphs: their nodes in one row, and for attention each graph in slots of its own."""

    places: Tensor  # (B, S) where the node of each slot is in the row; anywhere if a graph has fewer
    owner: Tensor  # (N,) the graph of each node
    slot: Tensor  # (N,) the slot of each node
    allowed: Tensor  # (B, S, S) true at [b, v, u] if u -> v is an edge or u is v
    counts: Tensor  # (B, K) the nodes of each graph within 0, 1, 2, ... edges of the queried ones

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """How many nodes of the row are within 0, 1, 2, ... edges of the queried ones."""
        return tuple(self.counts.sum(dim=0).tolist())

    @cached_property
    def num_slots(self) -> dict[int, int]:
        """How many slots the first nodes of the row take up, for each number in `needed`."""
        return dict(zip(self.needed, self.counts.amax(dim=0).tolist(), strict=True))

    @property
    def num_scores(self) -> int:
        """How many attention scores a head computes for all nodes."""
        return self.allowed.numel()

    @property
    def num_in(self) -> Tensor:
        """(N,) in-neighbours of each node, itself among them."""
        return self.allowed.sum(dim=-1)[self.owner, self.slot]

    def select(self, stay: Tensor) -> tuple[Self, Tensor, Tensor]:
        """Some of the graphs; where the nodes that stay were in the row; where each node now is."""
        new_owner = torch.full_like(self.counts[:, 0], -1)
        new_owner[stay] = torch.arange(len(stay), device=stay.device)
        kept = (new_owner[self.owner] >= 0).nonzero().squeeze(1)
        new_place = torch.zeros_like(self.owner)
        new_place[kept] = torch.arange(len(kept), device=stay.device)
        chosen = replace(
            self,
            places=new_place[self.places[stay]],
            owner=new_owner[self.owner[kept]],
            slot=self.slot[kept],
            allowed=self.allowed[stay],
            counts=self.counts[stay],
        )
        return chosen, kept, new_place


@dataclass(frozen=True, kw_only=True)
class Bucket(Movable):
    """Nodes of a large graph with about the same number of in-neighbours."""

    nodes: Tensor  # (n,) increasing
    sources: Tensor  # (n, d) the in-neighbours of each, itself among them; one of these if there are fewer
    present: Tensor  # (n, d) false where there are fewer than d


@dataclass(frozen=True, kw_only=True)
class EdgeList(Movable):
    """One large graph, or several: their nodes in one row, in memory linear in the number of edges."""

    buckets: tuple[Bucket, ...]
    owner: Tensor  # (N,) the graph of each node
    needed: tuple[int, ...]  # how many nodes are within 0, 1, 2, ... edges of the queried ones

    @property
    def num_in(self) -> Tensor:
        """(N,) in-neighbours of each node, itself among them."""
        nodes = torch.cat([bucket.nodes for bucket in self.buckets])
        numbers = torch.cat([bucket.present.sum(dim=1) for bucket in self.buckets])
        return torch.empty_like(nodes).index_copy_(0, nodes, numbers)

    @property
    def num_scores(self) -> int:
        """How many attention scores a head computes for all nodes."""
        return sum(bucket.present.numel() for bucket in self.buckets)


def is_large(num_nodes: int, num_edges: int) -> bool:
    """Whether a graph is better kept as an edge list."""
    return num_nodes > SMALL and SPARSE * num_edges < num_nodes**2


def as_blocks(
    edges: Sequence[IntArray], most: int, query: IntArray, whole: bool = False
) -> tuple[Blocks, IntArray, IntArray]:
    """Blocks; graph and node (2, N) of everyone in the row; where the queried nodes (B, 2) are in it.

    `whole` keeps nodes that cannot change an answer, and makes graphs equally large with more such nodes.
    """
    num = len(edges)
    graph = np.arange(num)[:, None]
    allowed = np.zeros((num, most, most), dtype=np.bool_)
    start, end = np.concatenate(edges).T
    allowed[np.repeat(graph[:, 0], [len(rows) for rows in edges]), end, start] = True
    allowed |= np.eye(most, dtype=np.bool_)
    near = np.zeros((num, most), dtype=np.bool_)
    near[graph, query] = True
    distance = np.zeros((num, most), dtype=np.int64)
    counts = [near.sum(axis=1)]
    while True:
        distance += ~near
        nearer = np.asarray((allowed & near[:, :, None]).any(axis=1))
        if (nearer == near).all():
            break
        near = nearer
        counts.append(near.sum(axis=1))
    if whole:
        near = np.ones_like(near)
        counts.append(near.sum(axis=1))
    order = distance.argsort(axis=1, kind="stable")[:, : counts[-1].max()]  # (B, S)
    slot_of = np.zeros_like(distance)
    np.put_along_axis(slot_of, order, np.arange(order.shape[1])[None], axis=1)
    owner, node = np.nonzero(near)
    row = distance[owner, node].argsort(kind="stable")
    owner, node = owner[row], node[row]
    places = np.zeros_like(order)
    places[owner, slot_of[owner, node]] = np.arange(len(owner))
    blocks = Blocks(
        places=torch.from_numpy(places),
        owner=torch.from_numpy(owner),
        slot=torch.from_numpy(slot_of[owner, node]),
        allowed=torch.from_numpy(allowed[graph[:, :, None], order[:, :, None], order[:, None, :]]),
        counts=torch.from_numpy(np.stack(counts, axis=1)),
    )
    return blocks, np.stack([owner, node]), places[graph, slot_of[graph, query]]


def as_edge_list(edges: IntArray, num_nodes: int, query: IntArray) -> tuple[EdgeList, IntArray, IntArray]:
    """The same for one large graph: the edge list; graph and node (2, N) of everyone; the query (1, 2)."""
    start, end = edges.T
    itself = np.arange(num_nodes)
    key = np.unique(np.concatenate([end * num_nodes + start, itself * (num_nodes + 1)]))  # sorted by end
    sources = key % num_nodes
    num_in = np.bincount(key // num_nodes, minlength=num_nodes)
    first = np.cumsum(num_in) - num_in
    place = np.full(num_nodes, -1)  # in the row
    levels = [np.unique(query)]
    place[levels[0]] = np.arange(len(levels[0]))
    counts = [len(levels[0])]
    while len(levels[-1]):
        found = np.unique(sources[_ranges(first[levels[-1]], num_in[levels[-1]])])
        levels.append(found[place[found] < 0])
        place[levels[-1]] = counts[-1] + np.arange(len(levels[-1]))
        counts.append(counts[-1] + len(levels[-1]))
    row = np.concatenate(levels)
    num_in_row = num_in[row]
    size_class = np.ceil(np.log2(num_in_row)).astype(np.int64)
    buckets = []
    for size in np.unique(size_class):
        members = np.flatnonzero(size_class == size)
        width = int(num_in_row[members].max())
        for nodes in np.array_split(members, -(-len(members) * width // EDGES_AT_ONCE)):
            offset = np.arange(width)
            present = offset < num_in_row[nodes][:, None]
            chosen = place[sources[first[row[nodes]][:, None] + np.where(present, offset, 0)]]
            buckets.append(_bucket(nodes, chosen, present))
    owner = np.zeros_like(row)
    listed = EdgeList(buckets=tuple(buckets), owner=torch.from_numpy(owner), needed=tuple(counts[:-1]))
    return listed, np.stack([owner, row]), place[query][None]


def as_joinable(
    edges: Sequence[IntArray], num_nodes: IntArray, query: IntArray, width: int
) -> tuple[EdgeList, IntArray, IntArray]:
    """The same for several small graphs: one bucket with room for `width` in-neighbours of every node.

    They are few at a time and small, so that the search is faster in plain loops than in arrays.
    """
    begin = np.cumsum(num_nodes) - num_nodes  # the nodes of all graphs are numbered through
    levels: list[list[int]] = []  # nodes by their distance from the queried ones
    near: dict[int, list[int]] = {}  # in-neighbours, the node itself first
    for first, rows, asked in zip(begin.tolist(), edges, query.tolist(), strict=True):
        before: dict[int, dict[int, None]] = {}
        for start, end in rows.tolist():
            before.setdefault(end, {end: None})[start] = None
        seen = set(asked)
        level = sorted(seen)
        distance = 0
        while level:
            if distance == len(levels):
                levels.append([])
            following: list[int] = []
            for node in level:
                found = before.get(node, (node,))
                near[first + node] = [first + one for one in found]
                following += [one for one in found if one not in seen]
                seen.update(found)
            levels[distance] += [first + node for node in level]
            level, distance = following, distance + 1
    row = np.array([node for level in levels for node in level])
    place = np.zeros(num_nodes.sum(), dtype=np.int64)
    place[row] = np.arange(len(row))
    # Where there are fewer: the node itself, which is there whenever its in-neighbours are looked at.
    in_row = [near[node] for node in row.tolist()]
    padded = np.array([found + found[:1] * (width - len(found)) for found in in_row])
    present = np.arange(width) < np.array([len(found) for found in in_row])[:, None]
    owner = np.searchsorted(begin, row, side="right") - 1
    listed = EdgeList(
        buckets=(_bucket(np.arange(len(row)), place[padded], present),),
        owner=torch.from_numpy(owner),
        needed=tuple(accumulate(map(len, levels))),
    )
    return listed, np.stack([owner, row - begin[owner]]), place[query + begin[:, None]]


def _bucket(nodes: IntArray, sources: IntArray, present: npt.NDArray[np.bool_]) -> Bucket:
    return Bucket(
        nodes=torch.from_numpy(nodes), sources=torch.from_numpy(sources), present=torch.from_numpy(present)
    )


def _ranges(first: IntArray, num: IntArray) -> IntArray:
    """first[0], first[0] + 1, ..., num[0] of them, then the same for the next."""
    begin = np.cumsum(num) - num
    total = np.arange(num.sum()) - np.repeat(begin, num)
    ranges: IntArray = np.repeat(first, num) + total
    return ranges
