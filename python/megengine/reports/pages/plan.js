// The pictures are complete without the script. It writes what the mouse is over into a box that stays in sight, and
// opens the page on a buffer that its address names: plan.html#b12.
let marked = null;
function tell(shape) {
  if (marked) marked.classList.remove("marked");
  marked = shape;
  shape.classList.add("marked");
  details.textContent = shape.querySelector("title").textContent;
}
function tellStep(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const step = Math.floor((event.clientX - box.left) / box.width * data.steps.length);
  if (data.steps[step] === undefined) return;
  details.textContent = `step ${step} of ${data.steps.length}: ${data.live[step]} alive in the arena\n${data.steps[step]}`;
}
const buffers = document.querySelectorAll("rect.buffer, rect.time, circle.plan");
for (const shape of buffers) shape.addEventListener("mouseenter", () => tell(shape));
document.getElementById("live").addEventListener("mousemove", tellStep);
const search = document.getElementById("search");
const searched = document.querySelectorAll("rect.buffer, details tr:not(:first-child)");
search.addEventListener("input", () => {
  const words = search.value.trim().toLowerCase();
  for (const each of searched) each.classList.toggle("missed", !each.textContent.toLowerCase().includes(words));
  const found = document.querySelectorAll("rect.buffer:not(.missed)").length;
  document.getElementById("found").textContent = words && `${found} of ${document.body.dataset.buffers} buffers`;
});
const named = location.hash && document.getElementById(location.hash.slice(1));
if (named && named.classList.contains("buffer")) tell(named);
document.body.dataset.buffers = document.querySelectorAll("rect.buffer").length;
document.body.dataset.steps = data.steps.length;
