// Family sentences and what follows from them. A relation is an offset of generations; hops add up.

const FURTHEST = 12; // generations that the relation words reach
const SENTENCE = /^\s*(\S.*?) is the (\S+) of (\S.*?)\s*[.?]?\s*$/;

const OFFSETS = new Map([["sibling", 0]]);
for (const [word, sign] of [["parent", 1], ["child", -1]]) {
  OFFSETS.set(word, sign);
  for (let far = 2; far <= FURTHEST; far += 1) OFFSETS.set(`${"great-".repeat(far - 2)}grand${word}`, sign * far);
}

/** Subject, offset and object of a sentence; `where` names it in the error. */
export function readSentence(sentence, where) {
  const match = SENTENCE.exec(sentence);
  if (!match) throw new Error(`${where}: expected “NAME is the RELATION of NAME”, got “${sentence.trim()}”.`);
  const [, subject, relation, object] = match;
  if (!OFFSETS.has(relation)) {
    throw new Error(`${where}: unknown relation “${relation}” (parent, child, sibling, grandparent, …).`);
  }
  return { subject, offset: OFFSETS.get(relation), object };
}

/** How many hops the chain between two people has and what it adds up to; null if there is none. */
export function findChain(facts, from, to) {
  const hops = new Map();
  const add = (start, end, offset) => hops.set(start, [...(hops.get(start) ?? []), { end, offset }]);
  for (const { subject, offset, object } of facts) {
    add(subject, object, offset);
    add(object, subject, -offset);
  }
  const found = new Map([[from, { offset: 0, length: 0 }]]);
  for (const [person, way] of found) {
    for (const { end, offset } of hops.get(person) ?? []) {
      if (!found.has(end)) found.set(end, { offset: way.offset + offset, length: way.length + 1 });
    }
  }
  return found.get(to) ?? null;
}

/** Whether a query can be asked of these facts: it needs both of its people in them. */
export function canBeAsked(facts, query) {
  const people = new Set(facts.flatMap(({ subject, object }) => [subject, object]));
  return people.has(query.subject) && people.has(query.object);
}
