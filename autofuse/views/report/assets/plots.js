// The plots of the page: each takes a width and a set of hidden series, and returns an SVG.

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
// Time against what is lost: to the left is faster, below is more accurate; a line joins what nothing beats in both.
function accuracy(points, allowed) {
  const paint = { float32: color(4), tried: color(0), written: color(1) };
  return (width) => {
    const [svg, box] = surface(width, 320, [12, 16, 46, 78]);
    const [x0, x1] = extent(points.map((point) => point.us));
    const [, y1] = extent(points.flatMap((point) => [point.drop, point.hi]), true);
    const x = scale(x0, x1, box.left, box.right), y = scale(0, y1, box.bottom, box.top);
    const xs = ticks(x0, x1, width / 110);
    frame(svg, box, x, y, xs, ticks(0, y1, 5), axisMicros(xs), lost, "time of a call");
    if (!none(allowed) && allowed <= y1) {
      draw(svg, "line", { x1: box.left, x2: box.right, y1: y(allowed), y2: y(allowed), stroke: "var(--red)", "stroke-dasharray": "4 3" });
      draw(svg, "text", { x: box.right, y: y(allowed) - 5, "text-anchor": "end" }, `allowed: ${lost(allowed)}`);
    }
    let least = Infinity;
    const best = [...points].sort((a, b) => a.us - b.us || a.drop - b.drop).filter((point) => point.drop < least && (least = point.drop, true));
    const path = best.map((point, index) => (index ? `H${x(point.us)}V${y(Math.max(0, point.drop))}` : `M${x(point.us)},${y(Math.max(0, point.drop))}`)).join("");
    draw(svg, "path", { d: path, fill: "none", stroke: "var(--grey)", "stroke-width": 1.5 });
    for (const point of points) {
      const mark = draw(svg, "g"), at = x(point.us);
      if (!none(point.hi)) draw(mark, "line", { x1: at, x2: at, y1: y(Math.max(0, point.lo)), y2: y(Math.max(0, point.hi)), stroke: paint[point.kind], "stroke-width": 2 });
      draw(mark, "circle", { cx: at, cy: y(Math.max(0, point.drop)), r: 5, fill: point.trusted ? paint[point.kind] : "var(--paper)", stroke: paint[point.kind], "stroke-width": 2 });
      explain(mark, `${point.label} (${point.kind})\n${micros(point.us)}, ${lost(point.drop)} lost${none(point.hi) ? "" : `, at most ${lost(point.hi)}`}`);
    }
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
