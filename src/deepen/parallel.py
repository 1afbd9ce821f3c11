"""Several batches at a time, one thread each.

Without gradients, two batches side by side on two cores beat two cores on one batch: nobody waits for the
other after every operation, and one thread multiplies matrices while the other moves memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class _OneThreadEach:
    """Operations that start now, in any thread, do not spread over several; the last to leave undoes it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before = 1

    @property
    def num_threads(self) -> int:
        """How many there are while nobody is inside."""
        with self._lock:
            return self._before if self._inside else torch.get_num_threads()

    def __enter__(self) -> int:
        """How many threads there were."""
        with self._lock:
            if self._inside == 0:
                self._before = torch.get_num_threads()
                torch.set_num_threads(1)
            self._inside += 1
            return self._before

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.set_num_threads(self._before)


_one_thread_each = _OneThreadEach()


def num_workers(device: torch.device) -> int:
    """How many batches at a time; a GPU takes them one by one."""
    return _one_thread_each.num_threads if device.type == "cpu" else 1


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], device: torch.device
) -> Iterator[Result]:
    """The results in order, without gradients; an item is asked for only when someone is free to take it."""

    def without_gradient(item: Item) -> Result:
        with torch.inference_mode():
            return work(item)

    if num_workers(device) == 1:
        yield from map(without_gradient, items)
        return
    with _one_thread_each as num, ThreadPoolExecutor(num) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(without_gradient, item))
            if len(waiting) > num:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
