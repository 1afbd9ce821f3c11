"""What the scripts of this folder share: their options; a config trained to the end, or found shipped or
among the weights kept here; whether a stored result is one of today's presets."""

from argparse import ArgumentParser, ArgumentTypeError, RawTextHelpFormatter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile

from deepen.batches import collate, encode
from deepen.config import RunConfig
from deepen.model import Model
from deepen.presets import get_preset
from deepen.progress import Bar
from deepen.reasoner import shipped
from deepen.runs import Run, load_model
from deepen.shapes import Batch
from deepen.tasks import Example, get_task
from deepen.train import train
from deepen.unroll import Convergence

AT_ONCE = 50  # questions in one batch

WEIGHTS = Path(__file__).parent / "weights"
"""Of presets and seeds that are not shipped, so that what is measured here can be measured again."""


def parser_of(about: str, num: int | None = None, seeds: bool = True) -> ArgumentParser:
    """Options that several scripts have; `num` is the usual number of examples."""
    parser = ArgumentParser(description=about, formatter_class=RawTextHelpFormatter)
    if seeds:
        parser.add_argument("--seeds", nargs="+", type=at_least(0), default=[0, 1, 2])
        parser.add_argument("--runs", type=Path, default=Path("runs"))
    if num is not None:
        parser.add_argument("--num", type=at_least(1), default=num, help="how many examples each time")
    return parser


def at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"expected a number of at least {least}, got '{text}'")
        return int(text)

    return read


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """For options that may be left out, whose `choices` argparse would hold against the empty list."""

    def read(text: str) -> str:
        if text not in names:
            raise ArgumentTypeError(f"'{text}' is none of {', '.join(names)}")
        return text

    return read


def trained(config: RunConfig, runs: Path) -> tuple[Model, Run]:
    """The model and its run; a finished run is reused, a torn one resumed."""
    path = runs / config.run_name
    with Bar(f"training {config.run_name}", config.train.updates) as bar:
        run = train(config, path, resume=True, watch=lambda update, loss, accuracy: bar.show(update))
    return load_model(path)[0], run


def model_of(config: RunConfig, runs: Path) -> Model:
    """The model of a config: shipped, or kept here, or trained now and then kept."""
    for path in shipped().values():
        model, of = load_model(path)
        if of.run_id == config.run_id:
            return model
    kept = WEIGHTS / f"{config.run_name}.safetensors"
    if not kept.exists():
        _, run = trained(config, runs)
        WEIGHTS.mkdir(exist_ok=True)
        copyfile(run.weights_file, kept)
    return load_model(kept)[0]


def batches_of(config: RunConfig, asked: Sequence[Example]) -> Iterator[tuple[range, Batch]]:
    """All questions in order, each batch with their places; graphs with all their nodes, as they are told."""
    task = get_task(config.task)
    for first in range(0, len(asked), AT_ONCE):
        some = asked[first : first + AT_ONCE]
        encoded = [encode(task, one.question, config.model.perception) for one in some]
        batch = collate(encoded, [one.label for one in some], whole=True)
        yield range(first, first + len(some)), batch


def settings_of(config: RunConfig) -> dict[str, float]:
    """Of the rule by which a model stops when it is left alone."""
    return {
        name: value
        for name, value in asdict(Convergence(1, config.model.halting_pace)).items()
        if name != "max_steps"
    }


def is_current(task: str, seed: int, run_id: str) -> bool:
    """Whether a result is of the preset as it is now; those of earlier ones are measured anew."""
    return get_preset(task, "frontier", seed).run_id == run_id
