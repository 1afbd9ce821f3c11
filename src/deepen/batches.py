"""Task + difficulty mix + seed -> a stream of batches, fixed or endless, grouped by length.

The batch of update u is a pure function of (config, u), which is what lets a killed run resume to the
same bits. Examples are taken in windows of a few batches and sorted by length inside a window, so
that little padding is computed; the batches of a window then come in random order.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch

from deepen.config import PerceptionConfig, RunConfig
from deepen.layout import Blocks, EdgeList, IntArray, as_blocks, as_edge_list, as_joinable, is_large
from deepen.shapes import Batch, Encoded
from deepen.tasks import Example, QuestionError, Task, get_task

BATCHES_PER_WINDOW = 8
NUMBERS_AT_ONCE = 2**20  # in the widest layer of one batch outside training: what stays in fast memory
WORTH_A_THREAD = 2**17  # as many

Labelled = tuple[Encoded, bool, int]
"""A question, its label and its difficulty."""


def collate(
    encoded: Sequence[Encoded],
    labels: Sequence[bool],
    difficulties: Sequence[int] | None = None,
    whole: bool = False,
    room: int | None = None,
) -> Batch:
    """Texts padded to the longest of them, or graphs in one row; a large graph alone as an edge list.

    `whole` keeps the nodes of small graphs that cannot change an answer, for a model that minds them.
    `room` makes batches that can be joined: texts of so many tokens, edge lists of so many in-neighbours.
    """
    lengths = np.array([len(one.tokens) for one in encoded])
    longest = int(lengths.max())
    if room is not None and encoded[0].edges is None:
        longest = room
    valid = np.arange(longest) < lengths[:, None]  # (B, L)
    tokens = np.zeros(valid.shape, dtype=np.int64)
    tokens[valid] = np.concatenate([one.tokens for one in encoded])
    graphs: Blocks | EdgeList | None = None
    query = None
    edges = [one.edges for one in encoded if one.edges is not None]
    if edges:
        queried = np.array([one.query for one in encoded])
        if room is not None:
            graphs, (owner, node), query = as_joinable(edges, lengths, queried, room)
        elif len(edges) == 1 and is_large(longest, len(edges[0])):
            graphs, (owner, node), query = as_edge_list(edges[0], longest, queried[0])
        else:
            graphs, (owner, node), query = as_blocks(edges, longest, queried, whole)
        tokens, valid = tokens[owner, node][None], valid[owner, node][None]
    return Batch(
        tokens=torch.from_numpy(tokens),
        valid=torch.from_numpy(valid),
        graphs=graphs,
        query=None if query is None else torch.from_numpy(query),
        labels=torch.tensor(labels, dtype=torch.float32),
        difficulty=None if difficulties is None else torch.tensor(difficulties),
        num_padding=int((~valid).sum()),
    )


def check_vocabulary(task: Task, encoded: Encoded, perception: PerceptionConfig) -> None:
    """A model with a token table can only be asked about tokens it has rows for."""
    spare = perception.vocabulary - int(encoded.tokens.max()) - 1
    if spare < 0 and (perception.kind != "topological" or perception.vocabulary > 1):
        raise QuestionError(
            f"{-spare} {task.too_many} too many for this model, whose token table has"
            f" {perception.vocabulary} rows"
        )


def in_batches(
    encoded: Sequence[Encoded],
    labels: Sequence[bool],
    widest: int,
    budgets: Sequence[int] | None = None,
    num_workers: int = 1,
) -> Iterator[tuple[list[int], Batch]]:
    """All questions once, in batches of like length and budget; each batch comes with their places.

    The longest come first. `widest` is the width of the model's widest layer, on which the best size of a
    batch depends; where there is enough to do, everyone of `num_workers` gets as many batches as the others.
    """
    budgets = budgets or [0] * len(encoded)
    lengths = [len(one.tokens) for one in encoded]
    order = sorted(range(len(encoded)), key=lambda place: (lengths[place], budgets[place]))
    numbers = widest * sum(lengths)
    num_batches = -(-numbers // NUMBERS_AT_ONCE)
    if numbers >= num_workers * WORTH_A_THREAD:
        num_batches = -(-num_batches // num_workers) * num_workers
    while order:
        largest = encoded[order[-1]]
        size = max(1, round(numbers / num_batches / widest / len(largest.tokens)))
        if largest.edges is not None and is_large(len(largest.tokens), len(largest.edges)):
            size = 1
        places = order[-_without_padding([lengths[place] for place in order[-size - 1 :]], size) :]
        order = order[: -len(places)]
        yield places, collate([encoded[place] for place in places], [labels[place] for place in places])


def _without_padding(lengths: Sequence[int], size: int) -> int:
    """How many of the last to take: `size`, or down to half as many if these are all of their length."""
    for num in range(min(size, len(lengths)), (size + 1) // 2, -1):
        if num == len(lengths) or lengths[-num] > lengths[-num - 1]:
            return num
    return size


def training_example(config: RunConfig, index: int) -> Example:
    """Training example `index`: difficulties take turns, each with as many positives as negatives."""
    low, high = config.data.difficulties
    growing = config.data.curriculum * config.train.updates * config.data.batch
    if index < growing:
        high = low + int((high - low + 1) * index / growing)
    difficulty = low + index // 2 % (high - low + 1)
    return get_task(config.task).example(config.data.distribution, "train", config.seed, difficulty, index)


class Stream:
    """The training batches of one run, by update number."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._task = get_task(config.task)
        self._worker = ThreadPoolExecutor(max_workers=1)  # prepares the next window meanwhile
        self._windows: dict[int, Future[list[list[Labelled]]]] = {}
        size = config.data.train_set
        self._fixed = None if size is None else [self._make(index) for index in range(size)]
        # A window never holds an example of a small fixed set several times.
        epoch = BATCHES_PER_WINDOW if size is None else size // config.data.batch
        self._batches_per_window = min(BATCHES_PER_WINDOW, epoch)
        self._epoch_order = lru_cache(maxsize=2)(self._shuffle_epoch)

    def __getitem__(self, update: int) -> Batch:
        """The batch of one update, counted from 0."""
        window, place = divmod(update, self._batches_per_window)
        for number in (window, window + 1):
            if number not in self._windows:
                self._windows[number] = self._worker.submit(self._window, number)
        self._windows = {number: self._windows[number] for number in (window, window + 1)}
        encoded, labels, difficulties = zip(*self._windows[window].result()[place], strict=True)
        # The cost of adaptive computation counts every node.
        return collate(encoded, labels, difficulties, whole=self.config.model.act is not None)

    def _make(self, index: int) -> Labelled:
        example = training_example(self.config, index)
        return self._task.encode(example.question), example.label, example.difficulty

    def _window(self, number: int) -> list[list[Labelled]]:
        size, num_batches = self.config.data.batch, self._batches_per_window
        indices = range(number * num_batches * size, (number + 1) * num_batches * size)
        if self._fixed is None:
            chosen = [self._make(index) for index in indices]
        else:
            chosen = [self._fixed[self._shuffled(index)] for index in indices]
        chosen.sort(key=lambda one: len(one[0].tokens))
        order = np.random.default_rng([self.config.seed, number]).permutation(num_batches)
        return [chosen[place * size : (place + 1) * size] for place in order]

    def _shuffled(self, position: int) -> int:
        """Which example of the fixed set stands at a position of the endless row of shuffled epochs."""
        assert self._fixed is not None
        # As published, an epoch leaves out what does not fill a batch.
        usable = len(self._fixed) // self.config.data.batch * self.config.data.batch
        epoch, place = divmod(position, usable)
        return int(self._epoch_order(epoch)[place])

    def _shuffle_epoch(self, epoch: int) -> IntArray:
        assert self._fixed is not None
        return np.random.default_rng([self.config.seed, epoch, 1]).permutation(len(self._fixed))
