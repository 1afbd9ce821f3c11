"""Questions in the middle of thinking: perceived when they come, a step at a time, read and forgotten.

What the engine drives, and the lanes of one model as an instance of it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np
import torch

from deepen.batches import collate
from deepen.core import Step
from deepen.lanes import GraphLane, Items, Lane, LoneGraph, SharedLane, TextLane
from deepen.layout import is_large
from deepen.reasoner import Reasoner
from deepen.shapes import Encoded, Scene

LENGTHS = (16, 24)  # of texts, and their doubles, the doubles of those, ...: a third is padding at most
IN_NEIGHBOURS = (8, 32)  # of the nodes of graphs; one with more thinks in a lane of its own


@dataclass(eq=False, kw_only=True)
class Entry:
    """A question that wants to think."""

    encoded: Encoded
    limit: int
    """The most steps it may take."""
    settles: bool
    """Whether it may stop before that, when the model's halting rule says so."""


class Thinkers(Protocol):
    """Questions by key, in the middle of thinking."""

    @property
    def patience(self) -> float:
        """How often in a row a question must want to stop."""
        ...

    def enter(self, entries: Mapping[int, Entry]) -> None:
        """Perceive them; their first step is the next one."""
        ...

    def step(self) -> set[int]:
        """Everyone takes one step; says who would stop now by the model's halting rule."""
        ...

    def read(self, keys: AbstractSet[int]) -> dict[int, float]:
        """The probability of "yes" after the latest step."""
        ...

    def leave(self, keys: AbstractSet[int]) -> None:
        """Forget them."""
        ...

    def clear(self) -> None:
        """Forget everyone."""
        ...


class Lanes:
    """All who think with one model."""

    def __init__(self, reasoner: Reasoner) -> None:
        if not isinstance(reasoner.step, Step):
            raise ValueError(
                "only a model with one shared step can think at several depths at once, and this one is of"
                f" preset '{reasoner.config.preset}': ask it with deepen solve"
            )
        self.model = reasoner.model
        self.shared_step = reasoner.step
        self.rule = reasoner.model.halting(1)
        self.patience = inf if self.rule.patience is None else self.rule.patience
        self.device = next(self.model.parameters()).device
        self.tick = 0
        self._lanes: dict[object, Lane] = {}
        self._ends: dict[int, int] = {}  # the tick at which each question reaches its limit
        self._came: dict[int, int] = {}  # after which tick
        self._settling: set[int] = set()

    @torch.inference_mode()
    def enter(self, entries: Mapping[int, Entry]) -> None:
        together: dict[object, list[int]] = {}
        for key, entry in entries.items():
            together.setdefault(_lane_of(key, entry.encoded), []).append(key)
            self._ends[key] = self.tick + entry.limit
            self._came[key] = self.tick
            if entry.settles:
                self._settling.add(key)
        for name, keys in together.items():
            fresh = self._perceived({key: entries[key] for key in keys}, name)
            there = self._lanes.get(name)
            if isinstance(fresh, SharedLane):
                fresh = there.joined(fresh) if isinstance(there, SharedLane) else fresh.in_order()
            # What is further away than its question has steps is never needed.
            self._lanes[name] = fresh.first(fresh.items.num_needed(self.tick))

    def _perceived(self, entries: Mapping[int, Entry], name: object) -> Lane:
        """A lane of those who have just come."""
        room = name if isinstance(name, int) else None
        every = [entry.encoded for entry in entries.values()]
        batch = collate(every, [False] * len(every), room=room).to(self.device)
        _, scene = self.model.begin(batch, self.shared_step)
        items = self._items(entries, scene)
        if scene.graphs is None:
            return TextLane.of(scene, items)
        if room is None:
            return LoneGraph(items=items, tensors={"hidden": scene.first[0]}, whole=scene)
        return GraphLane.of(scene, items, self.model.config.perception.crowd)

    def _items(self, entries: Mapping[int, Entry], scene: Scene) -> Items:
        """The texts, or the nodes in the order of their distance from the queried ones."""
        key = np.array(list(entries))
        last = np.array([self.tick + entry.limit for entry in entries.values()])
        if scene.graphs is not None:
            owner = scene.graphs.owner.cpu().numpy()
            within = np.diff(scene.graphs.needed, prepend=0)
            distance = np.repeat(np.arange(len(within)), within)
            settles = np.array([entry.settles for entry in entries.values()])  # then all nodes are looked at
            key, last = key[owner], last[owner] - np.where(settles[owner], 0, distance)
        return Items(np.stack([key, np.full_like(key, self.tick + 1), last]))

    @torch.inference_mode()
    def step(self) -> set[int]:
        self.tick += 1
        would_stop: set[int] = set()
        for name, lane in list(self._lanes.items()):
            after, state = lane.stepped(self.shared_step, self.tick)
            if not self._settling.isdisjoint(lane.keys):
                before = lane.first(len(after.items)).state()
                # Who has left is still looked at, as if new.
                came = [self._came.get(key, self.tick - 1) for key in after.keys]
                t = self.tick - torch.tensor(came, device=self.device)
                wants = self.rule.wants_to_stop(before, state, after.scene(), t).tolist()
                would_stop |= {key for key, want in zip(after.keys, wants, strict=True) if want}
            self._lanes[name] = after
        return would_stop & self._settling

    @torch.inference_mode()
    def read(self, keys: AbstractSet[int]) -> dict[int, float]:
        found: dict[int, float] = {}
        for lane in self._lanes.values():
            chosen = {place: key for place, key in enumerate(lane.keys) if key in keys}
            if chosen:
                logits = self.model.read(*lane.reading(list(chosen)))
                found |= zip(chosen.values(), logits.sigmoid().tolist(), strict=True)
        return found

    @torch.inference_mode()
    def leave(self, keys: AbstractSet[int]) -> None:
        self._settling -= keys
        for key in keys:
            del self._came[key]
        early = {key for key in keys if self._ends.pop(key) > self.tick}  # the others are cut off anyway
        for name, lane in list(self._lanes.items()):
            going = early.intersection(lane.keys)
            if going and isinstance(lane, SharedLane):
                lane = self._lanes[name] = lane.without(going)
            if not lane.items.num_needed(self.tick + 1) or going.issuperset(lane.keys):
                del self._lanes[name]

    def clear(self) -> None:
        self._lanes.clear()
        self._ends.clear()
        self._came.clear()
        self._settling.clear()


def _lane_of(key: int, encoded: Encoded) -> object:
    """How much room its lane has for everyone; a text or graph that needs more thinks alone."""
    if encoded.edges is None:
        return rounded_up(len(encoded.tokens), LENGTHS)
    most = int(np.bincount(encoded.edges[:, 1]).max(initial=0)) + 1
    if most > IN_NEIGHBOURS[-1] or is_large(len(encoded.tokens), len(encoded.edges)):
        return ("alone", key)
    return rounded_up(most, IN_NEIGHBOURS)


def rounded_up(num: int, sizes: tuple[int, ...]) -> int:
    """To the next of some sizes, their doubles, the doubles of those, ..."""
    while num > sizes[-1]:
        sizes = tuple(2 * size for size in sizes)
    return next(size for size in sizes if size >= num)
