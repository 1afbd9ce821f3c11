// Boolean expressions: ! binds tighter than &, & tighter than |.

/**
 * The tree of an expression. A node has a symbol (T, F, !, & or |), its children, its value and the
 * text it stands for. `T&F&T` is one node with three children; parentheses leave no node of their own.
 */
export function parseLogic(text) {
  let at = 0;
  const skipSpaces = () => {
    while (/\s/.test(text[at] ?? "")) at += 1;
  };
  const fail = (expected) => {
    const got = at < text.length ? `“${text[at]}” at character ${at + 1}` : "the end";
    throw new Error(`Expected ${expected}, got ${got}.`);
  };

  // Each returns its node and the span it covers, parentheses included.
  function readChain(symbol, readPart) {
    const parts = [readPart()];
    for (skipSpaces(); text[at] === symbol; skipSpaces()) {
      at += 1;
      parts.push(readPart());
    }
    return parts.length === 1 ? parts[0] : join(symbol, parts, parts[0].start, parts.at(-1).end);
  }

  function readOperand() {
    skipSpaces();
    const start = at;
    const symbol = text[at];
    if (symbol === "T" || symbol === "F") {
      at += 1;
      return join(symbol, [], start, at);
    }
    if (symbol === "!") {
      at += 1;
      const part = readOperand();
      return join("!", [part], start, part.end);
    }
    if (symbol !== "(") fail("T, F, ! or (");
    at += 1;
    const inner = readAlternatives();
    if (text[at] !== ")") fail("&, | or )");
    at += 1;
    return { node: inner.node, start, end: at };
  }

  function join(symbol, parts, start, end) {
    const children = parts.map((part) => part.node);
    return { node: { symbol, children, value: evaluate(symbol, children), text: text.slice(start, end) }, start, end };
  }

  const readAlternatives = () => readChain("|", () => readChain("&", readOperand));
  const { node } = readAlternatives();
  if (at < text.length) fail("& or |");
  return node;
}

function evaluate(symbol, children) {
  if (symbol === "!") return !children[0].value;
  if (symbol === "&") return children.every((child) => child.value);
  if (symbol === "|") return children.some((child) => child.value);
  return symbol === "T";
}

/** Every node of a tree, the root first. */
export function everyNode(root) {
  return [root, ...root.children.flatMap(everyNode)];
}
