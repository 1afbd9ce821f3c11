// The drawing of a graph, and drawing in it by mouse, finger or keys. It changes no graph itself: it
// says what a person did, and is told what to show.

import { onResize, paint, shape } from "./dom.js";

const LARGEST_RADIUS = 17;
const SMALLEST_RADIUS = 5;
const HEAD = 7; // length of an arrow head
const RING = 4; // from the rim of a node to the ring of the source or the target

/**
 * `does` has addNode({x, y}), addEdge(from, to), moveNode(name, {x, y}), remove(selected),
 * setSource(name), setTarget(name) and select(selected): { node } or { edge: [from, to] } or null.
 */
export function createGraphCanvas(svg, toolOf, does) {
  const [edgeLayer, nodeLayer] = [shape("g"), shape("g")];
  const draft = shape("path", { class: "draft" });
  svg.append(edgeLayer, draft, nodeLayer);
  let size = { width: 0, height: 0 };
  let scene = { graph: { nodes: [], edges: [] }, places: new Map() };
  let drag = null; // { name, moves, from: event position }

  const inPixels = ({ x, y }) => ({ x: x * size.width, y: y * size.height });

  function show(next) {
    scene = { ...next, longest: Math.max(0, ...next.graph.nodes.map((name) => name.length)) };
    draw();
  }

  function draw() {
    if (!size.width) return;
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    const { graph, selected } = scene;
    const at = new Map(graph.nodes.map((name) => [name, inPixels(scene.places.get(name))]));
    const radius = radiusFor([...at.values()]);
    const isEdge = new Set(graph.edges.map(String));
    edgeLayer.replaceChildren(
      ...graph.edges.map(([from, to]) => {
        const bend = isEdge.has(String([to, from])) ? 0.18 : 0; // two ways between nodes must not overlap
        const rim = (name) => radius + (roleOf(name) ? RING : 0);
        const line = arrow(at.get(from), at.get(to), rim(from), rim(to), bend);
        const isSelected = String(selected?.edge) === String([from, to]);
        return shape(
          "g",
          { class: isSelected ? "edge selected" : "edge", "data-from": from, "data-to": to },
          shape("path", { class: "hit", d: line }),
          shape("path", { class: "line", d: line }),
        );
      }),
    );
    nodeLayer.replaceChildren(...graph.nodes.map((name) => drawNode(name, at.get(name), radius)));
    colour();
  }

  function drawNode(name, { x, y }, radius) {
    const role = roleOf(name);
    const classes = ["node", role, scene.selected?.node === name && "selected"].filter(Boolean).join(" ");
    const node = shape("g", { class: classes, "data-node": name, transform: `translate(${x} ${y})` });
    if (role) node.append(shape("circle", { class: "ring", r: radius + RING }));
    node.append(shape("circle", { class: "disc", r: radius }));
    const fitsInside = scene.longest * 7.5 <= 2 * radius - 2; // all inside or all beside
    const label = name.length > 12 ? `${name.slice(0, 11)}…` : name;
    if (radius >= 9 || role) {
      const text = { class: fitsInside ? "name" : "name beside", y: fitsInside ? 4 : radius + 15 };
      node.append(shape("text", { "text-anchor": "middle", ...text }, label));
    }
    if (role) {
      const isAtTheTop = y < radius + 24; // no room above
      const beside = isAtTheTop ? radius + 18 : -radius - 9;
      node.append(shape("text", { class: "role", "text-anchor": "middle", y: beside }, role));
    }
    return node;
  }

  function roleOf(name) {
    if (name === scene.source) return "source";
    return name === scene.target ? "target" : null;
  }

  function radiusFor(points) {
    let nearest = Infinity;
    points.forEach((a, number) => {
      for (const b of points.slice(number + 1)) nearest = Math.min(nearest, Math.hypot(a.x - b.x, a.y - b.y));
    });
    return Math.min(Math.max(0.34 * nearest, SMALLEST_RADIUS), LARGEST_RADIUS);
  }

  /** Colour nodes by belief; an edge is lit as far as both its ends are. */
  function colour() {
    const believed = (name) => scene.beliefs?.get(name);
    for (const node of nodeLayer.children) paint(node, believed(node.dataset.node));
    for (const edge of edgeLayer.children) {
      const ends = [believed(edge.dataset.from), believed(edge.dataset.to)];
      paint(edge, ends.includes(undefined) ? undefined : Math.min(...ends));
    }
  }

  const positionOf = (event) => {
    const box = svg.getBoundingClientRect();
    return { x: (event.clientX - box.left) / size.width, y: (event.clientY - box.top) / size.height };
  };
  const nodeUnder = (event) =>
    document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-node]")?.dataset.node;

  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const name = event.target.closest("[data-node]")?.dataset.node;
    const edge = event.target.closest(".edge")?.dataset;
    drag = { name, edge, moves: toolOf() === "move" || event.shiftKey, from: event };
    if (name) svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (!drag?.name) return;
    if (drag.moves) does.moveNode(drag.name, inside(positionOf(event)));
    else if (toolOf() === "draw") {
      const start = inPixels(scene.places.get(drag.name));
      const end = inPixels(positionOf(event));
      draft.setAttribute("d", `M${start.x} ${start.y}L${end.x} ${end.y}`);
    }
  });
  svg.addEventListener("pointercancel", () => {
    drag = null; // the finger scrolls the page instead
    draft.removeAttribute("d");
  });
  svg.addEventListener("pointerup", (event) => {
    draft.removeAttribute("d");
    if (!drag) return;
    const { name, edge, moves, from } = drag;
    drag = null;
    const hasMoved = Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) > 6;
    if (name) finishOnNode(name, nodeUnder(event), moves, hasMoved);
    else if (hasMoved) return;
    else if (edge) does.select({ edge: [edge.from, edge.to] });
    else if (toolOf() === "draw") does.addNode(inside(positionOf(event)));
    else does.select(null);
  });

  function finishOnNode(name, end, moves, hasMoved) {
    if (toolOf() === "source") does.setSource(name);
    else if (toolOf() === "target") does.setTarget(name);
    else if (!hasMoved) does.select({ node: name });
    else if (!moves && end && end !== name) does.addEdge(name, end);
  }

  svg.addEventListener("keydown", (event) => {
    const { graph, selected } = scene;
    const place = graph.nodes.indexOf(selected?.node);
    const turn = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (turn && graph.nodes.length) {
      const next = place < 0 ? 0 : (place + turn + graph.nodes.length) % graph.nodes.length;
      does.select({ node: graph.nodes[next] });
    } else if (event.key === "Escape") does.select(null);
    else if (["Delete", "Backspace"].includes(event.key) && selected) does.remove(selected);
    else if (event.key === "s" && selected?.node) does.setSource(selected.node);
    else if (event.key === "t" && selected?.node) does.setTarget(selected.node);
    else return;
    event.preventDefault();
  });

  onResize(svg, (width, height) => {
    size = { width, height };
    draw();
  });
  return {
    show,
    /** Only the colours: a map from names to probabilities, or null. */
    showBeliefs(beliefs) {
      scene.beliefs = beliefs;
      colour();
    },
  };
}

const inside = ({ x, y }) => ({ x: Math.min(Math.max(x, 0.03), 0.97), y: Math.min(Math.max(y, 0.05), 0.95) });

/** A line between the rims of two nodes with an open arrow head, straight or bent to one side. */
function arrow(start, end, startRim, endRim, bend) {
  const [dx, dy] = [end.x - start.x, end.y - start.y];
  const middle = { x: (start.x + end.x) / 2 - dy * bend, y: (start.y + end.y) / 2 + dx * bend };
  const towards = (from, to, distance) => {
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    return { x: from.x + ((to.x - from.x) / length) * distance, y: from.y + ((to.y - from.y) / length) * distance };
  };
  const first = towards(start, middle, startRim + 1);
  const last = towards(end, middle, endRim + 3);
  const angle = Math.atan2(last.y - middle.y, last.x - middle.x);
  const barb = (turn) => `${last.x - HEAD * Math.cos(angle + turn)} ${last.y - HEAD * Math.sin(angle + turn)}`;
  const line = `M${first.x} ${first.y}Q${middle.x} ${middle.y} ${last.x} ${last.y}`;
  return `${line}M${barb(0.5)}L${last.x} ${last.y}L${barb(-0.5)}`;
}
