"""Task + difficulty mix + seed -> a stream of batches, fixed or endless, grouped by length.

The batch of update u is a pure function of (config, u), which is what lets a killed run resume to the
same bits. Examples are taken in windows of a few batches and sorted by length inside a window, so
that little padding is computed; the batches of a window then come in random order.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
import torch

from deepen.config import PerceptionConfig, RunConfig
from deepen.layout import Blocks, EdgeList, IntArray, as_blocks, as_edge_list, as_joinable, is_large
from deepen.shapes import Batch, Encoded, Lesson
from deepen.tasks import Example, QuestionError, Task, get_task

BATCHES_PER_WINDOW = 8
NUMBERS_AT_ONCE = 2**20  # in the widest layer of one batch outside training: what stays in fast memory
WORTH_A_THREAD = 2**17  # as many


def collate(
    encoded: Sequence[Encoded],
    labels: Sequence[bool],
    difficulties: Sequence[int] | None = None,
    whole: bool = False,
    room: int | None = None,
    asked: Sequence[Sequence[int]] | None = None,
    words: Sequence[int] | None = None,
) -> Batch:
    """Texts padded to the longest of them, or graphs in one row; a large graph alone as an edge list.

    `whole` keeps the nodes of small graphs that cannot change an answer, for a model that minds them.
    `room` makes batches that can be joined: texts of so many tokens, edge lists of so many in-neighbours.
    `asked` are the positions that are read of each text, one for each label; None: the first.
    """
    lengths = np.array([len(one.tokens) for one in encoded])
    longest = int(lengths.max())
    if room is not None and encoded[0].edges is None:
        longest = room
    valid = np.arange(longest) < lengths[:, None]  # (B, L)
    tokens = np.zeros((*valid.shape, *encoded[0].tokens.shape[1:]), dtype=np.int64)
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
        num_asking=torch.tensor([one.num_asking for one in encoded]) if tokens.ndim == 3 else None,
        asked=None if asked is None else _rows_and_places(asked),
        labels=torch.tensor(labels, dtype=torch.float32),
        difficulty=None if difficulties is None else torch.tensor(difficulties),
        words=None if words is None else torch.tensor(words),
        num_padding=int((~valid).sum()),
    )


def _rows_and_places(asked: Sequence[Sequence[int]]) -> torch.Tensor:
    return torch.tensor([(row, place) for row, places in enumerate(asked) for place in places])


def encode(task: Task, question: Any, perception: PerceptionConfig) -> Encoded:
    """A question as numbers that a model with this perception knows."""
    encoded = (
        task.phrases(question, perception.words) if perception.kind == "phrases" else task.encode(question)
    )
    if (encoded.edges is not None) != (perception.kind == "topological"):
        raise ValueError(f"task '{task.name}' cannot be perceived as '{perception.kind}'")
    check_vocabulary(task, encoded, perception)
    return encoded


def check_vocabulary(task: Task, encoded: Encoded, perception: PerceptionConfig) -> None:
    """A model with a token table can only be asked about tokens it has rows for."""
    spare = perception.vocabulary - int(encoded.tokens.max()) - 1
    without_names = perception.vocabulary == 1 if perception.kind == "topological" else perception.names_from
    if spare < 0 and not without_names:
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
    low, high = config.data.difficulties[0], _hardest(config, index)
    difficulty = low + index // 2 % (high - low + 1)
    return get_task(config.task).example(config.data.distribution, "train", config.seed, difficulty, index)


def _hardest(config: RunConfig, index: int) -> int:
    """The largest difficulty at training example `index`."""
    low, high = config.data.difficulties
    growing = config.data.curriculum * config.train.updates * config.data.batch
    return high if index >= growing else low + int((high - low + 1) * index / growing)


def lesson(config: RunConfig, index: int) -> Lesson:
    """Training example `index` as numbers, with further questions about it if the config wants some."""
    task, example = get_task(config.task), training_example(config, index)
    perception, num = config.model.perception, config.data.questions
    if num > 1:
        rng = Random(f"questions/{config.seed}/{index}")
        return task.lesson(example, perception.words, num, _hardest(config, index), rng)
    return Lesson(
        encoded=encode(task, example.question, perception),
        asked=(0,),
        labels=(example.label,),
        difficulties=(example.difficulty,),
        words=(0,),
    )


def drawn(config: RunConfig, update: int) -> tuple[int, int, Random]:
    """Of one update: torch's seed, T, and the source of whatever else is drawn."""
    rng = Random(f"{config.seed}/{update}")
    return rng.getrandbits(63), rng.randint(*config.train.steps), rng


def answerable(lessons: Sequence[Lesson], hardest: int) -> list[Lesson]:
    """The same texts without the questions above `hardest`; with all of them if there are no others."""
    found = []
    for one in lessons:
        asking = zip(one.asked, one.labels, one.difficulties, one.words, strict=True)
        kept = [question for question in asking if question[2] <= hardest]
        asked, labels, difficulties, words = zip(*kept, strict=True) if kept else ((), (), (), ())
        found.append(replace(one, asked=asked, labels=labels, difficulties=difficulties, words=words))
    return found if any(one.asked for one in found) else list(lessons)


class Stream:
    """The training batches of one run, by update number."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._worker = ThreadPoolExecutor(max_workers=1)  # prepares the next window meanwhile
        self._windows: dict[int, Future[list[list[Lesson]]]] = {}
        size = config.data.train_set
        self._fixed = None if size is None else [lesson(config, index) for index in range(size)]
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
        lessons = self._windows[window].result()[place]
        slack = self.config.train.slack
        if slack is not None:
            lessons = answerable(lessons, drawn(self.config, update)[1] - slack)
        return collate(
            [one.encoded for one in lessons],
            [label for one in lessons for label in one.labels],
            [difficulty for one in lessons for difficulty in one.difficulties],
            whole=self.config.model.act is not None,  # the cost of adaptive computation counts every node
            asked=[one.asked for one in lessons] if self.config.data.questions > 1 else None,
            words=[word for one in lessons for word in one.words] if self.config.model.tells else None,
        )

    def _window(self, number: int) -> list[list[Lesson]]:
        size, num_batches = self.config.data.batch, self._batches_per_window
        indices = range(number * num_batches * size, (number + 1) * num_batches * size)
        if self._fixed is None:
            chosen = [lesson(self.config, index) for index in indices]
        else:
            chosen = [self._fixed[self._shuffled(index)] for index in indices]
        chosen.sort(key=lambda one: len(one.encoded.tokens))
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
