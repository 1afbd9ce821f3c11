// Ready-made questions. Each has a name for its button and a note that says what it shows.

const chain = (names) => names.slice(1).map((name, place) => `${names[place]} -> ${name}`);

// a to h in two rows, seven hops; the rest are dead ends and ways that only lead into the path.
const SEVEN = {
  edges: [...chain([..."abcdefgh"]), "d -> i", "i -> j", "f -> b", "l -> k", "k -> f", "l -> m", "o -> n", "n -> e"],
  rows: [..."abcdijefghmlkno"],
  columns: 5,
  source: "a",
  target: "h",
};

// 0 to 40 in rows that turn round; some edges lead back, and w to z only lead to the end.
const FORTY_NAMES = Array.from({ length: 41 }, (_, number) => String(number));
const FORTY = {
  edges: [...chain(FORTY_NAMES), "17 -> 0", "26 -> 9", "35 -> 18", "z -> y -> x -> w -> 40"],
  rows: [...FORTY_NAMES, ..."wxyz"],
  columns: 9,
  source: "0",
  target: "40",
};

const graph = (name, note, { edges, ...rest }, steps, cut) => ({
  name,
  note,
  ...rest,
  edges: edges.filter((edge) => edge !== cut).join("\n"),
  steps,
});

export const GRAPH_EXAMPLES = [
  graph("7 hops, 7 steps", "Just enough steps: right.", SEVEN, 7),
  graph("7 hops, 6 steps", "One step too few: wrong.", SEVEN, 6),
  graph("One edge missing", "No path, whatever the number of steps.", SEVEN, 12, "d -> e"),
  graph("40 hops, 40 steps", "Eight times as far as in training: right.", FORTY, 40),
  graph("40 hops, 39 steps", "Far away, and one step too few: wrong.", FORTY, 39),
  graph("40 hops, cut", "The same path without its edge from 22 to 23.", FORTY, 64, "22 -> 23"),
];

export const LOGIC_EXAMPLES = [
  { name: "Three levels", note: "Nested three deep.", expression: "!((T&F)|(!(T|F)))", steps: 8 },
  { name: "Precedence", note: "! before &, & before |.", expression: "!T|F&T|!F&T", steps: 8 },
  { name: "Five levels", note: "Nested five deep.", expression: "(((!((F&F)&T)|(!T|!F))&(T&F&!T))&!F)", steps: 12 },
  {
    name: "Eight levels",
    note: "Nested eight deep.",
    expression: "!((((((((!T&!F)&!T)|T|T)|!T)&T|F)|!T)|T&T)&F&T)",
    steps: 20,
  },
];

export const FAMILY_EXAMPLES = [
  {
    name: "Two facts",
    note: "Up one generation and down one.",
    facts: ["Alice is the parent of Bob", "Bob is the child of Carol", "David is the sibling of Eve"],
    query: "Alice is the sibling of Carol",
    steps: 8,
  },
  {
    name: "Four hops",
    note: "Four facts matter, three do not.",
    facts: [
      "David is the parent of Sam",
      "Carol is the child of Mary",
      "Sam is the parent of Grace",
      "Eve is the child of Quinn",
      "Olivia is the child of Nathan",
      "Tina is the parent of Rachel",
      "Grace is the child of Eve",
    ],
    query: "David is the sibling of Quinn",
    steps: 12,
  },
  {
    name: "A wrong claim",
    note: "Six generations lie between them, not two.",
    facts: [
      "Grace is the parent of Quinn",
      "Alice is the child of David",
      "Sam is the parent of Grace",
      "Quinn is the parent of Paul",
      "Irene is the parent of Eve",
      "Paul is the parent of Irene",
      "Jack is the sibling of Nathan",
      "Karen is the parent of Sam",
    ],
    query: "Karen is the grandparent of Eve",
    steps: 12,
  },
];
