"use strict";
// The map: every view of every object is a dot; hovering shows the object, its views joined by lines.
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A500", "#888888", "#882255", "#117733"];
window.addEventListener("error", (event) => { document.body.dataset.errors = event.message; });

function drawMap(canvas, map) {
  const pen = canvas.getContext("2d");
  const tip = canvas.parentElement.querySelector(".tip");
  const select = document.querySelector(`select[data-map="${canvas.dataset.map}"]`);
  const search = document.querySelector(`input[data-map="${canvas.dataset.map}"]`);
  const kinds = map.labels === null ? [] : [...new Set(map.labels)].sort();
  if (map.labels === null) { select.options[0].remove(); }
  let chosen = -1;

  const place = (l, i) => {
    const p = map.places[l][i];
    return p === null ? null : [20 + p[0] * (canvas.width - 40), 20 + p[1] * (canvas.height - 40)];
  };
  const colour = (l, i) => {
    if (select.value === "view") { return COLOURS[l % COLOURS.length]; }
    if (select.value === "error") { return `hsl(${210 - 190 * map.errors[i]}, 75%, 50%)`; }
    return COLOURS[kinds.indexOf(map.labels[i]) % COLOURS.length];
  };
  const dot = (l, i, size) => {
    const p = place(l, i);
    if (p === null) { return; }
    pen.fillStyle = colour(l, i);
    pen.beginPath();
    pen.arc(p[0], p[1], size, 0, 2 * Math.PI);
    pen.fill();
  };
  const draw = () => {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.globalAlpha = chosen < 0 ? 0.8 : 0.25;
    map.places.forEach((view, l) => view.forEach((_, i) => dot(l, i, 4)));
    pen.globalAlpha = 1;
    if (chosen < 0) { tip.textContent = "Hover a point, or give a row."; return; }
    const seen = map.places.map((_, l) => place(l, chosen)).filter((p) => p !== null);
    pen.strokeStyle = getComputedStyle(canvas).color;
    pen.lineWidth = 1.5;
    seen.forEach((a, s) => seen.slice(s + 1).forEach((b) => { pen.beginPath(); pen.moveTo(...a); pen.lineTo(...b); pen.stroke(); }));
    map.places.forEach((_, l) => dot(l, chosen, 7));
    const label = map.labels === null ? "" : `, label ${map.labels[chosen]}`;
    const views = map.views.filter((_, l) => map.places[l][chosen] !== null).join(", ");
    tip.textContent = `row ${map.rows[chosen]}${label}, error ${map.errors[chosen]}, views: ${views}`;
  };
  const hover = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * canvas.width / box.width;
    const y = (event.clientY - box.top) * canvas.height / box.height;
    let best = 20 * canvas.width / box.width;
    chosen = -1;
    map.places.forEach((view, l) => view.forEach((_, i) => {
      const p = place(l, i);
      const far = p === null ? Infinity : Math.hypot(p[0] - x, p[1] - y);
      if (far < best) { best = far; chosen = i; }
    }));
    draw();
  };
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerdown", hover);
  select.addEventListener("change", draw);
  search.addEventListener("input", () => { chosen = map.rows.indexOf(Number(search.value || "-1")); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

const maps = JSON.parse(document.getElementById("data").textContent);
document.querySelectorAll("canvas").forEach((canvas, number) => drawMap(canvas, maps[number]));
