// Search, and filters that combine. Without it the filters are links that the style sheet answers, one at a time.
const problems = [...document.querySelectorAll(".problem")], chosen = new Set(), box = document.getElementById("search");
const states = ["correct", "wrong", "unparseable", "timed-out", "judge-failed", "ungraded"];
const links = [...document.querySelectorAll('.filters a[href^="#only-"]')];
document.querySelector(".search").hidden = false;
function keeps(answer) {
  const has = (kind) => answer.classList.contains("k-" + kind), kinds = [...chosen];
  const verdicts = kinds.filter((kind) => states.includes(kind));
  return (!verdicts.length || verdicts.some(has)) && kinds.filter((kind) => !states.includes(kind)).every(has);
}
function show() {
  const words = box.value.trim().toLowerCase();
  let found = 0;
  for (const problem of problems) {
    const says = !words || problem.textContent.toLowerCase().includes(words);
    let any = false;
    for (const answer of problem.querySelectorAll(".a")) {
      answer.hidden = !keeps(answer);
      any ||= !answer.hidden;
    }
    problem.hidden = !(says && any);
    problem.previousElementSibling.hidden = problem.hidden;
    found += !problem.hidden;
  }
  for (const link of links) link.setAttribute("aria-pressed", chosen.has(link.hash.slice(6)));
  document.getElementById("found").textContent = words || chosen.size ? `${found} of ${problems.length} problems.` : "";
}
for (const link of links) {
  link.setAttribute("role", "button");
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const kind = link.hash.slice(6);
    chosen.has(kind) ? chosen.delete(kind) : chosen.add(kind);
    show();
  });
}
document.querySelectorAll('a[href="#"]').forEach((link) => link.addEventListener("click", () => { chosen.clear(); box.value = ""; show(); }));
box.addEventListener("input", show);
addEventListener("keydown", (event) => {
  if (event.target === box || event.ctrlKey || event.metaKey || event.altKey) return;
  const tops = problems.filter((problem) => !problem.hidden), at = (problem) => problem.getBoundingClientRect().top;
  const goal = event.key === "n" ? tops.find((p) => at(p) > 5) : event.key === "p" ? tops.findLast((p) => at(p) < -5) : null;
  goal?.scrollIntoView();
});
if (location.hash.startsWith("#only-")) {
  chosen.add(location.hash.slice(6));
  location.replace("#first");
}
show();
