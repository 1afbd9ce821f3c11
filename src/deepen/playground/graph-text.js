// Graphs as text, and the true answer. A graph is { nodes: [name], edges: [[from, to]] }.

/** Read "a b", "a -> b" or "a -> b -> c" a line; a name alone is a node without edges. */
export function parseGraph(text) {
  const nodes = new Set();
  const edges = new Map();
  text.split("\n").forEach((line, place) => {
    if (!line.trim()) return;
    const hasArrow = /->|→/.test(line);
    const names = line.split(hasArrow ? /->|→/ : /[\s,;]+/).map((name) => name.trim()).filter(Boolean);
    if (hasArrow ? names.some((name) => /\s/.test(name)) || names.length < 2 : names.length > 2) {
      throw new Error(`Line ${place + 1}: expected “a b” or “a -> b”, got “${line.trim()}”.`);
    }
    names.forEach((name) => nodes.add(name));
    for (let at = 1; at < names.length; at += 1) {
      const [from, to] = [names[at - 1], names[at]];
      if (from !== to) edges.set(`${from} ${to}`, [from, to]); // a loop leads nowhere
    }
  });
  return { nodes: [...nodes], edges: [...edges.values()] };
}

/** The text that reads back as this graph. */
export function formatGraph({ nodes, edges }) {
  const connected = new Set(edges.flat());
  const alone = nodes.filter((name) => !connected.has(name));
  return [...edges.map(([from, to]) => `${from} -> ${to}`), ...alone].join("\n");
}

/** Hops from the source to every node it reaches: a breadth-first search. */
export function distances({ edges }, source) {
  const successors = new Map();
  for (const [from, to] of edges) successors.set(from, [...(successors.get(from) ?? []), to]);
  const hops = new Map([[source, 0]]);
  for (const [node, distance] of hops) {
    // A map is walked in order of insertion, also what is inserted meanwhile: it is its own queue.
    for (const next of successors.get(node) ?? []) if (!hops.has(next)) hops.set(next, distance + 1);
  }
  return hops;
}

/** The next free name: a, b, ... z, n27, n28, ... */
export function freshName(nodes) {
  const taken = new Set(nodes);
  const letter = [..."abcdefghijklmnopqrstuvwxyz"].find((name) => !taken.has(name));
  if (letter) return letter;
  let number = 27;
  while (taken.has(`n${number}`)) number += 1;
  return `n${number}`;
}
