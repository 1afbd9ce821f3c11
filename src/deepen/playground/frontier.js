// Heatmaps of what was measured: difficulty upwards, steps to the right, colour by accuracy.

import { readGrid } from "./api.js";
import { byId, element, onResize, paint, range, say, shape } from "./dom.js";

const ROW = 26;
const EDGE = { left: 52, top: 6, right: 6, bottom: 42 };
const WIDEST_COLUMN = 56;

/** Show a heatmap of each model that has a grid; those already shown stay. */
export async function showFrontiers(models) {
  const room = byId("frontiers");
  byId("no-frontier").hidden = models.some((model) => model.has_grid);
  const isShown = (name) => [...room.children].some((card) => card.dataset.model === name);
  for (const model of models.filter(({ has_grid, name }) => has_grid && !isShown(name))) {
    const card = element("article", { class: "card", "data-model": model.name, "aria-busy": "true" });
    room.append(card);
    try {
      fillCard(card, model, await readGrid(model.name));
      card.removeAttribute("aria-busy");
    } catch (error) {
      card.remove(); // so that the next visit tries again
      throw error;
    }
  }
}

function fillCard(card, model, grid) {
  const svg = shape("svg", { class: "heatmap", role: "group", "aria-label": `Accuracy of ${model.name}` });
  const details = element("p", { class: "status", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys.");
  const { difficulty_name: name, reach, train_difficulties: difficulties, train_steps: steps } = grid;
  const solved = reach === null ? "" : ` Solved up to ${reach} ${name} with twice as many steps.`;
  const trained = `Trained inside the frame: ${name} ${range(difficulties)}, T ${range(steps)}.`;
  card.append(element("h2", {}, model.name), element("p", { class: "hint" }, trained + solved), svg, legend(), details);
  drawHeatmap(svg, grid, (cell) => {
    say(details, describe(cell, grid.difficulty_name));
  });
}

function drawHeatmap(svg, grid, onCell) {
  const distinct = (key) => [...new Set(grid.cells.map((cell) => cell[key]))].sort((a, b) => a - b);
  const [difficulties, steps] = [distinct("difficulty"), distinct("steps")];
  const height = EDGE.top + difficulties.length * ROW + EDGE.bottom;
  svg.style.height = `${height}px`;
  let focused = grid.cells[0];

  function draw(width) {
    const column = Math.min((width - EDGE.left - EDGE.right) / steps.length, WIDEST_COLUMN);
    const xOf = (step) => EDGE.left + steps.indexOf(step) * column;
    const yOf = (difficulty) => EDGE.top + (difficulties.length - 1 - difficulties.indexOf(difficulty)) * ROW;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    for (const difficulty of difficulties) {
      const at = { x: EDGE.left - 8, y: yOf(difficulty) + ROW / 2 + 4, "text-anchor": "end" };
      svg.append(shape("text", { class: "tick", ...at }, String(difficulty)));
    }
    const everyNth = Math.ceil(24 / column);
    const below = EDGE.top + difficulties.length * ROW;
    steps.forEach((step, place) => {
      if (place % everyNth) return;
      const at = { x: xOf(step) + column / 2, y: below + 16, "text-anchor": "middle" };
      svg.append(shape("text", { class: "tick", ...at }, String(step)));
    });
    const middle = EDGE.left + (steps.length * column) / 2;
    svg.append(shape("text", { class: "axis", x: middle, y: below + 36, "text-anchor": "middle" }, "thinking steps, T"));
    const side = `translate(12 ${(EDGE.top + below) / 2}) rotate(-90)`;
    svg.append(shape("text", { class: "axis", transform: side, "text-anchor": "middle" }, grid.difficulty_name));
    for (const cell of grid.cells) {
      const box = shape("rect", {
        class: "cell",
        x: xOf(cell.steps) + 1,
        y: yOf(cell.difficulty) + 1,
        width: Math.max(column - 2, 1),
        height: ROW - 2,
        rx: 2,
        role: "img",
        tabindex: cell === focused ? 0 : -1,
        "aria-label": describe(cell, grid.difficulty_name),
        "data-cell": `${cell.difficulty} ${cell.steps}`,
      });
      paint(box, Math.max(2 * cell.accuracy - 1, 0)); // from a coin flip to every answer right
      box.addEventListener("pointerenter", () => onCell(cell));
      box.addEventListener("focus", () => onCell(cell));
      box.addEventListener("keydown", (event) => move(event, cell));
      svg.append(box);
    }
    const inside = (values, [low, high]) => values.filter((value) => value >= low && value <= high);
    const rows = inside(difficulties, grid.train_difficulties);
    const columns = inside(steps, grid.train_steps);
    if (rows.length && columns.length) {
      const frame = { x: xOf(columns[0]), y: yOf(rows.at(-1)), width: columns.length * column, height: rows.length * ROW };
      svg.append(shape("rect", { class: "frame", rx: 3, ...frame }));
    }
  }

  /** The nearest measured cell in the direction of an arrow key takes the focus. */
  function move(event, { difficulty, steps: step }) {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [];
    if (dx === undefined) return;
    event.preventDefault();
    const ahead = grid.cells.filter((cell) => {
      const [right, up] = [cell.steps - step, cell.difficulty - difficulty];
      return dx ? up === 0 && right * dx > 0 : right === 0 && up * dy > 0;
    });
    const distance = (cell) => Math.abs(cell.steps - step) + Math.abs(cell.difficulty - difficulty);
    const next = ahead.sort((a, b) => distance(a) - distance(b))[0];
    if (!next) return;
    event.target.tabIndex = -1;
    focused = next;
    const box = svg.querySelector(`[data-cell="${next.difficulty} ${next.steps}"]`);
    box.tabIndex = 0;
    box.focus();
  }

  onResize(svg, (width) => width && draw(width));
}

function legend() {
  const bar = element("span", { class: "scale", "aria-hidden": "true" });
  const words = ["accuracy", "≤ .5", bar, "1", "(blank: not measured)"];
  return element("p", { class: "legend" }, ...words.map((word) => element("span", {}, word)));
}

function describe(cell, difficultyName) {
  const rate = (value) => (value === null ? "–" : value.toFixed(3));
  return (
    `${cell.difficulty} ${difficultyName}, T = ${cell.steps}: accuracy ${rate(cell.accuracy)} ` +
    `(95 % interval ${rate(cell.low)} to ${rate(cell.high)}, n = ${cell.num}), ` +
    `true positives ${rate(cell.true_positive_rate)}, true negatives ${rate(cell.true_negative_rate)}; ` +
    `a look-up scores at most ${rate(cell.ceiling)}`
  );
}
