"""Several batches at a time, one thread each.

Without gradients, two batches side by side on two cores beat two cores on one batch: nobody waits for the
other after every operation, and one thread multiplies matrices while the other moves memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
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
    with _one_thread_each(), ThreadPoolExecutor(num) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(without_gradient, item))
            if len(waiting) > num:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Operations that start now, in any thread, do not spread over several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
