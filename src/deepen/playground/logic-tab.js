// The logic tab: an expression, its tree, and what the model believes of every part of it.

import { valueAt } from "./curve.js";
import { byId, decimal, exampleButtons, onResize, paint as colour, say, shape } from "./dom.js";
import { LOGIC_EXAMPLES } from "./examples.js";
import { everyNode, parseLogic } from "./logic-parser.js";

const COLUMN = 40;
const ROW = 42;
const RADIUS = 14;
const PADDING = 28;
const HEIGHTS = [200, 400]; // of the picture: the least and the most

export function createLogicTab(thinking) {
  const [field, problem, svg, status] = ["logic-expression", "logic-problem", "logic-tree", "logic-status"].map(byId);
  let root = null;
  let nodes = []; // of the tree, in the order of drawing
  let selected = -1;
  let beliefs = new Map(); // text of a part -> probability
  let width = 0;

  const tab = { task: "logic", panel: byId("panel-logic"), steps: 12, halt: false, plays: true, result: null, read, paint };

  function readField() {
    problem.textContent = "";
    try {
      root = parseLogic(field.value);
    } catch (error) {
      problem.textContent = error.message;
      root = null;
    }
    nodes = root ? everyNode(root) : [];
    selected = -1;
    thinking.changed(tab);
    draw();
  }

  function read() {
    if (!root) throw new Error(`The expression cannot be read. ${problem.textContent}`);
    const parts = new Set(nodes.map(({ text }) => text));
    parts.delete(root.text);
    return {
      question: field.value,
      details: [...parts],
      truth: root.value,
      why: () => `the expression is ${root.value}.`,
    };
  }

  function paint(result, step) {
    beliefs = new Map();
    if (result) {
      beliefs.set(root.text, valueAt(result.answer.trace, step));
      result.answers.forEach(({ trace }, number) => beliefs.set(result.details[number], valueAt(trace, step)));
    }
    colourAll();
  }

  function colourAll() {
    svg.querySelectorAll(".part").forEach((part, number) => {
      const { text, value } = nodes[number];
      const belief = beliefs.get(text);
      colour(part, belief);
      part.classList.toggle("astray", belief !== undefined && belief > 0.5 !== value);
      part.classList.toggle("selected", number === selected);
    });
    describe();
  }

  function describe() {
    const node = nodes[selected];
    if (!node) {
      const isAsked = beliefs.size > 0;
      say(status, isAsked ? "Filled: believed true. Dashed ring: not right at this step." : "Arrow keys walk through the parts.");
      return;
    }
    const belief = beliefs.get(node.text);
    const believed = belief === undefined ? "" : `; the model gives true ${decimal(belief)}`;
    say(status, `${node.text} is ${node.value}${believed}`);
  }

  function draw() {
    svg.replaceChildren();
    if (!root || !width) return;
    const places = layOut(root);
    const [columns, rows] = [0, 1].map((axis) => Math.max(...[...places.values()].map((place) => place[axis])));
    const wanted = { width: columns * COLUMN + 2 * PADDING, height: rows * ROW + 2 * PADDING };
    const height = Math.min(Math.max(wanted.height, HEIGHTS[0]), HEIGHTS[1]);
    const scale = Math.min(1.25, width / wanted.width, height / wanted.height);
    svg.style.height = `${height}px`;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const corner = [(width - wanted.width * scale) / 2, (height - wanted.height * scale) / 2];
    const whole = shape("g", { transform: `translate(${corner}) scale(${scale})` });
    const pointOf = (node) => {
      const [column, row] = places.get(node);
      return { x: PADDING + column * COLUMN, y: PADDING + row * ROW };
    };
    for (const node of nodes) {
      const from = pointOf(node);
      for (const to of node.children.map(pointOf)) {
        whole.append(shape("line", { class: "branch", x1: from.x, y1: from.y, x2: to.x, y2: to.y }));
      }
    }
    nodes.forEach((node, number) => {
      const { x, y } = pointOf(node);
      whole.append(
        shape(
          "g",
          { class: "part", "data-number": number, transform: `translate(${x} ${y})` },
          shape("circle", { class: "warning", r: RADIUS + 4 }),
          shape("circle", { class: "disc", r: RADIUS }),
          shape("text", { class: "name", "text-anchor": "middle", y: 5 }, node.symbol),
        ),
      );
    });
    svg.append(whole);
    colourAll();
  }

  function select(number) {
    selected = number;
    colourAll();
  }

  svg.addEventListener("pointerover", (event) => select(Number(event.target.closest(".part")?.dataset.number ?? -1)));
  svg.addEventListener("keydown", (event) => {
    const turn = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!turn || !nodes.length) return;
    event.preventDefault();
    select((Math.max(selected, turn > 0 ? -1 : 0) + turn + nodes.length) % nodes.length);
  });
  field.addEventListener("input", readField);
  onResize(svg, (newWidth) => {
    if (newWidth === width) return; // only the height has changed, by drawing
    width = newWidth;
    draw();
  });

  function load(example) {
    field.value = example.expression;
    tab.steps = example.steps;
    readField();
  }
  exampleButtons(byId("logic-examples"), LOGIC_EXAMPLES, load);
  load(LOGIC_EXAMPLES[0]);
  return tab;
}

/** Column and row of each node: leaves side by side, each operator above the middle of what it joins. */
function layOut(root) {
  const places = new Map();
  let leaves = 0;
  const visit = (node, row) => {
    const columns = node.children.map((child) => visit(child, row + 1));
    const column = columns.length ? (columns[0] + columns.at(-1)) / 2 : leaves++;
    places.set(node, [column, row]);
    return column;
  };
  visit(root, 0);
  return places;
}
