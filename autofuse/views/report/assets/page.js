// The page: its screens, sections and tables, from the data that it carries.

const book = JSON.parse(document.getElementById("data").textContent);
let data = book.pages[0]; // of the run that is shown

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
  } else if (data.open) {
    hero = `Tuned for ${data.open.sizes}`;
    detail = data.open.race;
    badge = ["open sizes", "good"];
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
    ["Coverage", trust.groups ? `${trust.measured} of ${trust.groups}` : "no plan", !trust.groups ? "no plan was chosen" : tables.tiles.length ? "tiles of kernels over open sizes have a time" : trust.measured === trust.groups ? "groups measured; each kernel has a schedule that was measured" : "groups measured; the others use the fixed rule"],
    ["Failures", `${count(counts.failed)} of ${count(counts.measured)}`, counts.failed ? "measurements failed; none of them is ever chosen" : "measurements failed"],
    ["Search", count(counts.candidates), `candidates · ${count(counts.trials)} plan${counts.trials === 1 ? "" : "s"} tried · ${run.length}`],
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
  plot("shares", "Where the time goes", "The kernels before and after, on one scale, their calls not counted; equal groups are one part (× how often).", parts.length && shares(parts), "No kernel of a chosen plan has a time.");
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
// What a quantised model may lose, and its fronts of time against accuracy; nothing of other models.
function accuracies() {
  const { facts, allowed, contractions, models } = data.accuracy;
  const columns = [["kind", "what"], ["label", "precisions"], ["us", "time", micros], ["drop", "lost, mean", lost], ["hi", "at most", lost]];
  if (facts.length) {
    const place = section("certificate", "Quantised", "The certificate of this model: what it loses against the float model that it was made from, on data that chose nothing.");
    table(place, [["fact", "fact"], ["value", "value"]], facts);
  }
  if (contractions.length) {
    plot("front", "Time against accuracy", "The sets of precisions that were weighed: the sum of the contractions' times, each alone, against the mean drop of the metric on the calibration data (blue). Orange: what was written, with the bounds of its drop on the acceptance data. Grey: all in float32.", accuracy(contractions, allowed));
    table(document.getElementById("front"), columns, contractions);
  }
  if (models.length) {
    plot("models-front", "Models of one float model", "Those that were tuned on this device, each as a whole: the time of its chosen plan against its drop (orange, with its bounds; grey: the float model). A hollow dot: the time is not trusted.", accuracy(models, allowed));
    table(document.getElementById("models-front"), [columns[0], ["label", "model"], ...columns.slice(2)], models);
  }
}
const FIRST = 20;
function tables() {
  const { groups, tiles, edges, provenance } = data.tables;
  let place = tiles.length
    ? section("groups", "Tiles", "What kernels over open sizes are made of: tiles of so many rows or places, as often as an average call over the sizes runs each.")
    : section("groups", "Groups", "Each kernel of the chosen plan; equal ones stand together. Over first: the chosen schedule against the first one measured; tried: schedules known.");
  if (data.left) place.append(make("p", {}, data.left));
  if (tiles.length) table(place, [["label", "tile"], ["rows", "rows", (v, row) => row.places || v || ""], ["runs", "runs a call", (v) => v.toFixed(1)], ["share", "share", (v) => percent(v, 1)], ["us", "time each", micros], ["rule_us", "of the rule's", (v, row) => (none(v) || none(row.us) ? "–" : times(v / row.us))], ["tried", "schedules", count]], tiles);
  else table(place, [["label", "group"], ["uses", "kernels", count], ["share", "share", (v) => percent(v, 1)], ["us", "time each", micros], ["trusted", "trusted", (v) => (none(v) ? "" : v ? "yes" : "no")], ["gain", "over first", times], ["schedules", "tried", count], ["flops", "MFLOP", mega], ["bytes", "MB", mega], ["gflops", "GFLOP/s", (v) => (none(v) ? "–" : v.toFixed(1))], ["peak_share", "of peak", (v) => percent(v)], ["bandwidth_share", "of bandwidth", (v) => percent(v)], ["schedule", "schedule"]], groups);
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
  if (page) { firstScreen(); accuracies(); plots(); tables(); } else nightScreen();
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
