"use strict";
const book = JSON.parse(document.getElementById("data").textContent);
let data = book.pages[0]; // of the run that is shown
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

// Plots: each takes a width and a set of hidden series, and returns an SVG -------------------------

function curves(lists, names, stepped) {
  return (width, hidden) => {
    const shown = lists.map((list, index) => (hidden.has(names[index]) ? [] : list));
    const all = shown.flat();
    const [svg, box] = surface(width, 300, [12, 12, 42, 66]);
    if (!all.length) return svg;
    const [x0, x1] = [0, Math.max(...all.map((point) => point.x)) || 1];
    const [y0, y1] = extent(all.map((point) => point.y));
    const x = scale(x0, x1, box.left, box.right), y = scale(y0, y1, box.bottom, box.top);
    const xs = timeTicks(x0, x1, width / 110), ys = ticks(y0, y1, 5);
    frame(svg, box, x, y, xs, ys, axisSpan(xs), axisMicros(ys), "since the start");
    shown.forEach((list, index) => {
      if (!list.length) return;
      let path = `M${x(list[0].x)},${y(list[0].y)}`;
      for (const point of list.slice(1)) path += stepped ? `H${x(point.x)}V${y(point.y)}` : `L${x(point.x)},${y(point.y)}`;
      if (stepped) path += `H${x(x1)}`;
      draw(svg, "path", { d: path, fill: "none", stroke: color(index), "stroke-width": 2 });
      for (const point of list) {
        const dot = draw(svg, "circle", { cx: x(point.x), cy: y(point.y), r: list.length > 80 ? 2.5 : 4, fill: color(index) });
        explain(dot, `${names[index]}\n${micros(point.y)} after ${span(point.x)}`);
      }
    });
    return svg;
  };
}
function speedups(rows) {
  return (width) => {
    const narrow = width < 560;
    const step = narrow ? 38 : 24;
    const [svg, box] = surface(width, rows.length * step + 62, [22, 16, 40, narrow ? 12 : 260]);
    const ends = rows.flatMap((row) => [row.value, row.lo ?? row.value, row.hi ?? row.value, 1]);
    const [x0, x1] = extent(ends);
    const x = scale(x0, x1, box.left, box.right);
    for (const value of ticks(x0, x1, width / 90)) {
      draw(svg, "line", { x1: x(value), x2: x(value), y1: box.top - 6, y2: box.bottom, stroke: "var(--line)" });
      for (const y of [box.top - 12, box.bottom + 17]) draw(svg, "text", { x: x(value), y, "text-anchor": "middle" }, `${+value.toFixed(2)}×`);
    }
    draw(svg, "line", { x1: x(1), x2: x(1), y1: box.top - 6, y2: box.bottom, stroke: "var(--grey)", "stroke-dasharray": "4 3" });
    rows.forEach((row, index) => {
      const y = box.top + index * step + (narrow ? 24 : 10);
      const paint = row.verdict === "faster" ? color(2) : row.verdict === "slower" ? color(3) : color(4);
      const line = draw(svg, "g");
      const name = cut(row.label, narrow ? Math.floor(width / 7.5) : 33);
      draw(line, "rect", { x: 0, y: y - (narrow ? 24 : 12), width, height: step, fill: "transparent" });
      draw(line, "text", { class: "name", x: narrow ? box.left : box.left - 10, y: narrow ? y - 10 : y + 4, "text-anchor": narrow ? "start" : "end" }, name);
      if (!none(row.lo)) draw(line, "line", { x1: x(row.lo), x2: x(row.hi), y1: y, y2: y, stroke: paint, "stroke-width": 3 });
      draw(line, "circle", { cx: x(row.value), cy: y, r: 5, fill: row.trusted ? paint : "var(--paper)", stroke: paint, "stroke-width": 2 });
      explain(line, `${row.label}\n${times(row.value)} (${range(row.lo, row.hi)}): ${row.verdict}\n${micros(row.first_us)} → ${micros(row.us)}, ${percent(row.share, 1)} of the time`);
    });
    return svg;
  };
}
const PART_HUES = [215, 28, 155, 345, 262, 48, 188, 310, 95];
const partColor = (part, index) => (part.rest ? "var(--grey)" : `hsl(${PART_HUES[index % PART_HUES.length]} 52% ${index < PART_HUES.length ? 54 : 72}%)`);
function shareLegend(parts) {
  return make("ul", { class: "parts" }, ...parts.map((part, index) => {
    const swatch = make("i");
    swatch.style.background = partColor(part, index);
    const uses = part.uses > 1 && !part.rest ? ` ×\u00a0${part.uses}` : "";
    return make("li", {}, swatch, make("span", {}, `${part.label.replaceAll("+", "+\u200b")}${uses}`), make("b", {}, `${micros(part.before)} → ${micros(part.after)}`));
  }));
}
function shares(parts) {
  return (width) => {
    const [svg, box] = surface(width, 190, [26, 12, 34, 12]);
    const total = (key) => parts.reduce((sum, part) => sum + part[key], 0);
    const most = Math.max(total("before"), total("after")) || 1;
    const x = scale(0, most, box.left, box.right);
    [["before", "with the first schedule of each group"], ["after", "with the chosen schedules"]].forEach(([key, name], row) => {
      const top = box.top + row * 76;
      draw(svg, "text", { class: "name", x: box.left, y: top - 6 }, `${name}: ${micros(total(key))}`);
      let at = 0;
      parts.forEach((part, index) => {
        const bar = draw(svg, "rect", {
          x: x(at) + 0.5, y: top, width: Math.max(0.5, x(at + part[key]) - x(at) - 1), height: 40,
          fill: partColor(part, index),
        });
        at += part[key];
        explain(bar, `${part.label}${part.uses > 1 ? ` (${part.uses} kernels)` : ""}\n${micros(part[key])}, ${percent(part[key] / total(key), 1)}`);
      });
    });
    draw(svg, "line", { x1: box.left, x2: box.right, y1: box.bottom + 2, y2: box.bottom + 2, stroke: "var(--grey)" });
    const xs = ticks(0, most, width / 120);
    for (const value of xs) draw(svg, "text", { x: x(value), y: box.bottom + 20, "text-anchor": value ? "middle" : "start" }, axisMicros(xs)(value));
    return svg;
  };
}
const saving = (us) => `${us > 0 ? "−" : "+"}${micros(Math.abs(us))}`;
function waterfall(rows) {
  return (width) => {
    const narrow = width < 720;
    const step = narrow ? 44 : 30;
    const [svg, box] = surface(width, rows.length * step + 34, [6, 92, 28, narrow ? 4 : 330]);
    const most = Math.max(...rows.map((row) => row.left_us), ...rows.map((row) => row.left_us + (row.us ?? 0)));
    const least = Math.min(0, ...rows.map((row) => row.left_us));
    const x = scale(least, most, box.left, box.right);
    const xs = ticks(least, most, (box.right - box.left) / 90);
    for (const value of xs) {
      draw(svg, "line", { x1: x(value), x2: x(value), y1: box.top, y2: box.bottom, stroke: "var(--line)" });
      draw(svg, "text", { x: x(value), y: box.bottom + 20, "text-anchor": value > least ? "middle" : "start" }, axisMicros(xs)(value));
    }
    rows.forEach((row, index) => {
      const top = box.top + index * step + (narrow ? 20 : 4);
      const end = none(row.us), before = end ? 0 : row.left_us + row.us;
      const low = Math.min(before, row.left_us), high = Math.max(before, row.left_us);
      const paint = end ? color(0) : row.step === "remainder" ? color(4) : row.us < 0 ? color(3) : color(2);
      const places = row.times > 1 ? ` (${row.times}×)` : "";
      const name = row.step === row.what ? row.step : `${row.step}: ${row.what}`;
      const line = draw(svg, "g");
      draw(line, "rect", { x: 0, y: top - (narrow ? 20 : 4), width, height: step, fill: "transparent" });
      draw(line, "text", { class: "name", x: narrow ? box.left : box.left - 10, y: narrow ? top - 6 : top + 15, "text-anchor": narrow ? "start" : "end" }, cut(name, Math.floor((narrow ? width : box.left) / 7.2) - places.length) + places);
      draw(line, "rect", { x: x(low), y: top, width: Math.max(2, x(high) - x(low)), height: 20, fill: paint });
      if (index + 1 < rows.length) draw(line, "line", { x1: x(row.left_us), x2: x(row.left_us), y1: top, y2: top + step + 10, stroke: "var(--grey)", "stroke-dasharray": "2 3" });
      draw(line, "text", { class: "name", x: Math.max(x(high), x(low) + 2) + 6, y: top + 15 }, end ? micros(row.left_us) : saving(row.us));
      explain(line, `${name}${places}\n${end ? micros(row.left_us) : `${saving(row.us)}, ${percent(Math.abs(row.share), 1)} of the start; ${micros(row.left_us)} left`}`);
    });
    return svg;
  };
}
const WIDEST = 100;
function noise(bins) {
  const names = ["median width of the intervals", "worst tenth of them", "clock, of the best seen"];
  return (width, hidden) => {
    const [svg, box] = surface(width, 296, [28, 48, 42, 48]);
    const x0 = bins[0].x, x1 = Math.max(bins[bins.length - 1].x, x0 + 1e-6);
    const x = scale(x0, x1, box.left, box.right);
    const shown = bins.flatMap((bin) => [hidden.has(names[0]) ? 0 : bin.width, hidden.has(names[1]) ? 0 : bin.worst]);
    const most = Math.max(...shown.filter((value) => !none(value)), 0.1);
    const top = Math.min(most, WIDEST) * 1.08;  // one pause of the machine would flatten all the rest
    const y = scale(0, top, box.bottom, box.top), clock = scale(0, 100, box.bottom, box.top);
    const xs = timeTicks(x0, x1, width / 110);
    frame(svg, box, x, y, xs, ticks(0, top, 5), axisSpan(xs), (value) => `${+value.toFixed(2)} %`, "since the start");
    draw(svg, "text", { x: 0, y: box.top - 12 }, most > WIDEST ? `width (cut at ${WIDEST} %)` : "width");
    if (!hidden.has(names[2])) {
      draw(svg, "text", { x: width, y: box.top - 12, "text-anchor": "end" }, "clock");
      for (const value of [0, 50, 100]) draw(svg, "text", { x: box.right + 6, y: clock(value) + 4 }, `${value} %`);
    }
    [["width", y, 0], ["worst", y, 1], ["clock", clock, 2]].forEach(([key, place, index]) => {
      const known = bins.filter((bin) => !none(bin[key]));
      if (hidden.has(names[index]) || !known.length) return;
      const path = known.map((bin, at) => `${at ? "L" : "M"}${x(bin.x)},${place(Math.min(bin[key], index < 2 ? top : 100))}`).join("");
      draw(svg, "path", { d: path, fill: "none", stroke: color(index), "stroke-width": 1.5 });
    });
    bins.forEach((bin, index) => {
      const left = index ? (x(bins[index - 1].x) + x(bin.x)) / 2 : box.left;
      const right = index + 1 < bins.length ? (x(bins[index + 1].x) + x(bin.x)) / 2 : box.right;
      const strip = draw(svg, "rect", { x: left, y: box.top, width: Math.max(right - left, 1), height: box.bottom - box.top, fill: "transparent" });
      explain(strip, `${span(bin.x)}: ${count(bin.n)} measurements\nintervals ${bin.width?.toFixed(2)} % wide (worst tenth ${bin.worst?.toFixed(2)} %)\nclock ${none(bin.clock) ? "unknown" : `${bin.clock.toFixed(0)} %`}, ${percent(bin.trusted)} trusted`);
    });
    return svg;
  };
}
function bars(rows) {
  return (width) => {
    const [svg, box] = surface(width, rows.length * 34 + 10, [6, 60, 4, 130]);
    const x = scale(0, Math.max(...rows.map((row) => row.value)), box.left, box.right);
    rows.forEach((row, index) => {
      const top = box.top + index * 34;
      draw(svg, "text", { class: "name", x: box.left - 8, y: top + 18, "text-anchor": "end" }, row.label.replaceAll("_", " "));
      const bar = draw(svg, "rect", { x: box.left, y: top + 2, width: Math.max(2, x(row.value) - box.left), height: 24, fill: color(3) });
      draw(svg, "text", { x: Math.max(x(row.value), box.left + 2) + 6, y: top + 18 }, count(row.value));
      explain(bar, `${row.label}: ${count(row.value)}`);
    });
    return svg;
  };
}
function scatter(rows) {
  return (width) => {
    const side = Math.min(width, 520);
    const [svg, box] = surface(side, Math.min(side, 380), [12, 16, 46, 70]);
    const [low, high] = extent(rows.flatMap((row) => [row.x, row.y, row.lo, row.hi]));
    const x = scale(low, high, box.left, box.right), y = scale(low, high, box.bottom, box.top);
    const xs = ticks(low, high, side / 90), ys = ticks(low, high, 5);
    frame(svg, box, x, y, xs, ys, axisMicros(xs), axisMicros(ys), "composed");
    draw(svg, "line", { x1: x(low), y1: y(low), x2: x(high), y2: y(high), stroke: "var(--grey)", "stroke-dasharray": "4 3" });
    rows.forEach((row) => {
      const mark = draw(svg, "g");
      draw(mark, "line", { x1: x(row.x), x2: x(row.x), y1: y(row.lo), y2: y(row.hi), stroke: color(0), "stroke-width": 2 });
      draw(mark, "circle", { cx: x(row.x), cy: y(row.y), r: 6, fill: color(0) });
      const right = x(row.x) < box.right - 90;
      draw(mark, "text", { class: "name", x: x(row.x) + (right ? 10 : -10), y: y(row.y) + 4, "text-anchor": right ? "start" : "end" }, row.label);
      explain(mark, `${row.label}\npredicted ${micros(row.x)}, measured ${micros(row.y)} (${((row.y / row.x - 1) * 100).toFixed(1)} % more)`);
    });
    svg.style.maxWidth = `${side}px`;
    return svg;
  };
}
function heat(table) {
  return (width) => {
    const size = table.names.length, left = Math.min(200, width * 0.36), cell = Math.max(40, Math.min(120, (width - left - 8) / size));
    const [svg] = surface(Math.max(width, left + size * cell), 40 + size * 44, [0, 0, 0, 0]);
    table.names.forEach((name, at) => {
      draw(svg, "text", { class: "name", x: left + (at + 0.5) * cell, y: 26, "text-anchor": "middle" }, cut(name, Math.floor(cell / 7)));
      draw(svg, "text", { class: "name", x: left - 8, y: 40 + at * 44 + 25, "text-anchor": "end" }, cut(name, Math.floor(left / 7.5)));
    });
    table.cells.forEach((line, row) => line.forEach((one, column) => {
      const good = none(one.value) ? 0 : Math.max(0, Math.min(1, (one.value - 0.5) * 2));
      const box = draw(svg, "g");
      draw(box, "rect", { x: left + column * cell + 1, y: 41 + row * 44, width: cell - 2, height: 42, fill: none(one.value) ? "var(--card)" : `hsl(${20 + 130 * good} 45% 45%)` });
      const text = draw(box, "text", { x: left + (column + 0.5) * cell, y: 40 + row * 44 + 27, "text-anchor": "middle" }, none(one.value) ? "–" : one.value.toFixed(2));
      if (!none(one.value)) text.style.fill = "#fff";
      explain(box, `tuned on ${table.names[row]}\nrun on ${table.names[column]}\n${none(one.value) ? "no schedule was measured on both" : `${percent(one.value)} of the speed of tuning there, over ${count(one.count)} workloads`}`);
    }));
    return svg;
  };
}

// Sections ----------------------------------------------------------------------------------------

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const drawings = [];
function section(id, title, text) {
  const place = make("section", { id });
  place.append(make("h2", {}, title), ...(text ? [make("p", {}, text)] : []));
  main.append(place);
  nav.append(make("a", { href: `#${id}` }, title));
  return place;
}
function plot(id, title, text, painter, empty, names = []) {
  const place = section(id, title, painter ? text : "");
  if (!painter) {
    place.append(make("p", { class: "none" }, empty));
    return;
  }
  const hidden = new Set();
  const figure = make("figure", { class: "plot", "data-plot": id, role: "img", "aria-label": title });
  const paint = () => figure.replaceChildren(painter(Math.max(280, figure.clientWidth), hidden));
  if (names.length > 1) {
    const legend = make("div", { class: "legend" });
    names.forEach((name, index) => {
      const swatch = make("i");
      swatch.style.background = color(index);
      const button = make("button", { type: "button", "aria-pressed": "true", onclick: () => {
        hidden.has(name) ? hidden.delete(name) : hidden.add(name);
        button.setAttribute("aria-pressed", String(!hidden.has(name)));
        paint();
      } }, swatch, name);
      legend.append(button);
    });
    place.append(legend);
  }
  place.append(figure);
  drawings.push(paint);
}
// A table in a pane of its own; where more of it lies to a side, that side says so.
function pane(content) {
  const inner = make("div", { class: "pane", tabindex: "0" }, content);
  const outer = make("div", { class: "scroll" }, inner);
  const look = () => {
    outer.classList.toggle("less", inner.scrollLeft > 2);
    outer.classList.toggle("more", inner.scrollLeft + inner.clientWidth < inner.scrollWidth - 2);
  };
  inner.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(inner);
  return outer;
}
// A column: key, title, how a value is shown (as numbers are, to the right), and "text" where it is shown as text.
function table(place, columns, rows, mark = () => false) {
  const body = make("tbody");
  const heads = [];
  const numeric = columns.map(([, , form, kind]) => form && kind !== "text");
  const long = columns.map(([key], index) => !numeric[index] && rows.some((row) => String(row[key] ?? "").length > 10));
  const fill = () => body.replaceChildren(...rows.map((row) => make("tr", { class: mark(row) ? "chosen" : null }, ...columns.map(([key, , form], index) => {
    const shown = form ? form(row[key], row) : String(row[key] ?? "");
    const cell = make("td", { class: numeric[index] ? "n" : form ? "text" : long[index] ? "long" : null });
    if (typeof shown !== "string") cell.append(shown);
    else cell.append(key === "schedule" ? make("code", {}, shown) : shown.replaceAll(/[+_]/g, "$&\u200b"));
    return cell;
  }))));
  const sort = (index) => {
    const rising = heads[index].getAttribute("aria-sort") === "descending";
    const key = columns[index][0], sign = rising ? 1 : -1;
    rows.sort((a, b) => (none(a[key]) ? 1 : none(b[key]) ? -1 : a[key] < b[key] ? -sign : a[key] > b[key] ? sign : 0));
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[index].setAttribute("aria-sort", rising ? "ascending" : "descending");
    fill();
  };
  columns.forEach(([, title], index) => {
    heads.push(make("th", { scope: "col", class: numeric[index] ? "n" : null }, make("button", { type: "button", onclick: () => sort(index) }, title)));
  });
  fill();
  place.append(pane(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)));
}

// The page ----------------------------------------------------------------------------------------

// Sentences about what has not ended by itself; the command that goes on can be copied.
const GO_ON = "To go on from there: ";
function notice(place, sentences, calm = false) {
  if (!sentences.length) return;
  place.append(make("div", { class: calm ? "notice calm" : "notice", role: "note" }, ...sentences.map((text) => (
    text.startsWith(GO_ON) ? make("p", {}, GO_ON.trim(), make("code", {}, text.slice(GO_ON.length))) : make("p", {}, text)))));
}
function nightScreen() {
  const { name, state, standing, models } = book.night;
  const head = document.getElementById("head");
  const done = models.filter((row) => row.state === "done");
  const sure = done.filter((row) => row.trusted && !none(row.gain));
  const gain = Math.exp(sure.reduce((sum, row) => sum + Math.log(row.gain), 0) / sure.length);
  const worst = { finished: "good", running: "doubt" }[state] ?? "bad";
  const detail = sure.length ? `${times(gain)} as fast as without fusion: geometric mean of the ${sure.length} whose times are trusted` : "no model has a trusted time as a whole";
  head.append(
    make("h1", {}, name),
    make("div", { class: "hero" }, `${done.length} of ${models.length} models done`, " ", make("span", { class: `badge ${worst}` }, state), make("small", {}, detail)),
  );
  notice(head, standing, state === "finished");
  const place = section("models", "Models and devices", "Gain: time without fusion over the time of the chosen plan; above 1, the chosen plan is faster. Left: part of its time that an hour more of search is expected to save. Noise: median width of the measurements' 95 % intervals, and how many of them are trusted. Tried: candidates measured.");
  table(place, [
    ["model", "model", (value, row) => (none(row.run_id) ? value : make("a", { href: `#run-${row.run_id}` }, value)), "text"],
    ["next", "what to do next"],
    ["gain", "gain", (value, row) => (none(value) ? "–" : `${times(value)} (${range(row.gain_lo, row.gain_hi)})`)],
    ["over_onnxruntime", "of ONNX Runtime", times],
    ["median_us", "time", micros],
    ["trusted", "trusted", (value, row) => (none(value) ? "–" : !value ? "no" : row.untrusted_groups ? `yes, but ${row.untrusted_groups} groups` : "yes"), "text"],
    ["left", "left", (value) => (none(value) ? "unknown" : percent(value, 1))],
    ["interval_width", "noise", (value, row) => (none(value) ? "–" : `${value.toFixed(1)} %, ${percent(row.trusted_share)} trusted`)],
    ["state", "state", (value, row) => (row.failure ? `${value}: ${row.failure.split("\n")[0]}` : value), "text"],
    ["device", "device"],
    ["candidates", "tried", count],
  ], models);
}
function firstScreen() {
  const { run, speedup, trust, counts, tables, rivals } = data;
  const head = document.getElementById("head");
  const over = { none: "without fusion", "tvm-partition": "TVM's partition with our kernels", "tvm-untuned": "TVM, untuned", default: "the default plan", onnxruntime: "ONNX Runtime" };
  let hero = "No plan confirmed yet", detail = "the run has not measured a whole model", badge = ["no result", "doubt"];
  const rival = speedup?.onnxruntime;
  const second = none(rival?.value) ? "" : ` · ${times(rival.value)} as fast as ONNX Runtime (${range(rival.lo, rival.hi)}${rival.trusted ? "" : `, ${rival.verdict}`})`;
  if (speedup && !none(speedup.ratio?.value)) {
    const ratio = speedup.ratio;
    hero = `${times(ratio.value)} as fast as ${over[speedup.over] ?? speedup.over}`;
    detail = `95 % interval ${range(ratio.lo, ratio.hi)} · ${micros(ratio.old_us)} → ${micros(ratio.new_us)} a call · plan “${speedup.plan}”${second}`;
    badge = ratio.trusted ? ["trusted", "good"] : [ratio.verdict, "bad"];
  } else if (speedup) {
    hero = `${micros(speedup.us)} a call`;
    detail = `plan “${speedup.plan}”; ${speedup.ratio ? `no ratio: ${speedup.ratio.verdict}` : "nothing was measured beside it"}${second}`;
    badge = trust.whole ? ["trusted", "good"] : ["not trusted", "bad"];
  }
  if (book.night) head.append(make("a", { class: "back", href: "#night" }, `← all models of ${book.night.name}`));
  head.append(
    make("h1", {}, `${run.model} on ${run.device}, ${run.threads} thread${run.threads > 1 ? "s" : ""}`),
    make("div", { class: "hero" }, hero, " ", make("span", { class: `badge ${badge[1]}` }, badge[0]), make("small", {}, detail)),
  );
  notice(head, run.standing);
  const fact = (name) => tables.provenance.find((row) => row.fact === name)?.value;
  const git = fact("git") ?? fact("git_commit");
  const cards = [
    ["Decisions", ...trust.card],
    ["Coverage", trust.groups ? `${trust.measured} of ${trust.groups}` : "no plan", !trust.groups ? "no plan was chosen" : trust.measured === trust.groups ? "groups measured; each kernel has a schedule that was measured" : "groups measured; the others use the fixed rule"],
    ["Failures", `${count(counts.failed)} of ${count(counts.measured)}`, counts.failed ? "measurements failed; none of them is ever chosen" : "measurements failed"],
    ["Search", count(counts.candidates), `candidates · ${count(counts.trials)} plans tried · ${run.length}`],
    ["Provenance", run.state, [`run ${run.id}`, run.started, fact("tvm") && `TVM ${fact("tvm")}`, git && `git ${git.slice(0, 9)}`, fact("governor") && `governor ${fact("governor")}`].filter(Boolean).join(" · ")],
  ];
  head.append(make("div", { class: "cards" }, ...cards.map(([title, value, text]) => make("div", { class: "card" }, make("h3", {}, title), make("b", {}, value), make("span", {}, text)))));
  const place = section("whole", "Whole model", "Each plan measured as a whole, interleaved with the others. Times of one race compare: so the chosen plan's time beside each of them stands next to it. A ratio above 1: the chosen plan is faster.");
  if (!rivals.length) { place.append(make("p", { class: "none" }, run.gap)); return; }
  table(place, [
    ["name", "plan", (value, row) => (row.chosen ? `${value} (chosen)` : value), "text"],
    ["us", "median", (value, row) => (row.state === "ok" ? micros(value) : row.state)],
    ["beside", "chosen beside it", (value, row) => micros(row.ratio?.new_us)],
    ["value", "chosen plan is", (value, row) => (row.chosen ? "itself" : none(row.ratio?.value) ? "–" : `${row.ratio.value.toFixed(3)}×`)],
    ["hi", "its 95 % interval", (value, row) => (row.ratio ? range(row.ratio.lo, row.ratio.hi, 3) : "")],
    ["verdict", "verdict", (value, row) => row.ratio?.verdict ?? "", "text"],
    ["lo", "median's 95 % interval", (value, row) => (none(value) ? row.failure : `${micros(value)} – ${micros(row.hi)}`)],
    ["error", "largest error", (value) => (none(value) ? "–" : value.toExponential(1))],
  ], rivals, (row) => row.chosen);
}
function plots() {
  const { progress, speedups: ratios, shares: parts, noise: bins, failures, predicted, transfer } = data.plots;
  const known = [["chosen plan, best schedules so far", progress.groups], ["best plan of the plan search", progress.plans]].filter(([, list]) => list.length);
  const names = known.map(([name]) => name);
  const nothing = data.counts.measured ? "No plan was chosen, so there is no sum of groups to follow." : { running: "Nothing was measured yet.", finished: "Nothing was measured in this run: everything was known." }[data.run.state] ?? "Nothing was measured before the run ended.";
  plot("progress", "Best so far", "Composed time of a call (the groups, each timed alone) against wall time.", known.length && curves(known.map(([, list]) => list), names, true), nothing, names);
  const { worth } = data;
  const summed = worth.measured ? "The remainder is what whole networks say beyond the sums of their kernels." : "Start and end are sums of kernels: no plan was measured whole beside no fusion.";
  plot("worth", "What it was worth", `From ${worth.start} to the chosen plan, ${times(worth.ratio)} as fast: what each decision takes off the time (green) or adds to it (red). Steps are differences of sums of kernels, each timed alone. ${summed}`, worth.steps.length && waterfall(worth.steps), "The run did not get far enough to say what its decisions were worth.");
  if (worth.not_asked.length) {
    const place = document.getElementById("worth");
    const promise = worth.more ? `${span(worth.more.seconds)} more of search are expected to take off ${micros(worth.more.gain_us)}.` : "";
    place.append(make("p", {}, `What was not reached, by the search's own expectations. ${promise}`));
    table(place, [["kind", "question"], ["gain_us", "expected gain", (value) => (none(value) ? "none was tried" : micros(value))], ["cost_s", "in", (value) => (none(value) ? "–" : span(value))]], worth.not_asked);
  }
  const changed = ratios.filter((row) => row.value !== 1 || row.lo !== 1 || row.hi !== 1), same = ratios.length - changed.length;
  plot("speedups", "Speedup per group", "The chosen schedule of each group against the first one that was measured for it, with its 95 % interval; the longest groups first. Green: faster; red: slower; grey: no difference; a hollow dot: the times are not trusted. The best of many candidates flatters itself a little.", changed.length && speedups(changed), ratios.length ? "Each group keeps the first schedule that was measured for it." : "No group of the choice was measured.");
  if (changed.length && same) document.getElementById("speedups").append(make("p", {}, `${count(same)} more group${same > 1 ? "s keep their" : " keeps its"} first schedule.`));
  plot("shares", "Where the time goes", "The kernels before and after, on one scale, their calls not counted; equal groups are one part (× how often).", parts.length && shares(parts), "No choice was recorded.");
  if (parts.length) document.getElementById("shares").append(shareLegend(parts));
  plot("noise", "Noise over the run", "How wide the intervals of the measurements were, and how fast the clock ran.", bins.length && noise(bins), "No measurement of this run has a time.", bins.length ? ["median width of the intervals", "worst tenth of them", "clock, of the best seen"] : []);
  plot("failures", "Failures", "Measurements that failed, by class. A failure costs time and is never chosen.", failures.length && bars(failures), "Nothing failed.");
  if (data.tables.failures.length) {
    const more = make("details", {}, make("summary", {}, "Messages"));
    document.getElementById("failures").append(more);
    table(more, [["state", "class"], ["label", "group"], ["message", "message"], ["count", "times", count]], data.tables.failures);
  }
  plot("predicted", "Predicted against measured", "The composed time of a plan, by which the search ranks, against its time as a whole. On the dashed line they are equal.", predicted.length && scatter(predicted), "No plan was measured both ways.");
  plot("transfer", "From device to device", "How much of the speed of tuning there the best schedules of another device reach (every device and number of threads in this database).", transfer.names.length && heat(transfer), "The database holds one device with one number of threads.");
}
const FIRST = 20;
function tables() {
  const { groups, edges, provenance } = data.tables;
  let place = section("groups", "Groups", "Each kernel of the chosen plan; equal ones stand together. Over first: the chosen schedule against the first one measured; tried: schedules known.");
  table(place, [["label", "group"], ["uses", "kernels", count], ["share", "share", (v) => percent(v, 1)], ["us", "time each", micros], ["trusted", "trusted", (v) => (none(v) ? "" : v ? "yes" : "no")], ["gain", "over first", times], ["schedules", "tried", count], ["flops", "MFLOP", mega], ["bytes", "MB", mega], ["gflops", "GFLOP/s", (v) => (none(v) ? "–" : v.toFixed(1))], ["peak_share", "of peak", (v) => percent(v)], ["bandwidth_share", "of bandwidth", (v) => percent(v)], ["schedule", "schedule"]], groups);
  place = section("edges", "Edges", "Why operators share a kernel, or do not.");
  if (edges.length) table(place, [["fused", "edge"], ["reason", "reason"], ["meaning", "meaning"], ["edges", "edges", count], ["gain_us", "gain", micros]], edges);
  else place.append(make("p", { class: "none" }, "No decisions were recorded."));
  if (data.tables.fusions.length) {
    place.append(make("p", {}, "Which fusions pay here: each fused edge whose kernel was also measured cut in two, by what fusing saves (below zero: it costs)."));
    const columns = [["producer", "producer"], ["consumer", "consumer"], ["label", "kernel"], ["group_us", "kernel takes", micros], ["gain_us", "fusing saves", micros], ["gain_share", "of the time apart", (v) => percent(v)], ["reason", "reason"]];
    const all = data.tables.fusions;
    table(place, columns, all.slice(0, FIRST));
    if (all.length > FIRST) {
      const rest = make("details", {}, make("summary", {}, `All ${count(all.length)}`));
      table(rest, columns, [...all]);
      place.append(rest);
    }
  }
  place = section("provenance", "Provenance", "What this run depended on.");
  const facts = make("details", {}, make("summary", {}, `All ${provenance.length} facts`));
  place.append(facts);
  table(facts, [["fact", "fact"], ["value", "value"]], provenance);
  place = section("words", "Words", "What the words of this page mean.");
  table(place, [["word", "word"], ["meaning", "meaning"]], data.tables.words);
}
function clear() {
  for (const place of [document.getElementById("head"), nav, main]) place.replaceChildren();
  drawings.length = 0;
}
function show(page) {
  clear();
  data = page;
  if (page) { firstScreen(); plots(); tables(); } else nightScreen();
  nav.hidden = nav.children.length < 2;
  paintAll();
  document.documentElement.dataset.ready = String(drawings.length);
}
const paintAll = () => drawings.forEach((paint) => paint());
// "#run-12" shows a run of a job, "#night" the job; any other fragment is a place on the page.
function route() {
  const page = book.pages.find((one) => location.hash === `#run-${one.run.id}`);
  if (page && book.night) { show(page); scrollTo(0, 0); } else if (location.hash === "#night" && book.night) { show(null); scrollTo(0, 0); }
}
show(book.night ? null : book.pages[0]);
route();
addEventListener("hashchange", route);
let last = innerWidth;
addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; requestAnimationFrame(paintAll); } });
