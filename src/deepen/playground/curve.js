// The probability of "yes" after each step, with a marker that can be dragged or moved by keys.

import { decimal, onResize, shape } from "./dom.js";

const HEIGHT = 156;
const EDGE = { left: 30, right: 14, top: 12, bottom: 24 };

/** The value after a step; who has halted keeps its last one. */
export const valueAt = (trace, step) => trace[Math.min(step, trace.length) - 1];

/** The step from which a trace never changes side again. */
export function settledAt(trace) {
  const side = trace.at(-1) > 0.5;
  return trace.findLastIndex((probability) => probability > 0.5 !== side) + 2;
}

/** Draws into an SVG element; calls `onStep` when a person moves the marker. */
export function createCurve(svg, onStep) {
  let width = 0;
  let shown = null; // { trace, length, step }

  const acrossOf = (step) => {
    const room = width - EDGE.left - EDGE.right;
    return EDGE.left + (shown.length === 1 ? room / 2 : (room * (step - 1)) / (shown.length - 1));
  };
  const upOf = (probability) => EDGE.top + (1 - probability) * (HEIGHT - EDGE.top - EDGE.bottom);
  const point = (probability, place) => `${acrossOf(place + 1).toFixed(1)},${upOf(probability).toFixed(1)}`;

  function draw() {
    svg.replaceChildren();
    if (!width) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    for (const level of [0, 0.5, 1]) {
      const y = upOf(level);
      const line = { x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y };
      svg.append(shape("line", { class: level === 0.5 ? "half" : "rule", ...line }));
      svg.append(shape("text", { class: "tick", x: EDGE.left - 8, y: y + 4, "text-anchor": "end" }, String(level)));
    }
    if (shown) drawTrace();
  }

  function drawTrace() {
    const { trace, length, step } = shown;
    for (const tick of ticks(length, (width - EDGE.left - EDGE.right) / 44)) {
      svg.append(shape("text", { class: "tick", x: acrossOf(tick), y: HEIGHT - 6, "text-anchor": "middle" }, String(tick)));
    }
    const settled = settledAt(trace);
    if (settled > 1) {
      const x = acrossOf(settled);
      svg.append(shape("line", { class: "settled", x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
    }
    svg.append(shape("polyline", { class: "trace", points: trace.map(point).join(" ") }));
    if (trace.length < length) {
      const [x1, x2, y] = [acrossOf(trace.length), acrossOf(length), upOf(trace.at(-1))];
      svg.append(shape("line", { class: "trace held", x1, x2, y1: y, y2: y }));
    }
    if (width / length > 9) {
      trace.forEach((probability, place) => {
        svg.append(shape("circle", { class: "dot", cx: acrossOf(place + 1), cy: upOf(probability), r: 2.4 }));
      });
    }
    const x = acrossOf(step);
    svg.append(shape("line", { class: "marker", x1: x, x2: x, y1: EDGE.top - 6, y2: HEIGHT - EDGE.bottom + 6 }));
    svg.append(shape("circle", { class: "marker", cx: x, cy: upOf(valueAt(trace, step)), r: 6 }));
    svg.setAttribute("aria-valuemax", length);
    svg.setAttribute("aria-valuenow", step);
    svg.setAttribute("aria-valuetext", `step ${step} of ${length}, probability ${decimal(valueAt(trace, step))}`);
  }

  function moveTo(step) {
    if (shown) onStep(Math.min(Math.max(step, 1), shown.length));
  }

  function follow(event) {
    if (!shown || !svg.hasPointerCapture(event.pointerId)) return;
    const share = (event.clientX - svg.getBoundingClientRect().left - EDGE.left) / (width - EDGE.left - EDGE.right);
    moveTo(1 + Math.round(share * (shown.length - 1)));
  }

  svg.addEventListener("pointerdown", (event) => {
    svg.setPointerCapture(event.pointerId);
    follow(event);
  });
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("keydown", (event) => {
    if (!shown) return;
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
    const ends = { Home: 1, End: shown.length };
    const step = ends[event.key] ?? shown.step + (moves[event.key] ?? NaN);
    if (Number.isNaN(step)) return;
    event.preventDefault();
    moveTo(step);
  });
  onResize(svg, (newWidth) => {
    width = newWidth;
    draw();
  });

  return {
    /** Show a trace on an axis of so many steps, the marker at one of them; null: empty axes. */
    show(next) {
      shown = next;
      svg.toggleAttribute("aria-disabled", !next);
      draw();
    },
  };
}

/** Round numbers from 1 to the length, not more than there is room for. */
function ticks(length, most) {
  const strides = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  const stride = strides.find((one) => length / one <= most) ?? 1000;
  const round = [];
  for (let tick = stride; tick <= length; tick += stride) round.push(tick);
  // 1 is where it begins; the first round number makes way if it is too close.
  return stride === 1 ? round : [1, ...round.filter((tick) => tick - 1 >= stride * 0.7)];
}
