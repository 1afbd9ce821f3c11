"""Configs are strict, and say what is wrong."""

import pytest
from conftest import changed
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
        ([], "bad config"),
        ({}, "model: Field required"),
    ],
)
def test_bad_configs_are_refused_with_a_reason(data, words):
    with pytest.raises(ConfigError, match=words):
        parse_config(data)


def test_a_config_is_frozen_and_survives_its_own_file():
    for preset in PRESETS.values():
        config = preset()
        assert parse_config(config.model_dump(mode="json")) == config
        with pytest.raises(ValidationError):
            config.train.lr = 1.0


def test_the_run_id_follows_what_changes_the_weights():
    config = get_preset("graph", "frontier")
    assert changed(config, seed=1).run_id != config.run_id
    assert changed(config, model__core__state_noise=0.1).run_id != config.run_id
    assert changed(config, grid__num_examples=7).run_id == config.run_id


def test_frontier_is_trained_inside_its_promised_range():
    config = get_preset("graph", "frontier")
    assert config.data.difficulties == (1, 5)
    assert config.train.steps[1] <= 8


def test_unknown_presets_are_refused():
    with pytest.raises(ConfigError, match="no preset 'frontier' for task 'logic'"):
        get_preset("logic", "frontier")
