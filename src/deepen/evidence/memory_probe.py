"""What thinking costs: live tensors, resident memory and seconds, to be measured in a fresh process each.

Live bytes are exact: the profiler reports every allocation and release of a tensor's memory, from before
the weights exist, and the peak of their sum is taken. What the arithmetic library takes for itself is not
among them. Resident memory has that too, and the code that is loaded at first use, and what the C library
keeps of freed memory: a bound from above. Seconds are measured without the profiler, which slows down, and
all T of a batch in turns, so that a slow spell of the machine does not look like a property of one T.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from time import perf_counter
from typing import Any, NoReturn, Self, TypeVar

import torch
from torch import Tensor
from torch.autograd.profiler import profile
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from deepen.config import CoreConfig, Record
from deepen.core import Core, Step
from deepen.evidence.piece import Row
from deepen.memory import keep_freed_memory, peak_resident_bytes
from deepen.shapes import Scene, State
from deepen.unroll import Fixed, unroll

LEAST_REPEATS, MOST_REPEATS, ENOUGH_SECONDS = 3, 30, 2.0
LEAST_ROUNDS, MOST_ROUNDS, ENOUGH_SECONDS_OF_ROUNDS = 5, 30, 15.0
GENERATED = 8  # tokens that are timed

Result = TypeVar("Result")


class Backbone(Record):
    """A Transformer that thinks by writing tokens."""

    width: int
    heads: int
    layers: int


def in_fresh_process(work: Callable[..., Result], *arguments: object) -> Result:
    """What `work` returns; an error arrives here as it was raised there."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def peak_live_bytes(work: Callable[[], object]) -> int:
    """The most that the tensors which `work` allocates occupy at one time."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it reports its start and stop on standard error
    with profile(profile_memory=True) as profiler:
        work()
    assert profiler.kineto_results is not None
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    changes: list[int] = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(accumulate(changes), default=0)  # a release is a negative change


def median_seconds(set_up: Callable[[], Callable[[], object]]) -> float:
    """Of several repeats after a warm-up; what `set_up` returns is timed."""
    set_up()()
    times: list[float] = []
    while len(times) < LEAST_REPEATS or (len(times) < MOST_REPEATS and sum(times) < ENOUGH_SECONDS):
        work = set_up()
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return median(times)


@dataclass(frozen=True, kw_only=True)
class Thinker:
    """The core alone on a random input: no perception, no readout."""

    core: Core  # as loaded; the step has folded copies of some of its weights, and both count
    step: Step
    scene: Scene

    @classmethod
    @torch.no_grad()
    def of(cls, config: CoreConfig, batch: int, length: int) -> Self:
        core = Core(config).eval()
        step = core.prepare()
        scene = Scene(
            first=torch.randn(batch, length, config.width),
            mask=None,
            valid=torch.ones(batch, length, dtype=torch.bool),
            read_at=torch.zeros(batch, 1, dtype=torch.long),
        )
        return cls(core=core, step=step, scene=step.enter(scene))

    @torch.no_grad()
    def think(self, steps: int) -> None:
        """T steps of every position: one step more is announced, for which all of them are needed."""
        unroll(self.step, _never_read, self.scene, Fixed(steps), ahead=1)


def _never_read(state: State, scene: Scene) -> NoReturn:
    raise AssertionError("the answer is still ahead")


def measure_latency(
    config: CoreConfig, batch: int, length: int, steps: Sequence[int], threads: int
) -> dict[int, float]:
    """T -> seconds, the median of rounds in which every T has its turn."""
    torch.set_num_threads(threads)
    keep_freed_memory()  # as whenever a model answers
    thinker = Thinker.of(config, batch, length)
    thinker.think(max(steps))
    times: dict[int, list[float]] = {T: [] for T in steps}
    began = perf_counter()
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and perf_counter() - began > ENOUGH_SECONDS_OF_ROUNDS:
            break
        for T, seconds in times.items():
            started = perf_counter()
            thinker.think(T)
            seconds.append(perf_counter() - started)
    return {T: median(seconds) for T, seconds in times.items()}


def measure_core(config: CoreConfig, batch: int, length: int, steps: int, threads: int) -> Row:
    """One point; resident memory first, while the process is fresh."""
    torch.set_num_threads(threads)

    def from_nothing() -> None:
        Thinker.of(config, batch, length).think(steps)

    process_bytes = peak_resident_bytes(from_nothing)
    return {
        "kind": "core",
        "width": config.width,
        "layers": 1,
        "batch": batch,
        "length": length,
        "steps": steps,
        "live_bytes": peak_live_bytes(from_nothing),
        "process_bytes": process_bytes,
    }


def measure_model(config: CoreConfig, length: int) -> Row:
    """The cost model's exact counts for one step on one sequence, beside those of the real core."""
    D, hidden, rows = config.width, config.feedforward, config.depth_rows or 0
    thinker = Thinker.of(config, 1, length)
    # Only of attention in its plain form are the operations counted.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        thinker.think(1)
    return {
        "kind": "model",
        "width": D,
        "layers": 1,
        "batch": 1,
        "length": length,
        "steps": 1,
        "parameters": sum(parameter.numel() for parameter in thinker.core.parameters()),
        "parameters_formula": 6 * D**2 + 2 * D * hidden + 10 * D + hidden + rows * D,
        "flop": counter.get_total_flops(),
        "flop_formula": 4 * length**2 * D + 12 * length * D**2 + 4 * length * D * hidden,
    }


@torch.no_grad()
def measure_cache(backbone: Backbone, length: int, steps: Sequence[int], threads: int) -> list[Row]:
    """The keys and values kept of a prompt of `length` tokens and of T more, for one and two sequences.

    Seconds are of generating GENERATED tokens one by one, in the core's float32 and without an output
    layer, so less than they would really take. The bytes are of float16, as published.
    """
    try:
        from transformers import DynamicCache, GPT2Config, GPT2Model
    except ImportError:
        raise ValueError(
            "the key-value cache is measured on a model of 'transformers', which is not installed:"
            " pip install 'deepen[evidence]'"
        ) from None
    torch.set_num_threads(threads)
    keep_freed_memory()
    config = GPT2Config(
        n_embd=backbone.width,
        n_head=backbone.heads,
        n_layer=backbone.layers,
        vocab_size=1,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2Model(config).eval()
    timed = min(GENERATED, max(steps))

    def read(cache: Any, batch: int, num: int) -> None:
        model(torch.zeros(batch, num, dtype=torch.long), past_key_values=cache, use_cache=True)

    def seconds_to_generate(batch: int) -> float:
        prompt = DynamicCache()
        read(prompt, batch, length)

        def set_up() -> Callable[[], None]:
            cache = deepcopy(prompt)

            def generate() -> None:
                for _ in range(timed):
                    read(cache, batch, 1)

            return generate

        return median_seconds(set_up)

    seconds = {batch: seconds_to_generate(batch) for batch in (1, 2)}
    model.to(torch.float16)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            # Stored by columns: many CPUs multiply half precision ten times as fast in this order.
            parameter.data = parameter.data.T.contiguous().T
    rows: list[Row] = []
    for batch in (1, 2):
        cache = DynamicCache()
        read(cache, batch, length)
        prompt_bytes = _cache_bytes(cache)
        for T in sorted(steps):
            read(cache, batch, length + T - cache.get_seq_length())
            rows.append(
                {
                    "kind": "cache",
                    "width": backbone.width,
                    "layers": backbone.layers,
                    "batch": batch,
                    "length": length,
                    "steps": T,
                    "live_bytes": _cache_bytes(cache),
                    "thinking_bytes": _cache_bytes(cache) - prompt_bytes,
                    "seconds": seconds[batch] if timed == T else None,
                }
            )
    return rows


def _cache_bytes(cache: Any) -> int:
    """Of all key and value tensors."""
    tensors: list[Tensor] = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
