// Small helpers for building the page. Nothing here knows about models or questions.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** An HTML element with attributes and children. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

/** Colour something by a probability; undefined takes the colour away. */
export function paint(node, belief) {
  const known = belief !== undefined;
  // Set through the object model: the content security policy forbids style attributes.
  node.style.setProperty("--belief", known ? belief : 0);
  node.classList.toggle("asked", known);
  node.classList.toggle("believed", known && belief > 0.5);
}

/** Fill a row with a button for each ready-made example. */
export function exampleButtons(row, examples, choose) {
  for (const example of examples) {
    const button = element("button", { type: "button", class: "example", title: example.note }, example.name);
    button.addEventListener("click", () => choose(example));
    row.append(button);
  }
}

/** Call back with the width of an element now and whenever it changes. */
export function onResize(node, callback) {
  new ResizeObserver(() => callback(node.clientWidth, node.clientHeight)).observe(node);
}

/** Say something in a place that is read aloud, unless it says so already. */
export function say(place, sentence) {
  if (place.textContent !== sentence) place.textContent = sentence;
}

export const decimal = (number) => number.toFixed(3);

export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

export const range = ([low, high]) => (low === high ? String(low) : `${low}–${high}`);

export const prefersStillness = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
