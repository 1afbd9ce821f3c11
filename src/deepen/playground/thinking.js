// What all tasks share: T, the Think button, the verdict, the curve and its playback.
//
// A tab has: task, panel, steps, halt, result; plays: whether a result is played from its first step;
// read(), which raises an Error with a sentence or returns { question, details, truth, why(steps) };
// paint(result, step), where null means that there is nothing to show. A result is what was read, the
// answer to the question, and the answers to the details (or to the first of them, if they are many).
// Controls and curve exist once and move into the tab that is open.

import { ask, thatFit } from "./api.js";
import { createCurve, settledAt, valueAt } from "./curve.js";
import { byId, count, decimal, prefersStillness, range } from "./dom.js";

const PLAY_MS = 2600; // a playback in all, within the bounds below
const FASTEST_MS = 35;
const SLOWEST_MS = 320;

export function createThinking({ onKeyNeeded }) {
  const [controls, outcome] = [byId("controls"), byId("outcome")];
  const [number, slider, halt] = [byId("steps"), byId("steps-slider"), byId("halt")];
  const [verdict, sentence, problem, play] = [byId("verdict"), byId("verdict-why"), byId("problem"), byId("play")];
  let tab = null;
  let limits = null;
  let modelOf = () => null;
  let waiting = null; // the AbortController of the request under way
  let timer = null;
  const curve = createCurve(byId("curve"), (step) => {
    stop();
    goTo(step);
  });

  function open(next) {
    cancel();
    tab = next;
    tab.panel.querySelector("[data-slot=controls]").append(controls);
    tab.panel.querySelector("[data-slot=outcome]").append(outcome);
    showSettings();
    showResult();
  }

  function showSettings() {
    number.value = tab.steps;
    slider.value = tab.steps;
    halt.checked = tab.halt;
    byId("steps-label").textContent = tab.halt ? "At most this many steps, T" : "Thinking steps, T";
    const model = modelOf(tab.task);
    byId("trained").textContent = model
      ? `Trained with ${model.difficulty_name} ${range(model.train_difficulties)} and T ${range(model.train_steps)}.`
      : "";
  }

  /** The question of a tab is another one now: what was answered no longer belongs to it. */
  function changed(other, steps = other.steps) {
    other.steps = steps;
    forget(other);
    if (other === tab) showSettings();
  }

  function forget(other) {
    other.result = null;
    other.paint(null);
    if (other !== tab) return;
    cancel();
    showResult();
  }

  function cancel() {
    stop();
    waiting?.abort();
    waiting = null;
    byId("think").removeAttribute("aria-busy");
    problem.textContent = "";
  }

  async function think() {
    const asking = tab;
    forget(asking); // an older answer must not stand beside an error, or be taken for the new one
    try {
      const asked = asking.read();
      const model = modelOf(asking.task);
      if (!model) throw new Error("The server has not said yet which models it has. Try again in a moment.");
      waiting = new AbortController();
      const request = { model: model.name, steps: readSteps(), halt: asking.halt, signal: waiting.signal };
      byId("think").setAttribute("aria-busy", "true");
      const [answer] = await ask({ ...request, questions: [asked.question] });
      asking.result = { ...asked, answer, budget: request.steps, length: answer.steps, answers: [] };
      asking.result.step = asking.plays && !prefersStillness() ? 1 : answer.steps;
      showResult();
      const details = thatFit(asked.details, limits);
      if (details.length) {
        asking.result.answers = await ask({ ...request, questions: details });
        asking.result.length = Math.max(answer.steps, ...asking.result.answers.map(({ steps }) => steps));
      }
      playBack();
    } catch (error) {
      if (error.name === "AbortError") return;
      problem.textContent = error.message;
      if (error.type === "key") onKeyNeeded(think);
    }
    byId("think").removeAttribute("aria-busy");
  }

  function readSteps() {
    const steps = Number(number.value);
    if (!Number.isInteger(steps) || steps < 1 || steps > limits.steps) {
      throw new Error(`T must be a whole number from 1 to ${limits.steps}.`);
    }
    return steps;
  }

  function showResult() {
    const { result } = tab;
    if (!result) {
      delete verdict.dataset.label;
      delete verdict.dataset.right;
      verdict.textContent = "";
      sentence.textContent = "";
      byId("curve-title").textContent = "Probability of yes, step by step";
      byId("readout").textContent = "";
      play.hidden = true;
      curve.show(null);
      return;
    }
    const { answer, truth } = result;
    const label = answer.label ? "yes" : "no";
    const isRight = answer.label === truth;
    Object.assign(verdict.dataset, { label, right: String(isRight) });
    verdict.textContent = `${label} — ${isRight ? "right" : "wrong"}`;
    const halted = tab.halt && answer.steps < result.budget ? ", where it halted by itself" : "";
    sentence.textContent =
      `The model says ${label} (${decimal(answer.probability)}) after ${count(answer.steps, "step")}${halted}, ` +
      `and that is ${isRight ? "right" : "wrong"}: ${result.why(answer.steps)}`;
    const settled = settledAt(answer.trace);
    byId("curve-title").textContent =
      `Probability of yes: ${settled === 1 ? "on one side from the start" : `settles at step ${settled}`}`;
    play.hidden = prefersStillness() || result.length === 1;
    goTo(result.step);
  }

  function goTo(step) {
    const { result } = tab;
    result.step = step;
    const { trace } = result.answer;
    curve.show({ trace, length: result.length, step });
    byId("readout").textContent = `step ${step} of ${result.length}: ${decimal(valueAt(trace, step))}`;
    tab.paint(result, step);
  }

  /** Where motion is unwelcome, or the last step is what matters, show that one. */
  function playBack() {
    if (tab.plays && !prefersStillness()) start();
    else goTo(tab.result.length);
    play.hidden = prefersStillness() || tab.result.length === 1;
  }

  function start() {
    const { length } = tab.result;
    const pause = Math.min(Math.max(PLAY_MS / length, FASTEST_MS), SLOWEST_MS);
    const stride = Math.ceil((length * FASTEST_MS) / PLAY_MS); // very long thoughts are played in leaps
    play.textContent = "Pause";
    goTo(1);
    timer = setInterval(() => {
      if (tab.result.step < length) goTo(Math.min(tab.result.step + stride, length));
      else stop();
    }, pause);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  play.addEventListener("click", () => (timer ? stop() : start()));
  byId("think-form").addEventListener("submit", (event) => {
    event.preventDefault();
    think();
  });
  for (const input of [number, slider]) {
    input.addEventListener("input", () => {
      const other = input === number ? slider : number;
      other.value = input.value;
      tab.steps = Number(input.value) || tab.steps;
    });
  }
  halt.addEventListener("change", () => {
    tab.halt = halt.checked;
    showSettings();
  });

  return {
    open,
    changed,
    /** Tell what the server has: its limits, and which model to ask about a task. */
    serve(newLimits, newModelOf) {
      limits = newLimits;
      modelOf = newModelOf;
      number.max = limits.steps;
      if (tab) showSettings();
    },
  };
}
