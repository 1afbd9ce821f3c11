// Puts the page together: which tab is open, which models there are, and the key if one is needed.

import { keepKey, listModels } from "./api.js";
import { byId, element } from "./dom.js";
import { createFamilyTab } from "./family-tab.js";
import { showFrontiers } from "./frontier.js";
import { createGraphTab } from "./graph-tab.js";
import { createLogicTab } from "./logic-tab.js";
import { createThinking } from "./thinking.js";

let models = [];
let afterKey = start; // what to do again once there is a key
const thinking = createThinking({ onKeyNeeded: askForKey });
const taskTabs = [createGraphTab, createLogicTab, createFamilyTab].map((create) => create(thinking));
const buttons = [...document.querySelectorAll("[role=tab]")];
const nameOf = (button) => button.id.replace("tab-", "");

function open(name) {
  for (const button of buttons) {
    const isOpen = nameOf(button) === name;
    button.setAttribute("aria-selected", isOpen);
    button.tabIndex = isOpen ? 0 : -1;
    byId(button.getAttribute("aria-controls")).hidden = !isOpen;
  }
  const tab = taskTabs.find(({ task }) => task === name);
  if (tab) thinking.open(tab);
  if (name === "frontier") loadFrontier();
  offerModels(name);
  history.replaceState(null, "", `#${name}`);
}

async function loadFrontier() {
  byId("frontier-problem").textContent = "";
  try {
    await showFrontiers(models);
  } catch (error) {
    byId("frontier-problem").textContent = error.message;
    if (error.type === "key") askForKey(loadFrontier);
  }
}

/** The models of a task, and after them those that know all tasks. */
function modelsFor(task) {
  return [task, "all"].flatMap((known) => models.filter((model) => model.task === known));
}

/** A task without a model says so; one with several lets a person choose. */
function offerModels(task) {
  const fitting = modelsFor(task);
  byId("model-choice").hidden = fitting.length < 2;
  const tab = taskTabs.find((one) => one.task === task);
  byId("model").replaceChildren(...fitting.map(({ name }) => element("option", { value: name }, name)));
  if (tab) byId("model").value = modelOf(task)?.name ?? "";
}

function modelOf(task) {
  const fitting = modelsFor(task);
  const { model } = taskTabs.find((tab) => tab.task === task);
  return fitting.find(({ name }) => name === model) ?? fitting[0] ?? null;
}

function askForKey(again) {
  afterKey = again;
  byId("key-form").hidden = false;
  byId("key").focus();
}

async function start() {
  byId("start-problem").textContent = "";
  try {
    const served = await listModels();
    models = served.models;
    thinking.serve(served.limits, modelOf);
  } catch (error) {
    byId("start-problem").textContent = error.message;
    if (error.type === "key") askForKey(start);
    return;
  }
  for (const { task, panel } of taskTabs) panel.classList.toggle("without-model", !modelOf(task));
  document.body.classList.remove("starting");
  open(nameOf(buttons.find((button) => button.getAttribute("aria-selected") === "true")));
}

byId("tabs").addEventListener("click", (event) => {
  const button = event.target.closest("[role=tab]");
  if (button) open(nameOf(button));
});
byId("tabs").addEventListener("keydown", (event) => {
  const place = buttons.indexOf(event.target);
  const last = buttons.length - 1;
  const next = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: last }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const button = buttons.at(next > last ? 0 : next);
  open(nameOf(button));
  button.focus();
});
byId("model").addEventListener("change", () => {
  const task = nameOf(buttons.find((button) => button.getAttribute("aria-selected") === "true"));
  const tab = taskTabs.find((one) => one.task === task);
  tab.model = byId("model").value;
  thinking.changed(tab);
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value.trim());
  byId("key-form").hidden = true;
  afterKey();
});

const asked = buttons.find((button) => nameOf(button) === location.hash.slice(1));
open(nameOf(asked ?? buttons[0]));
start();
