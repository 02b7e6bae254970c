"use strict";
// Map: every entry is a dot. Hovering over a dot shows its object and connects the views of the object by lines.
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A500", "#888888", "#882255", "#117733"];
// With more legend items than colours, hues are steps of the golden angle; three intensities distinguish close hues.
const spread = (c) => `hsl(${(c * 137.508) % 360}, ${[85, 60, 80][c % 3]}%, ${[42, 55, 66][c % 3]}%)`;
const palette = (count) => Array.from({ length: count }, (_, c) => count <= COLOURS.length ? COLOURS[c] : spread(c));
const heat = (share) => `hsl(${210 - 190 * share}, 75%, 50%)`;
window.addEventListener("error", (event) => { document.body.dataset.errors = event.message; });

function drawMap(canvas, map) {
  const pen = canvas.getContext("2d");
  const tip = canvas.parentElement.querySelector(".tip");
  const select = document.querySelector(`select[data-map="${canvas.dataset.map}"]`);
  const search = document.querySelector(`input[inputmode][data-map="${canvas.dataset.map}"]`);
  const join = document.querySelector(`input[type=checkbox][data-map="${canvas.dataset.map}"]`);
  const legend = canvas.parentElement.querySelector(".legend");
  const kinds = map.labels === null ? [] : [...new Set(map.labels)].sort();
  if (map.labels === null) { select.options[0].remove(); }
  const tones = { view: palette(map.views.length), label: palette(kinds.length) };
  let chosen = -1, picked = null; // number of an object; number of a legend item

  const place = (l, i) => {
    const p = map.places[l][i];
    return p === null ? null : [20 + p[0] * (canvas.width - 40), 20 + p[1] * (canvas.height - 40)];
  };
  const kind = (l, i) => select.value === "view" ? l : kinds.indexOf(map.labels[i]);
  const colour = (l, i) => select.value === "error" ? heat(map.errors[i]) : tones[select.value][kind(l, i)];
  const dimmed = (l, i) => picked !== null && select.value !== "error" && kind(l, i) !== picked;
  const lines = (i) => {
    const seen = map.places.map((_, l) => place(l, i)).filter((p) => p !== null);
    seen.forEach((a, s) => seen.slice(s + 1).forEach((b) => { pen.beginPath(); pen.moveTo(...a); pen.lineTo(...b); pen.stroke(); }));
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
    pen.strokeStyle = getComputedStyle(canvas).color;
    if (join.checked) {
      pen.globalAlpha = 0.12;
      pen.lineWidth = 1;
      map.rows.forEach((_, i) => lines(i));
    }
    map.places.forEach((view, l) => view.forEach((_, i) => {
      pen.globalAlpha = dimmed(l, i) ? 0.06 : (chosen < 0 ? 0.8 : 0.25);
      dot(l, i, 4);
    }));
    pen.globalAlpha = 1;
    if (chosen < 0) { tip.textContent = "Hover over a point, or enter a row."; return; }
    pen.lineWidth = 1.5;
    lines(chosen);
    map.places.forEach((_, l) => dot(l, chosen, 7));
    const label = map.labels === null ? "" : `, label ${map.labels[chosen]}`;
    const views = map.views.filter((_, l) => map.places[l][chosen] !== null).join(", ");
    tip.textContent = `row ${map.rows[chosen]}${label}, error ${map.errors[chosen]}, views: ${views}`;
  };
  const entry = (tone, text, number) => {
    const item = document.createElement("li");
    // Only this constant is parsed as markup; the name is set as text.
    item.innerHTML = '<svg viewBox="0 0 10 10"><circle cx="5" cy="5" r="5"/></svg><span></span>';
    item.querySelector("circle").setAttribute("fill", tone);
    item.querySelector("span").textContent = text;
    if (number === null) { return item; }
    item.setAttribute("role", "button");
    item.tabIndex = 0;
    const pick = () => { picked = picked === number ? null : number; list(); draw(); };
    item.addEventListener("click", pick);
    item.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } });
    item.setAttribute("aria-pressed", String(picked === number));
    return item;
  };
  const list = () => {
    const names = select.value === "view" ? map.views : kinds;
    const scale = [[0, "0: views coincide"], [0.5, "0.5"], [1, "1: the mean of the unit vectors is zero"]];
    legend.replaceChildren(...(select.value === "error" ? scale.map(([share, text]) => entry(heat(share), text, null))
      : names.map((text, number) => entry(tones[select.value][number], text, number))));
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
  select.addEventListener("change", () => { picked = null; list(); draw(); });
  join.addEventListener("change", draw);
  search.addEventListener("input", () => { chosen = map.rows.indexOf(Number(search.value || "-1")); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  list();
  draw();
}

const maps = JSON.parse(document.getElementById("data").textContent);
document.querySelectorAll("canvas").forEach((canvas, number) => drawMap(canvas, maps[number]));
