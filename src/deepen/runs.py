"""The run folder: the only file that knows its layout.

    config.json             the complete config, the run id, code and library versions, the machine
    metrics.jsonl           one row every few updates
    checkpoint.safetensors  weights and optimiser state to resume from
    model.safetensors       weights, with config and provenance inside; readable on its own
    grid.json, frontier.png what `deepen grid` measured and drew

Every file but metrics.jsonl, which grows, is written beside its final name and moved there in one step,
so a kill at any moment leaves the old version or the new one. Nothing is ever unpickled.
"""

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from deepen.config import RunConfig, parse_config
from deepen.memory import keep_freed_memory
from deepen.model import Model
from deepen.peers import build

HEADER = "deepen"  # the one metadata key: several would be written in random order


class RunError(ValueError):
    """A run folder or checkpoint that cannot be used; the message says which and why."""


def write_atomically(path: Path, data: bytes) -> None:
    """The old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.unfinished")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@dataclass(kw_only=True)
class Progress:
    """How far a training has come, and what the next row of metrics.jsonl has gathered so far."""

    update: int = 0
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)


class Run:
    """One run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.metrics_file = path / "metrics.jsonl"
        self.checkpoint_file = path / "checkpoint.safetensors"
        self.weights_file = path / "model.safetensors"
        self.grid_file = path / "grid.json"
        self.figure_file = path / "frontier.png"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from working on the same run; clear away what a killed one left behind."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{self.path}: another process is working on this run") from None
            for left in self.path.glob(".*.unfinished"):
                left.unlink()
            yield

    def create(self, config: RunConfig) -> None:
        """Begin a run: write down what it is."""
        if self.checkpoint_file.exists() or self.weights_file.exists():
            raise RunError(
                f"{self.path} holds files of a run but no {self.config_file.name}: choose another folder"
            )
        content = {"run_id": config.run_id, "config": config.model_dump(mode="json"), **provenance()}
        write_atomically(self.config_file, json.dumps(content, indent=2).encode() + b"\n")

    @property
    def exists(self) -> bool:
        return self.config_file.exists()

    def description(self) -> dict[str, Any]:
        """What config.json says: the config and where it was run."""
        if not self.exists:
            raise RunError(f"{self.path} is not a run folder: it has no {self.config_file.name}")
        try:
            content = json.loads(self.config_file.read_text())
            config = content["config"]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise RunError(f"{self.config_file} is damaged: {error}") from None
        return {**content, "config": parse_config(config)}

    @property
    def config(self) -> RunConfig:
        config = self.description()["config"]
        assert isinstance(config, RunConfig)
        return config

    def save_weights(self, model: Model) -> None:
        """Weights that can be loaded without the rest of the folder."""
        header = {**self.description(), "config": self.config.model_dump(mode="json")}
        _save(self.weights_file, model.state_dict(), header)

    def save_checkpoint(self, progress: Progress, model: Model, optimiser: torch.optim.Optimizer) -> None:
        """All that the next update needs; every random draw is a function of seed and update."""
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for number, state in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{key}": tensor for key, tensor in state.items()}
        _save(self.checkpoint_file, tensors, {"run_id": self.config.run_id, "progress": asdict(progress)})

    def load_checkpoint(self, model: Model, optimiser: torch.optim.Optimizer) -> Progress:
        """Restore the last checkpoint, if there is one; returns how far it had come."""
        if not self.checkpoint_file.exists():
            return Progress()
        tensors, header = _load(self.checkpoint_file)
        if header.get("run_id") != self.config.run_id or "progress" not in header:
            raise RunError(f"{self.checkpoint_file} is not a checkpoint of run {self.config.run_id}")
        weights: dict[str, Tensor] = {}
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            part, rest = name.split(".", 1)
            if part == "model":
                weights[rest] = tensor
            else:
                number, key = rest.split(".")
                states.setdefault(int(number), {})[key] = tensor
        _fill(model, weights, self.checkpoint_file)
        optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
        return Progress(**header["progress"])

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        with self.metrics_file.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All complete rows; a kill may have torn the last one."""
        rows = []
        if self.metrics_file.exists():
            for number, line in enumerate(self.metrics_file.read_text().splitlines(), start=1):
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    break
                if not isinstance(row, dict) or not {"update", "seconds"} <= row.keys():
                    raise RunError(f"{self.metrics_file} is damaged: line {number} is not a row of metrics")
                rows.append(row)
        return rows

    @property
    def seconds(self) -> float:
        """How long the training took, up to the last row."""
        rows = self.metrics()
        return float(rows[-1]["seconds"]) if rows else 0.0

    def rewind_metrics(self, update: int) -> float:
        """Drop the rows after `update`, which will be computed again; returns the seconds spent by then."""
        rows = [row for row in self.metrics() if row["update"] <= update]
        write_atomically(self.metrics_file, "".join(json.dumps(row) + "\n" for row in rows).encode())
        return self.seconds


def usable_device(name: str) -> torch.device:
    """A device that this machine has; a CPU is made ready for it."""
    try:
        target = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise RunError(f"device '{name}' cannot be used: {str(error).splitlines()[0]}") from None
    if target.type == "cpu":
        keep_freed_memory()
    return target


def load_model(path: Path, device: str = "cpu") -> tuple[Model, RunConfig]:
    """The model in a run folder or in a weights file."""
    target = usable_device(device)
    file = Run(path).weights_file if path.is_dir() else path
    if not file.exists():
        finished = path.is_dir() and Run(path).exists
        why = "has no trained weights yet: finish it with --resume" if finished else "does not exist"
        raise RunError(f"{path if finished else file} {why}")
    tensors, header = _load(file)
    if "config" not in header:
        raise RunError(f"{file} holds no model to load; expected a model.safetensors or a run folder")
    config = parse_config(header["config"])
    model = build(config.model)
    _fill(model, tensors, file)
    return model.to(target).eval(), config


def _save(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(contiguous, {HEADER: json.dumps(header, sort_keys=True)}))


def _load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is not a readable safetensors file, maybe truncated: {error}") from None
    if header is None:
        raise RunError(f"{path} was not written by Deepen: it has no '{HEADER}' header")
    return tensors, json.loads(header)


def _fill(model: Model, tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise RunError(f"{path} does not fit its own config: {' '.join(str(error).split())}") from None


def provenance() -> dict[str, Any]:
    """Versions and machine: what a result needs beside its config and seed."""
    return {
        "code": {"deepen": version("deepen"), "commit": _commit()},
        "libraries": {name: version(name) for name in ("torch", "numpy", "safetensors")},
        "machine": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "threads": torch.get_num_threads(),
        },
    }


def _commit() -> str | None:
    """The commit of this source tree, marked if files differ from it; None outside of a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
