// Where nodes stand: { x, y }, both from 0 to 1.

const MARGIN = { x: 0.07, y: 0.12 }; // above nodes there is room for a word
const ASPECT = 1.7; // canvases are wider than high
const MOST_FOR_FORCES = 150; // beyond that, forces are slow and their pictures a tangle
const ROUNDS = 300;
const GRAVITY = 1.2; // towards the middle, or unconnected pieces would drift apart
const SIGHT = 2.5; // beyond so many ideal distances, nodes do not repel each other

/** Rows that turn round at their ends, so that a long path stays in one line. */
export function snake(names, columns) {
  const rows = Math.ceil(names.length / columns);
  const along = (place, places, margin) => (places < 2 ? 0.5 : margin + ((1 - 2 * margin) * place) / (places - 1));
  return new Map(
    names.map((name, number) => {
      const row = Math.floor(number / columns);
      const column = row % 2 ? columns - 1 - (number % columns) : number % columns;
      return [name, { x: along(column, columns, MARGIN.x), y: along(row, rows, MARGIN.y) }];
    }),
  );
}

/** Places for all nodes of a graph; those that have one keep it. */
export function place({ nodes, edges }, known) {
  const kept = new Map(nodes.filter((name) => known.has(name)).map((name) => [name, known.get(name)]));
  if (kept.size === nodes.length) return kept;
  // A graph that is mostly new is laid out afresh; into an old one the new nodes are fitted.
  const pinned = kept.size * 2 > nodes.length ? kept : new Map();
  const line = pinned.size ? null : inLine(nodes, edges);
  if (line || nodes.length > MOST_FOR_FORCES) {
    return snake(line ?? nodes, Math.max(Math.ceil(Math.sqrt(ASPECT * nodes.length)), Math.min(nodes.length, 5)));
  }
  return byForces(nodes, edges, pinned);
}

/** The nodes in the order of their paths, if there is nothing but paths; else null. */
function inLine(nodes, edges) {
  const next = new Map(edges);
  const entered = new Set(edges.map(([, to]) => to));
  if (next.size < edges.length || entered.size < edges.length) return null;
  const line = [];
  for (const start of nodes.filter((name) => !entered.has(name))) {
    for (let name = start; name !== undefined; name = next.get(name)) line.push(name);
  }
  return line.length === nodes.length ? line : null; // nothing leads into a circle
}

/** Neighbours attract, all repel, all are drawn to the middle, and each round moves less than the last. */
function byForces(nodes, edges, pinned) {
  const points = nodes.map((name, number) => {
    const angle = (2 * Math.PI * number) / nodes.length - Math.PI / 2;
    const start = pinned.get(name) ?? { x: 0.5 + 0.35 * Math.cos(angle), y: 0.5 + 0.35 * Math.sin(angle) };
    return { x: start.x * ASPECT, y: start.y, isPinned: pinned.has(name) };
  });
  const index = new Map(nodes.map((name, number) => [name, number]));
  const links = edges.map(([from, to]) => [points[index.get(from)], points[index.get(to)]]);
  const ideal = 0.8 * Math.sqrt(ASPECT / nodes.length);
  for (let round = 0; round < ROUNDS; round += 1) moveOnce(points, links, ideal, 0.1 * (1 - round / ROUNDS));
  return new Map(nodes.map((name, number) => [name, fitted(points[number], points, pinned.size > 0)]));
}

function moveOnce(points, links, ideal, most) {
  for (const point of points) {
    Object.assign(point, { dx: (ASPECT / 2 - point.x) * GRAVITY * ideal, dy: (0.5 - point.y) * GRAVITY * ideal });
  }
  const push = (a, b, strength) => {
    const [dx, dy] = [a.x - b.x, a.y - b.y];
    const distance = Math.hypot(dx, dy) || 0.001;
    const force = strength(distance) / distance;
    a.dx += dx * force;
    a.dy += dy * force;
    b.dx -= dx * force;
    b.dy -= dy * force;
  };
  points.forEach((a, number) => {
    for (const b of points.slice(number + 1)) push(a, b, (distance) => (distance > SIGHT * ideal ? 0 : ideal ** 2 / distance));
  });
  for (const [a, b] of links) push(a, b, (distance) => -(distance ** 2) / ideal);
  for (const point of points) {
    if (point.isPinned) continue;
    const length = Math.hypot(point.dx, point.dy) || 1;
    point.x += (point.dx / length) * Math.min(length, most);
    point.y += (point.dy / length) * Math.min(length, most);
  }
}

/** Back to 0..1; a layout with nothing pinned is stretched to fill the canvas. */
function fitted(point, points, hasPinned) {
  const clamp = (value, margin) => Math.min(Math.max(value, margin), 1 - margin);
  if (hasPinned) return { x: clamp(point.x / ASPECT, MARGIN.x), y: clamp(point.y, MARGIN.y) };
  const stretch = (value, all, margin) => {
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return high - low < 0.01 ? 0.5 : margin + ((1 - 2 * margin) * (value - low)) / (high - low);
  };
  return {
    x: stretch(point.x, points.map(({ x }) => x), MARGIN.x),
    y: stretch(point.y, points.map(({ y }) => y), MARGIN.y),
  };
}
