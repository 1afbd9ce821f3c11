"""Batches are pure functions of the update, cover a fixed set evenly, and waste little on padding."""

from collections import Counter

import pytest
import torch
from conftest import batch_of, changed, tiny

from deepen.batches import Stream, collate, in_batches, training_example
from deepen.tasks import Task, examples, get_task


def same(one, other):
    return all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("tokens", "valid", "labels")
    )


@pytest.mark.parametrize("train_set", [48, None])
def test_a_batch_is_a_pure_function_of_its_update(train_set):
    config = tiny("logic", data__train_set=train_set)
    in_order, jumping = Stream(config), Stream(config)
    batches = [in_order[update] for update in range(20)]
    for update in (17, 3, 9, 0):
        assert same(jumping[update], batches[update])
    assert not same(Stream(changed(config, seed=1))[0], batches[0])


def test_an_epoch_shows_every_example_of_a_fixed_set_once():
    config = tiny("family", data__train_set=64, data__batch=8)
    stream = Stream(config)
    shown = Counter()
    for update in range(16):  # two epochs, which is one window each
        batch = stream[update]
        shown.update(
            (tuple(tokens[valid].tolist()), label.item())
            for tokens, valid, label in zip(batch.tokens, batch.valid, batch.labels, strict=True)
        )
    assert len(shown) == 64
    assert set(shown.values()) == {2}


def test_endless_data_never_repeats():
    stream = Stream(tiny("family", data__train_set=None))
    shown = Counter(tuple(row.tolist()) for update in range(40) for row in stream[update].tokens)
    assert set(shown.values()) == {1}


def test_a_curriculum_begins_with_what_is_easy():
    config = tiny("logic", data__train_set=None, data__difficulties=(1, 4), data__batch=8, train__updates=100)
    growing = changed(config, data__curriculum=0.5)
    drawn = [training_example(growing, index).difficulty for index in range(800)]
    largest = [max(drawn[begin : begin + 100]) for begin in range(0, 800, 100)]
    assert largest == [1, 2, 3, 4, 4, 4, 4, 4]
    assert set(drawn[300:400]) == {1, 2, 3, 4}, "what is easy stays"
    same_again = [training_example(growing, index) for index in (500, 700)]
    assert same_again == [training_example(config, index) for index in (500, 700)]
    with pytest.raises(ValueError, match="endless fresh examples"):
        changed(growing, data__train_set=64)


def test_difficulties_and_labels_are_balanced(monkeypatch):
    drawn = Counter()
    original = Task.example

    def remember(self, distribution, split, seed, difficulty, index):
        example = original(self, distribution, split, seed, difficulty, index)
        if seed == 4321:  # not those that a thread of another test's stream still prepares
            drawn[difficulty, example.label] += 1
        return example

    monkeypatch.setattr(Task, "example", remember)
    Stream(tiny("graph", seed=4321, data__train_set=100))
    assert drawn == {(hops, label): 10 for hops in (1, 2, 3, 4, 5) for label in (True, False)}


def test_grouping_by_length_saves_padding():
    config = tiny("logic", data__train_set=1024, data__batch=32)
    stream = Stream(config)
    batches = [stream[update] for update in range(8)]
    grouped = sum(batch.num_padding for batch in batches)
    every = torch.cat([batch.valid.sum(dim=1) for batch in batches])
    ungrouped = sum(int((chunk.max() - chunk).sum()) for chunk in every[torch.randperm(256)].split(32))
    assert grouped < 0.5 * ungrouped


def test_collate_marks_in_neighbours():
    question = {"nodes": ["a", "b", "c"], "edges": [["a", "b"], ["c", "b"]], "source": "a", "target": "b"}
    batch = collate([get_task("graph").encode(question)], [True])
    names = [question["nodes"][token - 1] for token in batch.tokens[0]]
    entered = {
        (names[batch.graphs.places[0, u]], names[batch.graphs.places[0, v]])
        for v, u in batch.graphs.allowed[0].nonzero().tolist()
    }
    assert entered == {("a", "b"), ("c", "b")} | {(name, name) for name in "abc"}
    assert [names[place] for place in batch.query[0]] == ["a", "b"]


def test_in_batches_returns_every_question_once_in_its_place():
    drawn = [one for depth in (1, 4, 8, 14) for one in examples("logic", difficulty=depth, num=60)]
    encoded = [get_task("logic").encode(one.question) for one in drawn]
    seen = []
    for places, batch in in_batches(encoded, [one.label for one in drawn], widest=2**14):
        seen += places
        for row, place in enumerate(places):
            assert batch.tokens[row][batch.valid[row]].tolist() == encoded[place].tokens.tolist()
            assert batch.labels[row] == drawn[place].label
    assert sorted(seen) == list(range(240))


def test_num_padding_counts_the_padding():
    batch = batch_of("logic", examples("logic", difficulty=3, num=9))
    assert batch.num_padding == int((~batch.valid).sum()) > 0


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_workers_get_equal_shares_and_batches_little_padding(num_workers):
    drawn = [one for depth in (2, 5, 9) for one in examples("family", difficulty=depth, num=200)]
    encoded = [get_task("family").encode(one.question) for one in drawn]
    budgets = [number % 7 for number in range(600)]
    found = list(in_batches(encoded, [True] * 600, 1024, budgets, num_workers))
    assert sorted(place for places, _ in found for place in places) == list(range(600))
    sizes = [batch.tokens.numel() for _, batch in found]
    assert max(sizes) <= 1.5 * 2**20 / 1024
    assert sum(batch.num_padding for _, batch in found) <= 0.05 * sum(sizes)
    lengths = [batch.tokens.shape[1] for _, batch in found]
    assert lengths == sorted(lengths, reverse=True)
    few = list(in_batches(encoded[:3], [True] * 3, 16, None, num_workers))
    assert len(few) == 1  # too little to share
