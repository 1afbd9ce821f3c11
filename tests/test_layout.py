"""How graphs lie in memory, against graph searches; small, large and crowded graphs get the right answers."""

from dataclasses import replace
from math import log
from unittest.mock import patch

import networkx
import numpy as np
import pytest
import torch
from conftest import assert_close, tiny
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

import deepen
from deepen.batches import collate
from deepen.blocks import attend_over_edges, sharpness
from deepen.layout import Blocks, EdgeList, as_blocks, as_edge_list, as_joinable, is_large
from deepen.model import DepthRecurrent
from deepen.shapes import Encoded, State
from deepen.unroll import Fixed, unroll

CHAIN = (8, [(i, i + 1) for i in range(7)], (0, 7))  # number of nodes, edges, source and target
STUCK = (6, [(0, 1), (2, 1), (1, 2), (4, 3), (4, 3), (3, 3)], (0, 3))


def with_crowd(crowd):
    """The shipped model, with attention sharpened beyond so many in-neighbours."""
    reasoner = deepen.load("graph")
    reasoner.model.perception.crowd = crowd
    return reasoner


@pytest.fixture(scope="module")
def reasoner():
    return with_crowd(16)


@st.composite
def graphs(draw):
    """Any small graph: without edges, with loops, double edges, source and target the same, and so on."""
    num = draw(st.integers(1, 8))
    pair = st.tuples(st.integers(0, num - 1), st.integers(0, num - 1))
    return num, draw(st.lists(pair, max_size=16)), draw(pair)


def array(edges):
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


def question(num, edges, source, target):
    return {"nodes": list(range(num)), "edges": edges, "source": source, "target": target}


def distances(drawn):
    """Of every node from which a path leads to source or target: the edges on the shortest one."""
    num, edges, query = drawn
    reverse = networkx.DiGraph((end, start) for start, end in edges)
    reverse.add_nodes_from(range(num))
    return networkx.multi_source_dijkstra_path_length(reverse, set(query))


def links(drawn):
    """The edges of a graph that lead to a node of the row, and each of these nodes to itself."""
    near = distances(drawn)
    return {(start, end) for start, end in drawn[1] if end in near} | {(node, node) for node in near}


def check_blocks(blocks, owner, node, where, drawn):
    """Everything that blocks promise."""
    near = [distances(one) for one in drawn]
    row = list(zip(owner.tolist(), node.tolist(), strict=True))
    assert sorted(row) == sorted((graph, v) for graph, found in enumerate(near) for v in found)
    assert row == sorted(row, key=lambda one: near[one[0]][one[1]])
    within = [[sum(d <= k for d in found.values()) for k in range(len(blocks.needed))] for found in near]
    assert blocks.counts.tolist() == within
    assert blocks.needed == tuple(map(sum, zip(*within, strict=True)))
    assert blocks.num_slots == {sum(counts): max(counts) for counts in zip(*within, strict=True)}
    assert blocks.owner.tolist() == owner.tolist()
    assert blocks.places[blocks.owner, blocks.slot].tolist() == list(range(blocks.needed[-1]))
    for graph, one in enumerate(drawn):
        mine = [place for place, (other, _) in enumerate(row) if other == graph]
        names = [row[place][1] for place in mine]
        assert blocks.slot[mine].tolist() == list(range(len(mine)))
        pairs = blocks.allowed[graph, : len(mine)].nonzero().tolist()
        assert sorted((names[u], names[v]) for v, u in pairs) == sorted(links(one))
        assert blocks.num_in[mine].tolist() == [sum(end == v for _, end in links(one)) for v in names]
        assert [row[place] for place in where[graph]] == [(graph, v) for v in one[2]]


@settings(max_examples=150, deadline=None)
@example([STUCK, CHAIN, STUCK], [2, 0])
@given(st.lists(graphs(), min_size=1, max_size=5), st.lists(st.integers(0, 4), min_size=1, unique=True))
def test_blocks_hold_what_can_reach_the_queried_nodes_nearest_first(drawn, chosen):
    """Oracle: a breadth-first search of each graph. Graphs selected from a batch keep every promise."""
    nums, edges, queries = zip(*drawn, strict=True)
    blocks, (owner, node), where = as_blocks([array(one) for one in edges], max(nums), np.array(queries))
    check_blocks(blocks, owner, node, where, drawn)
    assert len(blocks.needed) == 1 + max(max(distances(one).values()) for one in drawn)
    stay = [place for place in chosen if place < len(drawn)] or [0]
    some, kept, new_place = blocks.select(torch.tensor(stay))
    where = new_place[torch.from_numpy(where)[stay]].tolist()
    check_blocks(some, some.owner, node[kept.numpy()], where, [drawn[place] for place in stay])


@settings(max_examples=150, deadline=None)
@example(CHAIN, 8)
@given(graphs(), st.sampled_from([2, 8, 2**18]))
def test_an_edge_list_holds_the_same_in_buckets(drawn, at_once):
    """Oracle: a breadth-first search; every node is in one bucket, beside its in-neighbours and itself."""
    num, edges, query = drawn
    with patch("deepen.layout.EDGES_AT_ONCE", at_once):
        listed, (owner, row), (where,) = as_edge_list(array(edges), num, np.array(query))
    assert not owner.any()
    near = distances(drawn)
    assert sorted(row) == sorted(near)
    assert row.tolist() == sorted(row.tolist(), key=near.get)
    assert listed.needed == tuple(sum(d <= k for d in near.values()) for k in range(max(near.values()) + 1))
    assert row[where].tolist() == list(query)
    assert sorted(torch.cat([bucket.nodes for bucket in listed.buckets]).tolist()) == list(range(len(row)))
    seen = []
    for bucket in listed.buckets:
        assert (bucket.nodes.diff() > 0).all()
        assert len(bucket.nodes) == 1 or bucket.sources.numel() <= 2 * at_once
        for place, sources, present in zip(bucket.nodes, bucket.sources, bucket.present, strict=True):
            assert listed.num_in[place] == present.sum()
            assert (sources[~present] == sources[0]).all()
            seen += [(row[source], row[place]) for source in sources[present]]
    assert sorted(seen) == sorted(links(drawn))
    assert sum(bucket.sources.numel() for bucket in listed.buckets) < 2 * len(seen)  # linear memory


@settings(max_examples=100, deadline=None)
@given(st.lists(graphs(), min_size=1, max_size=4))
def test_joinable_graphs_hold_the_same_in_one_bucket(drawn):
    """Oracle: the same search; all graphs in one row, nobody with in-neighbours of another graph."""
    width = max(sum(end == v for _, end in links(one)) for one in drawn for v in range(one[0]))
    edges, query = [array(one[1]) for one in drawn], np.array([one[2] for one in drawn])
    sizes = np.array([one[0] for one in drawn])
    listed, (owner, node), where = as_joinable(edges, sizes, query, width)
    near = [distances(one) for one in drawn]
    assert sorted(zip(owner, node, strict=True)) == sorted((g, v) for g, one in enumerate(near) for v in one)
    far = [near[g][v] for g, v in zip(owner, node, strict=True)]
    assert far == sorted(far)
    assert listed.needed == tuple(sum(d <= k for d in far) for k in range(max(far) + 1))
    assert listed.owner.tolist() == owner.tolist()
    assert [[(g, v) for v in one[2]] for g, one in enumerate(drawn)] == [
        [(owner[at], node[at]) for at in row] for row in where
    ]
    (bucket,) = listed.buckets
    for at, (sources, present) in enumerate(zip(bucket.sources, bucket.present, strict=True)):
        assert (owner[sources.numpy()] == owner[at]).all()
        assert (sources[~present] == at).all()
        expected = {start for start, end in links(drawn[owner[at]]) if end == node[at]}
        assert sorted(node[sources[present].numpy()]) == sorted(expected)
        assert listed.num_in[at] == len(expected)


def as_list(one):
    """A batch of one graph that is taken for a large one, in many small buckets."""
    with patch.multiple("deepen.layout", SMALL=0, SPARSE=0, EDGES_AT_ONCE=16):
        batch = collate([one], [True])
    assert isinstance(batch.graphs, EdgeList)
    return batch


def as_it_is(one):
    """A batch of one graph with all its nodes as they come: nothing sorted, nothing left out."""
    num = len(one.tokens)
    every = torch.arange(num)
    allowed = torch.eye(num, dtype=torch.bool)
    allowed[one.edges[:, 1], one.edges[:, 0]] = True
    owner, counts = torch.zeros_like(every), torch.tensor([[num]])
    whole = Blocks(places=every[None], owner=owner, slot=every, allowed=allowed[None], counts=counts)
    tokens, query = torch.from_numpy(one.tokens)[None], torch.tensor([one.query])
    return replace(collate([one], [True]), tokens=tokens, valid=tokens > 0, graphs=whole, query=query)


def one_by_one(model, batch, num_steps):
    """Slow twin of the unroll: every step for every position."""
    scene = model.perception(batch)
    state, logits = State(hidden=scene.first), []
    for t in range(1, num_steps + 1):
        state = model.core(state, scene, t)
        logits.append(model.read(state, scene))
    return torch.stack(logits, dim=1)


def model_of(preset):
    """A small model without dropout and noise, with values and degrees that nothing can hide behind."""
    model = DepthRecurrent(tiny("graph", preset, model__perception__crowd=2).model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def some_graph(num, seed):
    """A path without shortcuts, others with edges to anywhere and many to one node of it, and dead ends."""
    rng = np.random.default_rng(seed)
    end = num // 3
    others, anywhere = rng.integers([[end], [0]], [[num - num // 6], [num]], size=(2, 3 * num))
    anywhere[:num] = rng.integers(1, end)
    edges = np.stack([[*range(end), *others], [*range(1, end + 1), *anywhere]], axis=1)
    return Encoded(tokens=np.arange(1, num + 1), edges=edges, query=(0, end))


@pytest.mark.parametrize("num_steps", [1, 2, 5])
@pytest.mark.parametrize(("preset", "num"), [("paper", 26), ("frontier", 26), ("frontier", 90)])
def test_all_forms_of_a_graph_give_the_same_logits_and_gradients(preset, num, num_steps):
    """Blocks, edge list, and the whole graph step by step: logits at every step, every gradient."""
    model, one, weights = model_of(preset), some_graph(num, seed=num_steps), torch.randn(num_steps)
    batches = collate([one], [True]), as_list(one)
    dense, *others = (model(batch, Fixed(num_steps), range(1, num_steps + 1)).logits for batch in batches)
    others.append(one_by_one(model, as_it_is(one), num_steps))
    names, parameters = zip(*model.named_parameters(), strict=True)
    expected = torch.autograd.grad(dense[0] @ weights, parameters)
    for other in others:
        assert_close(other, dense)
        gradients = torch.autograd.grad(other[0] @ weights, parameters)
        for name, one, two in zip(names, gradients, expected, strict=True):
            assert (one - two).abs().max() <= 1e-4 * two.abs().max() + 1e-7, name


@torch.no_grad()
@pytest.mark.parametrize("num_steps", [1, 4, 28, 29, 30, 50])
def test_leaving_out_what_cannot_matter_changes_nothing(reasoner, num_steps):
    """What matters is up to 29 edges away: as good as every step of every node, for fewer and more steps."""
    for one in (some_graph(90, seed) for seed in range(3)):
        expected = one_by_one(reasoner.model, as_it_is(one), num_steps)
        for batch in (collate([one], [True]), as_list(one)):
            assert len(batch.graphs.needed) == 30
            output = reasoner.model(batch, Fixed(num_steps), keep=range(1, num_steps + 1))
            assert_close(output.logits, expected)
            assert output.state.hidden.shape[1] == 2  # only what is read


@torch.no_grad()
def test_who_leaves_a_batch_does_not_touch_who_stays():
    """Questions with limits of their own, against each alone, every step of every node."""
    model, limits = model_of("frontier"), [3, 7, 1, 7, 5]
    drawn = [some_graph(90 - 10 * seed, seed) for seed in range(5)]
    step, scene = model.begin(collate(drawn, [True] * 5))
    output = unroll(step, model.read, scene, Fixed(7), range(1, 8), limits=torch.tensor(limits))
    for one, limit, logits in zip(drawn, limits, output.logits, strict=True):
        assert_close(logits[:limit], one_by_one(model, as_it_is(one), limit)[0])
        assert logits[limit:].isnan().all()


@pytest.mark.parametrize("crowd", [2, 16, 100])
def test_sharpening_keeps_the_weight_of_one_neighbour_among_any_number(crowd):
    """The formula; and who stands out from `crowd` others stands out at least as much from a million."""
    numbers = [1, 2, 3, 15, 16, 17, 100, 101, 512, 5_000, 20_000, 1_000_000]
    factors = sharpness(torch.tensor(numbers), crowd).tolist()
    assert factors == pytest.approx([1 if num <= crowd else log(num) / log(crowd) for num in numbers])

    def weight(num, score):
        return pad(torch.tensor([score], dtype=torch.float64), (0, num - 1)).softmax(dim=0)[0]

    beyond = [(num, factor) for num, factor in zip(numbers, factors, strict=True) if num > crowd]
    for score in (log(crowd), 1.5 * log(crowd), 3 * log(crowd)):
        assert min(weight(num, score * factor) for num, factor in beyond) >= weight(crowd + 1, score) - 1e-6
    weights = [weight(num, 1.5 * log(crowd) * factor) for num, factor in beyond]
    assert weights == sorted(weights)
    assert weight(1_000_000, 1.5 * log(crowd)) < 0.01  # what becomes of it otherwise


def crowded(hops, hubs, num, cut=None):
    """A path some of whose nodes have `num` in-neighbours: the one before it, and others without a past."""
    edges = [(i, i + 1) for i in range(hops) if i != cut]
    edges += [(other, hub) for hub in hubs for other in range(hops + 1, hops + num)]
    return question(hops + num, edges, 0, hops)


@pytest.mark.parametrize("num", [64, 512, 2_000, 5_000, 20_000])
@pytest.mark.parametrize(("hops", "hub"), [(1, 1), (4, 4), (5, 2)])
def test_a_crowd_does_not_drown_one_neighbour(reasoner, hops, hub, num):
    """One in-neighbour of many is reached: yes from T = h on. None is, or the path is cut behind: no."""
    trace = reasoner.answer(crowded(hops, [hub], num), steps=3 * hops).trace
    assert [p > 0.5 for p in trace] == [t >= hops for t in range(1, 3 * hops + 1)]
    for cut in {hub - 1, hops - 1}:
        assert max(reasoner.answer(crowded(hops, [hub], num, cut), steps=3 * hops).trace) < 0.5


def test_it_is_the_sharpening_that_helps_in_a_crowd(reasoner):
    """5,000 in-neighbours of every node on the path: without it the path is never seen."""
    crowd = crowded(5, range(1, 6), 5_000)
    assert reasoner.answer(crowd, steps=5).label
    assert max(with_crowd(None).answer(crowd, steps=15).trace) < 0.5


def large_graph(seed, cut=None):
    """3,000 nodes, 12,000 random edges and a path of 12: half of the other nodes before it, half behind."""
    stage = np.repeat([1, 0, 2], [13, 1_493, 1_494])
    start, end = np.random.default_rng(seed).integers(3_000, size=(2, 40_000))
    free = (stage[start] < stage[end]) | ((stage[start] == stage[end]) & (stage[start] != 1))
    edges = np.stack([start[free], end[free]], axis=1)[:12_000].tolist()
    return edges + [[i, i + 1] for i in range(12) if i != cut]


def test_a_large_sparse_graph_is_answered_as_an_edge_list(reasoner):
    """Yes at T = h and not at h - 1, no for good if the path is cut; a search says what h is."""
    with patch("deepen.core.attend_over_edges", wraps=attend_over_edges) as used:
        for seed in range(2):
            whole, cut = large_graph(seed), large_graph(seed, cut=6)
            assert networkx.shortest_path_length(networkx.DiGraph(whole), 0, 12) == 12
            assert not networkx.has_path(networkx.DiGraph(cut), 0, 12)
            answers = [reasoner.answer(question(3_000, whole, 0, 12), steps=steps) for steps in (11, 12, 36)]
            assert [answer.label for answer in answers] == [False, True, True]
            assert not reasoner.answer(question(3_000, cut, 0, 12), steps=36).label
    assert used.call_count == 2 * (11 + 12 + 36 + 36)


def test_large_and_small_graphs_together_get_the_answers_they_get_alone(reasoner):
    """Different sizes and budgets, some until they settle; one is an edge list only when alone."""
    sizes = [(700, 2_000), (520, 20_000), (515, 1_500), (40, 60), (9, 12), (2, 1), (600, 900), (30, 500)]
    assert [is_large(*size) for size in sizes] == [True, False, True, False, False, False, True, False]
    drawn = [list(networkx.gnm_random_graph(*size, seed=7, directed=True).edges) for size in sizes]
    questions = [question(num, edges, 0, num - 1) for (num, _), edges in zip(sizes, drawn, strict=True)]
    budgets = [6, 3, 9, None, 7, 1, None, 12]
    together = reasoner.answer_many(questions, steps=budgets)
    for asked, budget, answer in zip(questions, budgets, together, strict=True):
        alone = reasoner.answer(asked, steps=budget)
        assert alone.steps == answer.steps == len(answer.trace)
        assert alone.trace == pytest.approx(answer.trace, abs=1e-5)
