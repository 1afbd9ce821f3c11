"""Several batches at a time, one thread each.

Without gradients, two batches side by side on two cores beat two cores on one batch: nobody waits for the
other after every operation, and one thread multiplies matrices while the other moves memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_workers(device: torch.device) -> int:
    """How many batches at a time; a GPU takes them one by one."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], device: torch.device
) -> Iterator[Result]:
    """The results in order, without gradients; an item is asked for only when someone is free to take it."""

    def without_gradient(item: Item) -> Result:
        with torch.inference_mode():
            return work(item)

    num = num_workers(device)
    if num == 1:
        yield from map(without_gradient, items)
        return
    waiting: deque[Future[Result]] = deque()
    try:
        # How many threads an operation spreads over is set for each thread: only the workers' is changed.
        with ThreadPoolExecutor(num, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for item in items:
                waiting.append(pool.submit(without_gradient, item))
                if len(waiting) > num:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(num)  # what threads that start later begin with
