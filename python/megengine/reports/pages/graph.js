// Folding needs no script. This shows the row that is pointed at, or was clicked, in the box, with its neighbours marked,
// and opens the page at the row that its address names: graph.html#n12.
let pinned = null;
const row = (id) => document.getElementById(id);
const facts = (id) => data[id[0]][+id.slice(1)];
function unmark() {
  for (const line of document.querySelectorAll(".marked, .read, .user")) line.classList.remove("marked", "read", "user");
}
function links(title, numbers, id, mark) {
  if (!numbers.length) return;
  details.append(`\n${title}  `);
  for (const number of numbers) {
    const other = id[0] + number, link = document.createElement("a");
    link.textContent = facts(other).name;
    link.onclick = () => pin(other);
    details.append(link, "  ");
    row(other).classList.add(mark);
  }
}
function tell(id) {
  unmark();
  row(id).classList.add("marked");
  const found = facts(id);
  details.textContent = [found.text, found.was && `before: ${found.was}`, found.source].filter(Boolean).join("\n");
  links("reads  ", found.reads, id, "read");
  links("used by", found.users, id, "user");
}
function pin(id) {
  pinned = id;
  for (let at = row(id).closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  tell(id);
  row(id).scrollIntoView({block: "nearest"});
}
const lineOf = (event) => event.target.closest?.(".line[id]");
document.addEventListener("mouseover", (event) => { const line = lineOf(event); if (line && !pinned) tell(line.id); });
document.addEventListener("click", (event) => {
  const line = lineOf(event);
  if (line && line.id !== pinned) { pinned = line.id; tell(pinned); } else if (line) { pinned = null; unmark(); }
});
for (const [id, open] of [["fold", false], ["unfold", true]])
  document.getElementById(id).onclick = () => { for (const part of document.querySelectorAll("details")) part.open = open; };
// Rows without the words are hidden; modules stay where a row inside has them, and are unfolded.
const search = document.getElementById("search");
search.addEventListener("input", () => {
  const words = search.value.trim().toLowerCase();
  let count = 0;
  for (const line of document.querySelectorAll(".line[id]")) {
    const found = facts(line.id), hit = [found.name, found.text, found.source].join("\n").toLowerCase().includes(words);
    line.classList.toggle("missed", !hit);
    count += hit;
    if (hit && words) for (let at = line.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  }
  document.getElementById("found").textContent = words && `${count} found`;
});
const named = location.hash.slice(1);
if (/^[nab]\d+$/.test(named) && row(named)) pin(named);
