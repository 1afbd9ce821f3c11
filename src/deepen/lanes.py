"""Questions that think together, each at its own depth: they join a lane and leave it at any step.

A lane holds items, the nodes of graphs or whole texts, in the order of how long they are needed: a text
until its question is done, a node that is k edges away from the queried ones until k steps before that.
So what is still needed is always the first part of the lane. Who is done leaves by being cut off at the
end; who comes is sorted in. Nothing is kept of the way, so that memory does not grow with the steps.

Graphs of all sizes share a lane, without padding: they lie there as an edge list. Texts share one with
others of about their length.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from deepen.core import Step
from deepen.layout import Bucket, EdgeList, IntArray
from deepen.shapes import Scene, State

KEY, BEGUN, LAST = range(3)


@dataclass(frozen=True)
class Items:
    """Whose the items of a lane are and how long they are needed, those that are needed longest first."""

    table: IntArray
    """(3, items): the question; the tick of its first step; the last tick after which it must be known."""

    @property
    def key(self) -> IntArray:
        key: IntArray = self.table[KEY]
        return key

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, which: slice | IntArray) -> "Items":
        return Items(self.table[:, which])

    def num_needed(self, tick: int) -> int:
        """How many of them must be known after a tick."""
        return int(np.searchsorted(-self.table[LAST], -tick, side="right"))

    def merged(self, other: "Items") -> tuple["Items", IntArray]:
        """All in order, and for each where it was when the others stood behind these."""
        both = np.concatenate([self.table, other.table], axis=1)
        order = np.argsort(-both[LAST], kind="stable")
        return Items(both[:, order]), order


@dataclass(frozen=True, kw_only=True)
class Lane(ABC):
    """Questions that take their steps together."""

    items: Items
    tensors: dict[str, Tensor]  # by name, each with the items as its first dimension

    @property
    @abstractmethod
    def keys(self) -> Sequence[int]:
        """The questions, in the order in which the scene reads them; some may have left."""

    @abstractmethod
    def scene(self) -> Scene:
        """How the items attend to each other, and where they are read."""

    @abstractmethod
    def state(self) -> State:
        """The thought of all items."""

    @abstractmethod
    def stepped(self, step: Step, tick: int) -> tuple[Self, State]:
        """After one more step, with the items that must be known after it; and the state with its gate."""

    @abstractmethod
    def reading(self, places: Sequence[int]) -> tuple[State, Scene]:
        """What is read of some of the questions, by their places among the keys."""

    def first(self, num: int) -> Self:
        """Only the first items."""
        if num == len(self.items):
            return self
        cut = {name: one[:num] for name, one in self.tensors.items()}
        return replace(self, items=self.items[:num], tensors=cut)

    def with_hidden(self, hidden: Tensor) -> Self:
        return replace(self, tensors={**self.tensors, "hidden": hidden})

    def depths(self, tick: int) -> Tensor:
        """(items,) which step this tick is for each."""
        return self.like(tick - self.items.table[BEGUN] + 1)

    def like(self, array: IntArray) -> Tensor:
        """On the device of the lane."""
        return torch.from_numpy(array).to(self.tensors["hidden"].device)


@dataclass(frozen=True, kw_only=True)
class SharedLane(Lane):
    """A lane that others can join."""

    @abstractmethod
    def rearranged(self, tensors: dict[str, Tensor], items: Items, order: IntArray) -> Self:
        """Of `tensors` what is at `order`, which is called `items`."""

    def in_order(self) -> Self:
        """The items that are needed longest first."""
        items, order = self.items.merged(self.items[:0])
        return self.rearranged(self.tensors, items, order)

    def joined(self, other: Self) -> Self:
        """With others sorted in."""
        items, order = self.items.merged(other.items)
        both = {name: torch.cat([one, other.tensors[name]]) for name, one in self.tensors.items()}
        return self.rearranged(both, items, order)

    def without(self, keys: AbstractSet[int]) -> Self:
        """Only the items of the others."""
        stay = np.flatnonzero(~np.isin(self.items.key, list(keys)))
        return self.rearranged(self.tensors, self.items[stay], stay)


@dataclass(frozen=True, kw_only=True)
class TextLane(SharedLane):
    """Texts of about the same length; an item is a text."""

    rotary: Tensor | None

    @classmethod
    def of(cls, scene: Scene, items: Items) -> Self:
        no_padding = torch.zeros_like(scene.first[:, None, None, :, 0])
        some = {
            "hidden": scene.first,
            "mask": no_padding if scene.mask is None else scene.mask,
            "valid": scene.valid,
            "read_at": scene.read_at,
            "recalled": scene.recalled,
            "matters": scene.matters,
        }
        tensors = {name: tensor for name, tensor in some.items() if tensor is not None}
        return cls(items=items, tensors=tensors, rotary=scene.rotary)

    @property
    def keys(self) -> Sequence[int]:
        return [int(key) for key in self.items.key]

    def scene(self) -> Scene:
        tensors = self.tensors
        return Scene(
            first=tensors["hidden"],
            mask=tensors["mask"],
            rotary=self.rotary,
            valid=tensors["valid"],
            read_at=tensors["read_at"],
            recalled=tensors.get("recalled"),
            matters=tensors.get("matters"),
        )

    def state(self) -> State:
        return State(hidden=self.tensors["hidden"])

    def stepped(self, step: Step, tick: int) -> tuple[Self, State]:
        rest = self.first(self.items.num_needed(tick))
        scene = rest.scene()
        after = step(rest.state(), scene, rest.depths(tick)[:, None], scene.first.shape[1])
        return rest.with_hidden(after.hidden), after

    def reading(self, places: Sequence[int]) -> tuple[State, Scene]:
        at = np.array(places)
        some = self.rearranged(self.tensors, self.items[at], at)
        return some.state(), some.scene()

    def rearranged(self, tensors: dict[str, Tensor], items: Items, order: IntArray) -> Self:
        at = self.like(order)
        return replace(
            self, items=items, tensors={name: one.index_select(0, at) for name, one in tensors.items()}
        )


class NodeLane(Lane):
    """An item is a node."""

    def state(self) -> State:
        return State(hidden=self.tensors["hidden"][None])

    def stepped(self, step: Step, tick: int) -> tuple[Self, State]:
        num = self.items.num_needed(tick)
        after = step(self.state(), self.scene(), self.depths(tick), num)
        return self.first(num).with_hidden(after.hidden[0]), after

    def reading(self, places: Sequence[int]) -> tuple[State, Scene]:
        scene = self.scene()
        return self.state(), replace(scene, read_at=scene.read_at[list(places)])


@dataclass(frozen=True, kw_only=True)
class LoneGraph(NodeLane):
    """One graph that is too large or too dense to lie among others."""

    whole: Scene

    @property
    def keys(self) -> Sequence[int]:
        return (int(self.items.key[0]),)

    def scene(self) -> Scene:
        return self.whole


@dataclass(frozen=True, kw_only=True)
class GraphLane(NodeLane, SharedLane):
    """Graphs of any size, as one edge list."""

    asked: tuple[int, ...]  # keys, rising
    query: IntArray  # (questions, 2) the items that are source and target
    width: int  # the most in-neighbours that anyone here has; the lane may have room for more

    @classmethod
    def of(cls, scene: Scene, items: Items, crowd: int | None) -> Self:
        graphs = scene.graphs
        assert isinstance(graphs, EdgeList)
        (bucket,) = graphs.buckets
        tensors = {"hidden": scene.first[0], "sources": bucket.sources, "present": bucket.present}
        if scene.recalled is not None:
            tensors["recalled"] = scene.recalled[0]
        if crowd is not None and bucket.sources.shape[1] > crowd:
            ones = torch.ones_like(scene.first[0, :, 0])
            tensors["sharpness"] = ones if scene.sharpness is None else scene.sharpness
        return cls(
            items=items,
            tensors=tensors,
            asked=tuple(dict.fromkeys(items.key.tolist())),
            query=scene.read_at.cpu().numpy(),
            width=bucket.sources.shape[1],
        )

    @property
    def keys(self) -> Sequence[int]:
        return self.asked

    def scene(self) -> Scene:
        tensors = self.tensors
        num = len(self.items)
        present = tensors["present"][:, : self.width]
        sources = tensors["sources"][:, : self.width]
        bucket = Bucket(nodes=self.like(np.arange(num)), sources=sources, present=present)
        graphs = EdgeList(
            buckets=(bucket,),
            owner=self.like(np.searchsorted(self.asked, self.items.key)),
            needed=(num,),
        )
        recalled = tensors.get("recalled")
        return Scene(
            first=tensors["hidden"][None],
            mask=None,
            graphs=graphs,
            sharpness=tensors.get("sharpness"),
            valid=torch.ones_like(present[None, :, 0]),
            # Who has left is still listed, and its nodes may be gone.
            read_at=self.like(self.query.clip(max=num - 1)),
            recalled=None if recalled is None else recalled[None],
        )

    def joined(self, other: Self) -> Self:
        num = len(self.items)
        behind = {**other.tensors, "sources": other.tensors["sources"] + num}
        query = np.concatenate([self.query, other.query + num])
        both = replace(self, asked=self.asked + other.asked, query=query)
        return SharedLane.joined(both, replace(other, tensors=behind))

    def rearranged(self, tensors: dict[str, Tensor], items: Items, order: IntArray) -> Self:
        at = self.like(order)
        total = len(tensors["hidden"])
        place = np.zeros(total, dtype=np.int64)
        place[order] = np.arange(len(order))
        moved = {name: one.index_select(0, at) for name, one in tensors.items()}
        # Who is known for the last time has in-neighbours that are not known any more, and needs none.
        moved["sources"] = self.like(place)[moved["sources"].clamp(max=total - 1)]
        here = set(items.key.tolist())
        stay = [at for at, key in enumerate(self.asked) if key in here]
        return replace(
            self,
            items=items,
            tensors=moved,
            asked=tuple(self.asked[at] for at in stay),
            query=place[self.query[stay]],
            width=int(moved["present"].any(dim=0).sum()),  # they stand at the beginning
        )
