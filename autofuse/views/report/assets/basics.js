"use strict";
// What the page is drawn with: numbers and elements, scales and axes. `plots.js` and `page.js` follow in the same script.

const SVG = "http://www.w3.org/2000/svg";
const COLORS = ["--blue", "--orange", "--green", "--red", "--grey"];
const color = (index) => `var(${COLORS[index % COLORS.length]})`;

// Numbers as people read them ---------------------------------------------------------------------

const none = (value) => value === null || value === undefined;
function micros(us) {
  if (none(us)) return "–";
  if (us < 1e3) return `${us.toFixed(1)} µs`;
  return us < 1e6 ? `${(us / 1e3).toFixed(3)} ms` : `${(us / 1e6).toFixed(3)} s`;
}
function span(seconds) {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
const percent = (part, digits = 0) => (none(part) ? "–" : `${(100 * part).toFixed(digits)} %`);
const lost = (part) => (none(part) ? "–" : `${+(100 * part).toPrecision(3)} %`);
const times = (value) => (none(value) ? "–" : `${value.toFixed(2)}×`);
const range = (lo, hi, digits = 2) => (none(lo) || none(hi) ? "" : `${lo.toFixed(digits)}–${hi.toFixed(digits)}`);
const count = (value) => (none(value) ? "–" : Math.round(value).toLocaleString("en"));
const mega = (value) => (none(value) ? "–" : Number((value / 1e6).toPrecision(3)).toLocaleString("en"));
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// Elements ----------------------------------------------------------------------------------------

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}
function draw(parent, name, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}
const tip = document.getElementById("tip");
function tell(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = event.target.getBoundingClientRect();
  const x = event.clientX ?? box.left + box.width / 2;
  const y = event.clientY ?? box.top;
  const left = Math.min(x + 12, document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(4, left) + scrollX}px`;
  tip.style.top = `${y + 14 + scrollY}px`;
}
function explain(element, text) {
  element.classList.add("hit");
  for (const kind of ["pointermove", "pointerdown"]) element.addEventListener(kind, (event) => tell(event, text));
  element.addEventListener("pointerleave", () => { tip.hidden = true; });
  draw(element, "title", {}, text);
}

// Scales and axes ---------------------------------------------------------------------------------

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}
const SPANS = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
function timeTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const step = SPANS.find((size) => size >= rough);
  if (rough < 5 || none(step)) return ticks(low, high, wanted);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}
// Labels of an axis share one unit, so that none of them needs a zero too many.
function axisMicros(values) {
  const most = Math.max(...values.map(Math.abs));
  const [size, unit] = most < 1e3 ? [1, "µs"] : most < 1e6 ? [1e3, "ms"] : [1e6, "s"];
  return (us) => (us ? `${+(us / size).toFixed(3)} ${unit}` : "0");
}
function axisSpan(values) {
  const most = Math.max(...values);
  const [size, unit] = most < 120 ? [1, "s"] : most < 7200 ? [60, "min"] : [3600, "h"];
  return (seconds) => (seconds ? `${+(seconds / size).toFixed(2)} ${unit}` : "0");
}
function scale(low, high, from, to) {
  const width = high - low || 1;
  return (value) => from + ((value - low) / width) * (to - from);
}
const extent = (values, zero = false) => {
  const known = values.filter((value) => !none(value));
  const low = Math.min(...known), high = Math.max(...known);
  const room = (high - low) * 0.06 || Math.abs(high) * 0.06 || 1;
  return [zero ? 0 : low - room, high + room];
};
function frame(svg, box, x, y, xTicks, yTicks, xText, yText, xName) {
  for (const value of yTicks) {
    draw(svg, "line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value), stroke: "var(--line)" });
    draw(svg, "text", { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, yText(value));
  }
  for (const value of xTicks) {
    draw(svg, "text", { x: x(value), y: box.bottom + 17, "text-anchor": "middle" }, xText(value));
  }
  draw(svg, "line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: "var(--grey)" });
  if (xName) draw(svg, "text", { x: box.right, y: box.bottom + 34, "text-anchor": "end" }, xName);
}
function surface(width, height, margins) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const box = { left: margins[3], right: width - margins[1], top: margins[0], bottom: height - margins[2] };
  return [svg, box];
}
