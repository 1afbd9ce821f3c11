"""Configs are strict, and say what is wrong."""

import json

import pytest
from conftest import ROOT, changed
from pydantic import ValidationError

from deepen.config import ConfigError, parse_config
from deepen.presets import PRESETS, get_preset


def broken(*path_and_value):
    *path, key, value = path_and_value
    data = get_preset("graph", "paper").model_dump()
    part = data
    for name in path:
        part = part[name]
    part[key] = value
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (broken("train", "learning_rat", 1), "train: unknown key 'learning_rat' in TrainConfig"),
        (broken("model", "core", "widht", 64), "unknown key 'widht' in CoreConfig; did you mean 'width'"),
        (broken("trian", {}), "unknown key 'trian' in RunConfig; did you mean 'train'"),
        (broken("model", "core", "width", 100), "must split into 4 heads"),
        (broken("model", "core", "heads", 0), "model.core.heads"),
        (broken("train", "lr", float("nan")), "train.lr"),
        (broken("train", "alpha", 1.5), "train.alpha"),
        (broken("train", "steps", (8, 5)), "train.steps must be"),
        (broken("data", "difficulties", (0, 5)), "data.difficulties must be"),
        (broken("task", "chess"), "task"),
        (broken("seed", -1), "seed"),
        (broken("seed", 2**70), "seed"),
        (broken("data", "train_set", 10), "a train_set of 10 is smaller than one batch of 64"),
        (broken("grid", "steps", ()), "steps must be one or more increasing numbers"),
        (broken("grid", "steps", (3, 2)), "steps must be one or more increasing numbers"),
        (broken("grid", "difficulties", (2, 2)), "difficulties must be one or more increasing numbers"),
        ([], "bad config"),
        ({}, "model: Field required"),
    ],
)
def test_bad_configs_are_refused_with_a_reason(data, words):
    with pytest.raises(ConfigError, match=words):
        parse_config(data)


def test_a_config_is_frozen_and_survives_its_own_file():
    for preset in PRESETS.values():
        config = preset(0)
        assert parse_config(config.model_dump(mode="json")) == config
        with pytest.raises(ValidationError):
            config.train.lr = 1.0


def test_the_run_id_follows_what_changes_the_weights():
    config = get_preset("graph", "frontier")
    assert changed(config, seed=1).run_id != config.run_id
    assert changed(config, model__core__state_noise=0.1).run_id != config.run_id
    assert changed(config, grid__num_examples=7).run_id == config.run_id
    assert changed(config, model__halting_pace=1.0).run_id == config.run_id


def test_frontier_is_trained_inside_its_promised_range():
    config = get_preset("graph", "frontier")
    assert config.data.difficulties == (1, 5)
    assert config.train.steps[1] <= 8


def test_unknown_presets_are_refused():
    with pytest.raises(ConfigError, match="no preset 'gnn' for task 'logic'"):
        get_preset("logic", "gnn")


@pytest.mark.parametrize("task", ["graph", "logic", "family"])
def test_the_paper_presets_are_the_published_protocol(task):
    published = json.loads((ROOT / "src/deepen/evidence/published.json").read_text())["training"]
    common, own = published["common"], published[task]
    config = get_preset(task, "paper")
    core, data, train, grid = config.model.core, config.data, config.train, config.grid
    assert (core.width, core.heads, core.feedforward) == (own["width"], own["heads"], own["ff"])
    assert (core.activation, core.depth_rows) == (own["activation"], own["depth_rows"])
    assert (core.layer_scale, core.gate_bias, core.dropout) == (
        own.get("layer_scale"),
        -2.0,
        common["dropout"],
    )
    assert (core.recall, core.state_norm, core.state_noise, train.detached_start) == (False, False, 0.0, 0.0)
    assert list(train.steps) == own["train_T"]
    assert (train.updates, data.batch, data.train_set) == (own["updates"], own["batch"], own["train_set"])
    assert train.updates == own["epochs"] * (own["train_set"] // own["batch"])
    assert (train.lr, train.weight_decay, train.clip) == (
        common["lr"],
        common["weight_decay"],
        common["grad_clip"],
    )
    assert (train.schedule, train.alpha, data.distribution, grid.distribution) == (
        "cosine",
        0.0,
        "paper",
        "paper",
    )
    assert list(data.difficulties) == own.get("train_hops", own.get("train_depths"))
    assert list(grid.difficulties) == own.get("test_hops", own.get("test_depths"))
    assert list(grid.steps) == own["test_T"]
    assert grid.num_examples == own["test_per_difficulty"]
