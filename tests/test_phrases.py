"""Texts as phrases: what they say, how deep they stand, which words they share, what is asked about them."""

from itertools import pairwise, product

import networkx as nx
import pytest
import torch
from conftest import assert_close, spelled, tiny

from deepen.batches import collate, encode, lesson, training_example
from deepen.blocks import rotary_table
from deepen.config import ConfigError, changed
from deepen.model import DepthRecurrent
from deepen.perception import DRAWN, leads_to_first, likeness
from deepen.presets import get_preset
from deepen.reasoner import Reasoner, load
from deepen.tasks import examples, get_task
from deepen.tasks.family import TOKENS as FAMILY_TOKENS
from deepen.tasks.logic import FIRST_NAME
from deepen.tasks.logic import TOKENS as LOGIC_TOKENS
from deepen.train import train
from deepen.unroll import Fixed

TEXTS = ("logic", "family")


@pytest.mark.parametrize("words", [3, 5, 14])
def test_the_phrases_of_an_expression_are_the_expression(words):
    for example in examples("logic", "certified", 5, num=50):
        encoded = get_task("logic").phrases(example.question, words)
        phrases = ["".join(spelled(row, LOGIC_TOKENS)) for row in encoded.tokens]
        assert "".join(phrases) == example.question
        assert all(phrases)
        for phrase in phrases:
            assert "(" not in phrase[:-1]
            assert ")" not in phrase[1:]
        before = ""
        for phrase, (own, opened, *_) in zip(phrases, encoded.tokens - FIRST_NAME, strict=True):
            closes, opens = phrase.startswith(")"), phrase.endswith("(")
            assert own == before.count("(") - before.count(")") - closes
            assert opened == (own + 1 if opens else -FIRST_NAME)  # of a phrase that opens none it is no word
            before += phrase


def test_operators_outside_of_all_parentheses_are_put_into_some():
    logic = get_task("logic")
    for loose, whole in (("(T&F)|T", "((T&F)|T)"), ("!(T)&!(F)", "(!(T)&!(F))")):
        assert (logic.phrases(loose, 14).tokens == logic.phrases(whole, 14).tokens).all()
    assert len(logic.phrases("T|F&T", 14).tokens) == 1
    assert len(logic.phrases("!!(T|F)", 14).tokens) == 3


def test_spaces_and_repeated_negations_are_the_same_expression():
    logic = get_task("logic")
    spaced, dense = (logic.phrases(text, 12).tokens for text in ("! ! ( T & F ) | T", "!!(T&F)|T"))
    assert (spaced == dense).all()


def test_a_family_is_asked_first():
    (example,) = examples("family", "certified", 3)
    encoded = get_task("family").phrases(example.question, 7)
    said = [" ".join(spelled(row, FAMILY_TOKENS)) for row in encoded.tokens]
    assert said[0] == example.question["query"].rstrip("?") + " ?"
    assert said[1:] == [fact.rstrip(".") + " ." for fact in example.question["facts"]]
    assert encoded.num_asking == 1


def test_no_operand_is_torn_if_it_fits():
    """A negation ended one phrase, its group stood in the next: so what was asked there was another value."""
    num_full = 0
    for example in examples("logic", "long-lessons", 5, num=100):
        tokens = get_task("logic").phrases(example.question, 14).tokens
        for phrase, after in pairwise("".join(spelled(row, LOGIC_TOKENS)) for row in tokens):
            if not phrase.endswith("(") and not after.startswith(")"):
                num_full += 1
                assert phrase[-1] in "&|"
    assert num_full > 100


def test_likeness_counts_shared_names_by_their_places():
    """Slow twin: four loops."""
    tokens = torch.tensor([[[1, 2, 0], [2, 1, 3], [3, 3, 0]], [[4, 5, 6], [6, 5, 4], [0, 0, 0]]])
    strengths = torch.randn(2, 3, 3, dtype=torch.float64)
    for names_from in (2, 3, 5, 7):  # names at every place, at some, at none
        found = likeness(tokens, strengths, names_from)
        assert found.shape == (2, 2, 3, 3)
        for row, i, j in product(range(2), range(3), range(3)):
            pairs = [
                (a, b)
                for a, b in product(range(3), range(3))
                if tokens[row, i, a] >= names_from and tokens[row, i, a] == tokens[row, j, b]
            ]
            expected = sum((strengths[:, a, b] for a, b in pairs), torch.zeros(2, dtype=torch.float64))
            torch.testing.assert_close(found[row, :, i, j], expected)


def test_what_the_answer_can_depend_on_is_all_that_names_lead_to():
    """Oracle: a search through the graph of who is drawn to whom, in any head."""
    torch.manual_seed(0)
    alike = 5 * torch.rand(6, 2, 12, 12) - 2.75  # some are drawn far, some to a few, some to nobody
    alike[0, :, 0] = 0.0
    found = leads_to_first(alike)
    for row in range(6):
        drawn = nx.DiGraph()
        drawn.add_nodes_from(range(12))
        drawn.add_edges_from((alike[row] >= DRAWN).any(dim=0).nonzero().tolist())
        reached = nx.descendants(drawn, 0) | {0}
        expected = reached if len(reached) > 1 else set(range(12))
        assert set(found[row].nonzero().flatten().tolist()) == expected
    assert found[0].all()
    assert 0 < found[1:].sum() < 5 * 12


def test_chains_that_lead_nowhere_do_not_matter_to_a_family():
    """Of a certified text the true chain matters, and what branches off it does only where it does."""
    reasoner = load("family")
    asked = examples("family", "certified", 5, num=20)
    for one in asked:
        batch = collate([reasoner.encode(one.question)], [one.label])
        matters = reasoner.model.perception(batch).matters[0, 1:]
        told = {tuple(fact.split()[::5]): place for place, fact in enumerate(one.question["facts"])}
        chain = [told[pair] for pair in pairwise(one.certificate["chain"])]
        assert matters[chain].all()
        assert matters.sum() < 14  # of 28


def test_a_share_of_the_channels_turns():
    table = rotary_table(16, 100.0, 0.25, torch.arange(5.0))
    assert table.shape == (5, 8)
    torch.testing.assert_close(table[:, :2], rotary_table(4, 100.0, 1.0, torch.arange(5.0)))
    assert table[1, 1].angle().item() == pytest.approx(0.1)
    assert (table[:, 2:] == 1).all()


@pytest.mark.parametrize("task", TEXTS)
def test_a_question_is_answered_as_if_it_were_the_only_one(task):
    config = tiny(task, "frontier", data__questions=6)
    model = DepthRecurrent(config.model).eval()
    many = [lesson(config, index) for index in range(1200, 1206)]
    batch = collate(
        [one.encoded for one in many],
        [label for one in many for label in one.labels],
        asked=[one.asked for one in many],
    )
    with torch.no_grad():
        together = model(batch, Fixed(5)).answer
        start = 0
        for index, one in zip(range(1200, 1206), many, strict=True):
            alone = encode(get_task(task), training_example(config, index).question, config.model.perception)
            expected = model(collate([alone], [False]), Fixed(5)).answer
            assert_close(together[start : start + 1], expected)
            start += len(one.asked)


@pytest.mark.parametrize("task", TEXTS)
def test_length_and_company_do_not_change_an_answer(task):
    config = tiny(task, "frontier")
    reasoner = Reasoner(DepthRecurrent(config.model), config)
    asked = [one.question for depth in (1, 9) for one in examples(task, "certified", depth, num=3)]
    together = reasoner.answer_many(asked, steps=4)
    for question, answer in zip(asked, together, strict=True):
        assert reasoner.answer(question, steps=4).probability == pytest.approx(answer.probability, abs=1e-5)


def renamed(question, names):
    """The same question about other people."""

    def said(sentence):
        return " ".join(names.get(word.strip(".?"), word) for word in sentence.split())

    return {"facts": [said(fact) for fact in question["facts"]], "query": said(question["query"])}


def test_without_rows_names_mean_nothing_and_there_can_be_any_number_of_them():
    config = tiny("family", "frontier", model__perception__vocabulary=get_task("family").num_words + 1)
    reasoner = Reasoner(DepthRecurrent(config.model), config)
    (example,) = examples("family", "certified", 2)
    before = reasoner.answer(example.question, 3).probability
    others = renamed(example.question, {name: f"Zo{name}" for name in FAMILY_TOKENS[34:]})
    assert others != example.question
    assert reasoner.answer(others, 3).probability == pytest.approx(before, abs=1e-6)
    other = {**example.question, "query": example.question["facts"][0]}
    assert reasoner.answer(other, 3).probability != pytest.approx(before, abs=1e-6)
    many = [f"P{number} is the parent of P{number + 1}" for number in range(300)]
    reasoner.answer({"facts": many, "query": "P0 is the sibling of P3"}, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__perception__kind": "hierarchical"}, "data.questions above 1 needs the perception"),
        ({"data__train_set": 64}, "train_set must be None"),
        ({"data__questions": 1}, "train.slack needs several questions"),
        ({"data__questions": 1, "train__slack": None, "model__tells": True}, "model.tells needs several"),
        ({"model__perception__names_from": None, "model__tells": True}, "tells needs .* its names_from"),
    ],
)
def test_configs_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        changed(tiny("logic", "frontier", data__curriculum=0.0), **changes)


@pytest.mark.parametrize("task", ["family", "graph"])
def test_sentences_that_do_not_fit_are_refused_before_training(task, tmp_path):
    config = changed(
        get_preset(task, "frontier"),
        model__perception__kind="phrases",
        model__perception__words=5,
        model__tells=False,
        data__questions=1,
        train__slack=None,
    )
    with pytest.raises(ConfigError, match="a sentence has 7 words"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_graph_can_be_told_in_sentences():
    graph = get_task("graph")
    (example,) = examples("graph", "certified", 3)
    question = example.question
    encoded = graph.phrases(question, 8)
    assert encoded.num_asking == 1
    names = {}
    said = [(row[0], row[5]) for row in encoded.tokens]
    pairs = [(question["source"], question["target"]), *question["edges"]]
    for told, meant in zip(said, pairs, strict=True):
        for number, name in zip(told, meant, strict=True):
            assert names.setdefault(number, name) == name
    assert len(set(names.values())) == len(names)
    words = [name for number, name in names.items() if number < graph.num_words]
    assert words == [question["source"]]  # which alone is told by a word instead of a name


def test_a_graph_without_edges_can_be_told():
    encoded = get_task("graph").phrases({"nodes": ["a", "b"], "edges": [], "source": "a", "target": "b"}, 8)
    assert encoded.tokens.shape == (1, 8)


def test_phrases_too_short_for_their_names_are_refused():
    with pytest.raises(ValueError, match=r"perception\.words must not be 2"):
        get_task("logic").phrases("(T&F)", 2)
