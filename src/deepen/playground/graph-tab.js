// The graph tab: a graph drawn or typed, a source, a target, and the region that the model believes reached.

import { valueAt } from "./curve.js";
import { byId, count, decimal, element, exampleButtons, say } from "./dom.js";
import { GRAPH_EXAMPLES } from "./examples.js";
import { createGraphCanvas } from "./graph-canvas.js";
import { place, snake } from "./graph-layout.js";
import { distances, formatGraph, freshName, parseGraph } from "./graph-text.js";

export function createGraphTab(thinking) {
  const [text, problem, status] = [byId("graph-edges"), byId("graph-problem"), byId("graph-status")];
  const [sourceField, targetField] = [byId("graph-source"), byId("graph-target")];
  let graph = { nodes: [], edges: [] };
  let places = new Map();
  let [source, target, selected] = [null, null, null];
  let beliefs = null;
  let unread = null; // the timer of a reading that is due

  const tab = { task: "graph", panel: byId("panel-graph"), steps: 12, halt: false, plays: true, result: null, read, paint };

  const canvas = createGraphCanvas(byId("graph-canvas"), tool, {
    addNode(at) {
      const name = freshName(graph.nodes);
      places.set(name, at);
      edit([...graph.nodes, name], graph.edges);
    },
    addEdge(from, to) {
      if (!graph.edges.some((edge) => edge[0] === from && edge[1] === to)) edit(graph.nodes, [...graph.edges, [from, to]]);
    },
    moveNode(name, at) {
      places.set(name, at);
      show();
    },
    remove,
    setSource: (name) => choose(name, name === target ? source : target),
    setTarget: (name) => choose(name === source ? target : source, name),
    select(what) {
      selected = what;
      show();
    },
  });

  function tool() {
    return tab.panel.querySelector("input[name=tool]:checked").value;
  }

  /** The graph was changed by drawing: the text follows. */
  function edit(nodes, edges) {
    setGraph({ nodes, edges });
    text.value = formatGraph(graph);
    problem.textContent = "";
  }

  function remove({ node, edge }) {
    selected = null;
    const keeps = ([from, to]) => (node ? from !== node && to !== node : from !== edge[0] || to !== edge[1]);
    edit(graph.nodes.filter((name) => name !== node), graph.edges.filter(keeps));
  }

  function setGraph(next) {
    graph = next;
    places = place(graph, places);
    if (!graph.nodes.includes(source)) source = graph.nodes.find((name) => name !== target) ?? null;
    if (!graph.nodes.includes(target)) target = graph.nodes.findLast((name) => name !== source) ?? null;
    choose(source, target);
  }

  function choose(newSource, newTarget) {
    [source, target] = [newSource, newTarget];
    for (const [field, chosen] of [[sourceField, source], [targetField, target]]) {
      field.replaceChildren(...graph.nodes.map((name) => element("option", { value: name }, name)));
      field.value = chosen ?? "";
    }
    thinking.changed(tab);
    show();
  }

  function show() {
    canvas.show({ graph, places, source, target, selected, beliefs });
    byId("graph-delete").disabled = !selected;
    describe();
  }

  /** One line about what is selected, or how much there is. */
  function describe() {
    const { node, edge } = selected ?? {};
    if (edge) return say(status, `Edge ${edge[0]} → ${edge[1]}`);
    if (node) {
      const believed = beliefs?.get(node);
      return say(status, `Node ${node}${believed === undefined ? "" : `, reached with probability ${decimal(believed)}`}`);
    }
    const size = `${count(graph.nodes.length, "node")}, ${count(graph.edges.length, "edge")}`;
    const numAsked = tab.result?.answers.length;
    if (numAsked && numAsked < tab.result.details.length) {
      return say(status, `${size}. One request holds ${numAsked} questions: white nodes were not asked about.`);
    }
    return say(status, `${size}. Click: a node. Drag from node to node: an edge. Shift and drag: move.`);
  }

  function read() {
    if (unread) readText();
    if (problem.textContent) throw new Error(`The list of edges cannot be read. ${problem.textContent}`);
    if (graph.nodes.length < 2) throw new Error("Draw at least two nodes, or type an edge such as “a -> b”.");
    if (source === target) throw new Error("Source and target are the same node: choose two.");
    const hops = distances(graph, source);
    const nearness = (name) => hops.get(name) ?? Infinity;
    // If there are too many nodes for one request, those that the search meets first are asked about.
    const others = graph.nodes.filter((name) => name !== source && name !== target);
    others.sort((a, b) => (nearness(a) === nearness(b) ? 0 : nearness(a) - nearness(b)));
    const about = (name) => ({ nodes: graph.nodes, edges: graph.edges, source, target: name });
    const distance = hops.get(target);
    return {
      question: about(target),
      details: others.map(about),
      truth: distance !== undefined,
      why(steps) {
        if (distance === undefined) return `no path leads from ${source} to ${target}.`;
        const tooFew = steps < distance ? `, and ${count(steps, "step")} cannot cross that` : "";
        return `${target} is ${count(distance, "hop")} from ${source}${tooFew}.`;
      },
    };
  }

  function paint(result, step) {
    beliefs = null;
    if (result) {
      beliefs = new Map([[source, 1], [target, valueAt(result.answer.trace, step)]]);
      // The first so many of the questions were asked, in their order.
      result.details.forEach((question, number) => {
        const answer = result.answers[number];
        if (answer) beliefs.set(question.target, valueAt(answer.trace, step));
      });
    }
    canvas.showBeliefs(beliefs);
    describe();
  }

  function load(example) {
    text.value = example.edges;
    graph = parseGraph(example.edges);
    places = example.rows ? snake(example.rows, example.columns) : new Map();
    [source, target, selected] = [example.source, example.target, null];
    problem.textContent = "";
    tab.steps = example.steps;
    setGraph(graph);
  }

  function readText() {
    clearTimeout(unread);
    unread = null;
    problem.textContent = "";
    selected = null;
    try {
      setGraph(parseGraph(text.value));
    } catch (error) {
      problem.textContent = error.message;
      thinking.changed(tab);
    }
  }

  // Some ways of pasting make an event of each line: all of them are read at once.
  text.addEventListener("input", () => {
    unread ??= setTimeout(readText);
  });
  sourceField.addEventListener("change", () => choose(sourceField.value, target));
  targetField.addEventListener("change", () => choose(source, targetField.value));
  byId("graph-delete").addEventListener("click", () => selected && remove(selected));
  byId("graph-clear").addEventListener("click", () => edit([], []));
  exampleButtons(byId("graph-examples"), GRAPH_EXAMPLES, load);
  load(GRAPH_EXAMPLES[0]);
  return tab;
}
