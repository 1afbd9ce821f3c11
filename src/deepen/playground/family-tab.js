// The family tab: facts, a query, and which facts the answer hangs on.

import { valueAt } from "./curve.js";
import { byId, count, decimal, element, exampleButtons } from "./dom.js";
import { FAMILY_EXAMPLES } from "./examples.js";
import { canBeAsked, findChain, readSentence } from "./family-rules.js";

const CLEAR_CHANGE = 0.1; // of the probability; less is not worth pointing at

export function createFamilyTab(thinking) {
  const [factsField, queryField, list] = ["family-facts", "family-query", "family-effects"].map(byId);
  const tab = { task: "family", panel: byId("panel-family"), steps: 12, halt: false, plays: false, result: null, read, paint };

  const lines = () => factsField.value.split("\n").map((line) => line.trim()).filter(Boolean);

  function read() {
    const sentences = lines();
    const facts = sentences.map((line, place) => readSentence(line, `Fact ${place + 1}`));
    const query = readSentence(queryField.value, "Query");
    for (const name of [query.subject, query.object]) {
      const isKnown = facts.some(({ subject, object }) => subject === name || object === name);
      if (!isKnown) throw new Error(`Query: ${name} is in none of the facts.`);
    }
    if (query.subject === query.object) throw new Error("Query: ask about two different people.");
    const without = (all, place) => all.filter((_, other) => other !== place);
    // The server would refuse the whole request for one question that cannot be asked.
    const removable = sentences.flatMap((_, place) => (canBeAsked(without(facts, place), query) ? [place] : []));
    const chain = findChain(facts, query.subject, query.object);
    const truth = chain?.offset === query.offset;
    return {
      question: { facts: sentences, query: queryField.value },
      details: removable.map((place) => ({ facts: without(sentences, place), query: queryField.value })),
      removable,
      truth,
      why() {
        if (!chain) return `no facts connect ${query.subject} with ${query.object}.`;
        return `a chain of ${count(chain.length, "fact")} ${truth ? "leads to this relation" : "leads to another relation"}.`;
      },
    };
  }

  /** Each fact with what its absence changes at this step. */
  function paint(result, step) {
    if (!result) {
      list.replaceChildren(element("li", { class: "hint" }, "Think asks again with each fact left out."));
      return;
    }
    const whole = valueAt(result.answer.trace, step);
    const rows = result.question.facts.map((fact, place) => {
      const asked = result.removable.indexOf(place);
      if (asked < 0) return row(fact, "cannot be asked without it", 0, "matters");
      if (!result.answers[asked]) return row(fact, "…", 0, "");
      const without = valueAt(result.answers[asked].trace, step);
      const change = without - whole;
      if (whole > 0.5 !== without > 0.5) return row(fact, `flips: ${decimal(whole)} → ${decimal(without)}`, change, "matters");
      const size = decimal(Math.abs(change));
      const signed = Number(size) ? `${change < 0 ? "−" : "+"}${size}` : "no change";
      return row(fact, signed, change, Math.abs(change) >= CLEAR_CHANGE ? "matters" : "");
    });
    list.replaceChildren(...rows);
  }

  function row(fact, effect, change, kind) {
    const bar = element("span", { class: "bar" });
    bar.style.setProperty("--size", Math.abs(change));
    return element("li", { class: kind }, element("span", {}, fact), element("span", { class: "effect" }, effect), bar);
  }

  for (const field of [factsField, queryField]) field.addEventListener("input", () => thinking.changed(tab));

  function load(example) {
    factsField.value = example.facts.join("\n");
    queryField.value = example.query;
    thinking.changed(tab, example.steps);
  }
  exampleButtons(byId("family-examples"), FAMILY_EXAMPLES, load);
  load(FAMILY_EXAMPLES[0]);
  return tab;
}
