"use strict";
// Model output reaches the page through textContent, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, of] of Object.entries(value)) made.style.setProperty(key, of);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
function draw(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    // Colours are variables of the style sheet, so that dark mode needs no redrawing.
    if (["fill", "stroke", "opacity"].includes(name)) made.style.setProperty(name, value);
    else made.setAttribute(name, value);
  }
  if (text !== undefined) made.textContent = text;
  return made;
}
function short(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(1);
  if (size >= 1e9) return trim(value / 1e9) + " G";
  if (size >= 1e6) return trim(value / 1e6) + " M";
  if (size >= 1e4) return trim(value / 1e3) + " k";
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return trim(value);
}
function trim(value) { return String(Number(value.toPrecision(3))); }
function percent(value) { return value === null || value === undefined ? "-" : (100 * value).toFixed(1) + " %"; }
function verdict(correct) {
  const [name, text] = correct === true ? ["right", "\u2713 correct"] : correct === false ? ["wrong", "\u2717 incorrect"] : ["none", "ungraded"];
  return el("span", { class: "verdict " + name }, text);
}
function ticks(low, high, count) {
  const raw = high / count - low / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}
function choice(label, options, change) {
  const select = el("select", { onchange: () => change(select.value) });
  for (const [value, text] of options) select.append(el("option", { value }, text));
  return [el("label", {}, label, select), select];
}
function fill(id, ...children) { document.getElementById(id).replaceChildren(...children); }

// Curves -------------------------------------------------------------------------------------------------------

const charts = [];
let redrawAll = () => {};

function chart(title, lines, format, dots) {
  const where = el("span", {}), legend = el("div", { class: "legend" }), canvas = el("div", {});
  const card = el("div", { class: "chart" }, el("h3", {}, title, where), legend, canvas);
  const xs = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const firstX = Math.min(...Object.values(data.curves.series).map((s) => s[0][0]));
  const lastX = Math.max(...Object.values(data.curves.series).map((s) => s[0][s[0].length - 1]));
  let cross, toX;
  function redraw() {
    const width = Math.max(240, canvas.clientWidth), height = 170, left = 46, right = 12, top = 8, bottom = 22;
    const values = lines.flatMap((line) => line.y).filter((v) => v !== null);
    let low = Math.min(...values), high = Math.max(...values);
    if (format === percent) { low = 0; high = Math.max(high, 0.05) > 0.6 ? 1 : high * 1.1 || 0.1; }
    else if (low >= 0 && low < 0.6 * high) low = 0;
    if (low === 0 && high === 0) high = 1;
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high = Math.min(high + (Math.abs(high) * 0.1 || 1), Number.MAX_VALUE); }
    const span = lastX - firstX || 1;
    toX = (x) => left + ((x - firstX) / span) * (width - left - right);
    // Halves: the difference of two numbers may be larger than a number can be.
    const toY = (y) => top + (1 - (y / 2 - low / 2) / (high / 2 - low / 2)) * (height - top - bottom);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
    svg.append(draw("title", {}, title));
    for (const y of ticks(low, high, 4)) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: toY(y), y2: toY(y) }));
      svg.append(draw("text", { x: left - 6, y: toY(y) + 4, "text-anchor": "end" }, format === percent ? Math.round(100 * y) + " %" : short(y)));
    }
    for (const x of ticks(firstX, lastX === firstX ? firstX + 1 : lastX, 5).filter(Number.isInteger))
      svg.append(draw("text", { x: toX(x), y: height - 6, "text-anchor": "middle" }, String(x)));
    for (const stage of data.curves.stages.slice(1))
      svg.append(draw("line", { class: "stage", x1: toX(stage.at), x2: toX(stage.at), y1: top, y2: height - bottom }));
    lines.forEach((line, i) => {
      const stroke = `var(--s${i % 8})`, smooth = line.x.length > 60;
      const path = (ys) => {
        let pen = "M";
        return line.x.map((x, k) => {
          if (ys[k] === null) { pen = "M"; return ""; }
          const part = `${pen}${toX(x).toFixed(1)} ${toY(ys[k]).toFixed(1)}`;
          pen = "L";
          return part;
        }).join("");
      };
      svg.append(draw("path", { d: path(line.y), fill: "none", stroke, opacity: smooth ? 0.3 : 1, "stroke-width": smooth ? 1 : 1.8 }));
      if (smooth) svg.append(draw("path", { d: path(runningMean(line.y)), fill: "none", stroke, "stroke-width": 1.8 }));
      if (dots || line.x.length === 1)
        line.x.forEach((x, k) => line.y[k] !== null && svg.append(draw("circle", { cx: toX(x), cy: toY(line.y[k]), r: 2.8, fill: stroke })));
    });
    cross = draw("line", { class: "cross", y1: top, y2: height - bottom });
    svg.append(cross);
    const move = (event) => {
      const box = svg.getBoundingClientRect();
      const x = firstX + (((event.clientX - box.left) * width) / box.width - left) / (width - left - right) * span;
      for (const other of charts) other.point(x);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", () => charts.forEach((other) => other.point(null)));
    canvas.replaceChildren(svg);
  }
  // Values are in the legend and not at the pointer, where a finger would hide them. All charts show the same step.
  function point(x) {
    const at = x === null ? null : xs.reduce((best, one) => (Math.abs(one - x) < Math.abs(best - x) ? one : best), xs[0]);
    where.textContent = at === null ? "" : "step " + at;
    if (cross) {
      cross.style.visibility = at === null ? "hidden" : "visible";
      if (at !== null) { cross.setAttribute("x1", toX(at)); cross.setAttribute("x2", toX(at)); }
    }
    legend.replaceChildren(...lines.map((line, i) => {
      const k = at === null ? line.y.length - 1 : line.x.indexOf(at);
      const text = k < 0 ? "-" : format(line.y[k]);
      const mark = lines.length > 1 ? el("i", { style: { background: `var(--s${i % 8})` } }) : null;
      return el("span", {}, mark, lines.length > 1 ? line.name + " " : at === null ? "last " : "", el("b", {}, text));
    }));
  }
  point(null);
  charts.push({ redraw, point });
  return card;
}
function windowOf(count) { return Math.max(3, 2 * Math.round(count / 50) + 1); }
function runningMean(values) {
  const half = (windowOf(values.length) - 1) / 2;
  return values.map((value, i) => {
    if (value === null) return null; // keep gaps
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((v) => v !== null);
    return near.reduce((sum, v) => sum + v / near.length, 0);
  });
}
function showCurves() {
  const series = data.curves.series, used = new Set(["tokens_sampled", "tokens_trained"]);
  const names = Object.keys(series);
  if (!names.length) return;
  const byNumber = (a, b) => a.localeCompare(b, undefined, { numeric: true });
  const some = (title, keys, format = short, dots = false, name = (key) => key) => {
    const found = keys.filter((key) => key in series);
    found.forEach((key) => used.add(key));
    return found.length ? chart(title, found.map((key) => ({ name: name(key), x: series[key][0], y: series[key][1] })), format, dots) : null;
  };
  // Curriculum and guidance metrics, named slot/what/of: one chart per what, one line per of.
  const beliefs = new Map();
  for (const name of names.filter((n) => /^(curriculum|guidance)\/.*\/[^/]+$/.test(n)).sort(byNumber)) {
    const what = name.slice(0, name.lastIndexOf("/"));
    beliefs.set(what, [...(beliefs.get(what) || []), name]);
  }
  const titled = (what) => { const words = what.replaceAll("_", " ").replace("/", ": ").replaceAll("/", ", "); return words[0].toUpperCase() + words.slice(1); };
  const main = [
    some("Held-out accuracy", ["heldout/overall"], percent, true),
    some("Reward, mean", ["reward/mean"]),
    some("Training accuracy", ["correct/mean"], percent),
    some("Training accuracy, by level", names.filter((n) => /^level\/.*\/correct$/.test(n)).sort(byNumber), percent, false, (n) => n.split("/")[1]),
    ...[...beliefs].map(([what, keys]) => some(titled(what), keys, short, false, (n) => n.slice(n.lastIndexOf("/") + 1))),
    some("Entropy, nats per token", ["entropy"]),
    some("Completion length, tokens", ["completion_tokens/mean"]),
    some("Loss", ["loss"]),
    some("Gradient norm", ["grad_norm"]),
    some("Groups with non-zero advantage", ["groups/with_gradient"], percent),
    some("Seconds by phase", names.filter((n) => n.startsWith("seconds/") && n !== "seconds/start"), short, false, (n) => n.split("/")[1]),
    some("Tokens per second", ["tokens_per_second"]),
    some("Age of what is trained, updates", names.filter((n) => n.startsWith("staleness/")), short, false, (n) => n.split("/")[1]),
    some("Time spent waiting", names.filter((n) => n.startsWith("idle/")), percent, false, (n) => n.split("/")[1]),
    some("Groups drawn ahead", ["ahead/running", "ahead/ready"], short, false, (n) => n.split("/")[1]),
    some("Truncated completions", ["truncated"]),
    some("Ungraded", ["ungraded"]),
  ].filter(Boolean);
  const rest = names.filter((name) => !used.has(name)).map((name) => some(name, [name]));
  const stages = data.curves.stages;
  const longest = Math.max(...names.map((name) => series[name][0].length));
  const notes = [
    longest > 60 ? `Bold: running mean over ${windowOf(longest)} ${data.curves.block > 1 ? "points" : "steps"}; faint: every ${data.curves.block > 1 ? "point" : "step"}.` : "",
    stages.length > 1 ? `Dashed: a new stage (${stages.map((s) => `${s.name} from step ${s.at}`).join(", ")}).` : "",
    "Horizontal axis: step. Point at a chart to read the same step in all.",
  ].filter(Boolean).join(" ");
  const more = rest.length ? el("details", { ontoggle: () => redrawAll() }, el("summary", {}, `All other metrics (${rest.length})`), el("div", { class: "charts" }, ...rest)) : null;
  fill("curves-body", el("p", { class: "dim" }, notes), el("div", { class: "charts" }, ...main), ...(more ? [el("p", {}), more] : []));
  redrawAll = () => charts.forEach((one) => one.redraw());
  redrawAll();
}

// Levels -------------------------------------------------------------------------------------------------------

function showLevels() {
  const levels = data.levels;
  if (!levels.length) return;
  const holder = el("div", { class: "levels" });
  const legend = el("div", { class: "legend" },
    el("span", {}, el("i", { style: { background: "var(--before)" } }), "before"),
    el("span", {}, el("i", { style: { background: "var(--after)" } }), "after"),
    el("span", {}, "\u25C7 after, greedy"), el("span", {}, "lines: 95 % interval over tasks"));
  fill("levels-body", legend, holder);
  const redraw = () => {
    const width = Math.max(280, holder.clientWidth), row = 40, top = 6, left = 12 + 7 * Math.max(5, ...levels.map((l) => l.level.length)), right = 96;
    const height = top + row * levels.length + 24, toX = (v) => left + v * (width - left - right);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
    svg.append(draw("title", {}, "Accuracy by level, before and after"));
    for (const v of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(draw("line", { class: "grid", x1: toX(v), x2: toX(v), y1: top, y2: height - 22 }));
      svg.append(draw("text", { x: toX(v), y: height - 6, "text-anchor": "middle" }, 100 * v + " %"));
    }
    levels.forEach((level, i) => {
      const middle = top + row * (i + 0.5);
      svg.append(draw("text", { class: "value", x: left - 10, y: middle + 4, "text-anchor": "end" }, level.level));
      [["before", -7], ["after", 7]].forEach(([side, shift]) => {
        const interval = level[side], stroke = `var(--${side})`, y = middle + shift;
        if (!interval) return;
        svg.append(draw("line", { x1: toX(interval.low), x2: toX(interval.high), y1: y, y2: y, stroke, "stroke-width": 2.5, opacity: 0.6 }));
        svg.append(draw("circle", { cx: toX(interval.mean), cy: y, r: 5, fill: stroke }));
      });
      if (level.greedy) {
        const x = toX(level.greedy.mean), y = middle + 7;
        svg.append(draw("path", { d: `M${x - 6} ${y}L${x} ${y - 6}L${x + 6} ${y}L${x} ${y + 6}Z`, fill: "none", stroke: "var(--text)", "stroke-width": 1.3 }));
      }
      const text = ["before", "after"].map((side) => (level[side] ? Math.round(100 * level[side].mean) : "?")).join(" \u2192 ") + " %";
      svg.append(draw("text", { class: "value", x: width - 4, y: middle + 4, "text-anchor": "end" }, text));
    });
    holder.replaceChildren(svg);
  };
  charts.push({ redraw, point: () => {} });
  redraw();
}

// Before and after ---------------------------------------------------------------------------------------------

function showExamples() {
  const all = data.examples;
  if (!all.length) return;
  const kinds = {
    "all": () => true,
    "became correct": (e) => e.before && e.after && e.before.correct === false && e.after.correct === true,
    "became incorrect": (e) => e.before && e.after && e.before.correct === true && e.after.correct === false,
    "correct in both": (e) => e.before && e.after && e.before.correct === true && e.after.correct === true,
    "incorrect in both": (e) => e.before && e.after && e.before.correct === false && e.after.correct === false,
  };
  let kind = "all", at = 0;
  const buttons = el("span", { class: "controls" }), body = el("div", {});
  const side = (name, given) => el("div", { class: "card" }, el("h3", {}, name, given ? verdict(given.correct) : null),
    given ? el("pre", { class: "tall" }, given.completion) : el("p", { class: "dim" }, "not recorded"));
  const show = () => {
    const found = all.filter(kinds[kind]);
    at = Math.max(0, Math.min(at, found.length - 1));
    buttons.replaceChildren(...Object.entries(kinds).map(([name, test]) => {
      const count = all.filter(test).length;
      return el("button", { type: "button", "aria-pressed": String(name === kind), disabled: count ? null : "", onclick: () => { kind = name; at = 0; show(); } }, `${name} (${count})`);
    }));
    const example = found[at];
    const step = (label, by) => el("button", { type: "button", disabled: found[at + by] ? null : "", onclick: () => { at += by; show(); } }, label);
    body.replaceChildren(
      el("div", { class: "card" },
        el("h3", {}, example.task, el("span", {}, example.level === null ? "" : "level " + example.level), el("span", {}, `${at + 1} of ${found.length}`), step("Previous", -1), step("Next", 1)),
        el("pre", { class: "prompt tall" }, example.prompt),
        example.answer === null ? null : el("p", { class: "facts" }, el("span", {}, "expected ", el("b", {}, example.answer)))),
      el("div", { class: "pair" }, side("Before", example.before), side("After", example.after)));
  };
  fill("examples-body", buttons, body);
  show();
}

// Rollouts -----------------------------------------------------------------------------------------------------

const rows = data.rollouts.rows;
const size = (values, share) => {
  const sorted = values.filter((v) => v !== null).map(Math.abs).sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))] || 1;
};
// The scale ends at the 98th percentile, so that one outlier does not fade all others.
const most = { credit: size(rows.flatMap((r) => r.credit), 0.98), logprob: size(rows.flatMap((r) => r.logprob), 0.98) };

function coloured(row, by) {
  const text = row.completion !== undefined && by === "none" ? row.completion : row.tokens.join("");
  const pre = el("pre", { class: "tall" });
  if (by === "none" || !row.tokens.length) pre.append(row.completion !== undefined ? row.completion : text);
  else row.tokens.forEach((token, i) => {
    const value = by === "credit" && row.credit.length === 1 ? row.credit[0] : row[by][i];
    const known = value !== null && value !== undefined;
    const strength = known ? Math.min(1, Math.abs(value) / most[by]) * 55 : 0;
    const colour = by === "logprob" ? "var(--s7)" : value >= 0 ? "var(--right)" : "var(--wrong)";
    const title = known ? (by === "credit" ? "advantage " : "log-probability, nats ") + short(value) : "not trained";
    pre.append(el("span", { title, style: { background: `color-mix(in srgb, ${colour} ${strength.toFixed(0)}%, transparent)` } }, token));
  });
  if (!row.whole) pre.append(el("span", { class: "dim" }, " [truncated for the report]"));
  return pre;
}
function facts(row) {
  const parts = Object.entries(row.parts).map(([name, value]) => `${name} ${short(value)}`).join(", ");
  const list = [["outcome", row.outcome === null ? null : short(row.outcome)], ["parts", parts || null], ["advantage", row.advantage === null ? null : short(row.advantage)],
    ["tokens", String(row.length)], ["ended by", row.finish], ["not graded:", row.reason]];
  return el("div", { class: "facts" }, ...list.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => el("span", {}, name + " ", el("b", {}, value))));
}
function scale(by) {
  if (by === "none") return el("span", {});
  const end = short(most[by]);
  const gradient = by === "credit"
    ? "linear-gradient(90deg, color-mix(in srgb, var(--wrong) 55%, transparent), transparent, color-mix(in srgb, var(--right) 55%, transparent))"
    : "linear-gradient(90deg, transparent, color-mix(in srgb, var(--s7) 55%, transparent))";
  return el("span", { class: "scale" }, by === "credit" ? "-" + end : "certain (0)", el("i", { style: { background: gradient } }), by === "credit" ? "+" + end : "unlikely (-" + end + " nats)");
}
function showRollouts() {
  if (!rows.length) return;
  const state = { step: "", level: "", correct: "", by: "credit", shown: 3 };
  const body = el("div", {}), bar = el("span", {});
  const distinct = (key) => [...new Set(rows.map((r) => r[key]))].filter((v) => v !== null && v !== undefined);
  const change = (key) => (value) => { state[key] = value; if (key !== "by") state.shown = 3; show(); };
  const [step, stepSelect] = choice("step", [["", "all"], ...distinct("step").map((s) => [s, s])], change("step"));
  const levels = distinct("level").sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const [level] = choice("level", [["", "all"], ...levels.map((l) => [l, l])], change("level"));
  const [correct] = choice("verdict", [["", "all"], ["true", "correct"], ["false", "incorrect"], ["null", "ungraded"]], change("correct"));
  const [by] = choice("colour by", [["credit", "advantage"], ["logprob", "log-probability"], ["none", "nothing"]], change("by"));
  state.step = stepSelect.value = String(distinct("step").at(-1));
  const matches = (r) => (!state.step || String(r.step) === state.step) && (!state.level || r.level === state.level) && (!state.correct || String(r.correct ?? null) === state.correct);
  const show = () => {
    const groups = data.rollouts.trees.map((tree) => ({ tree, found: rows.slice(tree.first, tree.first + tree.count).filter(matches) })).filter((g) => g.found.length);
    const count = groups.reduce((sum, g) => sum + g.found.length, 0);
    bar.replaceChildren(scale(state.by));
    body.replaceChildren(
      el("p", { class: "dim" }, `${count} of the ${rows.length} trajectories on this page, from ${groups.length} tasks` + (groups.length > state.shown ? `; the first ${state.shown} tasks below` : "")),
      ...groups.slice(0, state.shown).map(({ tree, found }) => el("article", { class: "group" },
        el("h3", {}, tree.task, el("span", { class: "dim" }, " step " + tree.step + (tree.level === null ? "" : ", level " + tree.level) + ", " + (found.length === tree.of ? `${tree.of} trajectories` : `${found.length} of ${tree.of} trajectories`))),
        // A trajectory may have its own prompt (a hint): each prompt once, its trajectories below it.
        ...[...new Set(found.map((r) => r.prompt))].flatMap((prompt) => [
          el("pre", { class: "prompt tall" }, data.rollouts.prompts[prompt].trim()),
          el("div", { class: "grid" }, ...found.filter((r) => r.prompt === prompt).map((row) => el("div", { class: "card" }, el("h3", {}, verdict(row.correct)), facts(row), coloured(row, state.by))))]))),
      groups.length > state.shown ? el("button", { type: "button", onclick: () => { state.shown += 6; show(); } }, "Show more tasks") : "");
  };
  fill("rollouts-body", el("div", { class: "controls" }, step, level, correct, by, bar), body);
  show();
}

// Token tree ---------------------------------------------------------------------------------------------------

function showTrees() {
  const trees = data.rollouts.trees;
  if (!trees.length) return;
  const mixed = (tree) => { const c = rows.slice(tree.first, tree.first + tree.count).map((r) => r.correct); return c.includes(true) && c.includes(false); };
  const start = Math.max(0, trees.findLastIndex(mixed));
  const holder = el("div", { class: "tree", tabindex: "0", role: "group", "aria-label": "token tree" }), detail = el("div", {});
  const [control, select] = choice("task", trees.map((t, i) => [i, `step ${t.step}: ${t.task}` + (t.level === null ? "" : ` (level ${t.level})`)]), (value) => showTree(holder, detail, trees[value]));
  select.value = start;
  fill("tree-body", el("div", { class: "controls" }, control), el("p", { class: "dim" }, "Trajectories with the same prefix share a line until they diverge; a thicker line has more of them. Colour: accuracy of the trajectories below, from ", el("b", { class: "verdict wrong" }, "0 %"), " to ", el("b", { class: "verdict right" }, "100 %"), ". Select a box to read it in full."), holder, detail);
  showTree(holder, detail, trees[start]);
}
function showTree(holder, detail, tree) {
  const own = rows.slice(tree.first, tree.first + tree.count);
  const nodes = [], columns = [];
  // Several prompts get a common root.
  const several = tree.nodes.filter((node) => node.parent < 0).length > 1;
  if (several) nodes.push({ node: { text: "", rows: own.map((_, i) => i), ends: [] }, depth: 0, parent: null, kids: [], isPrompt: true });
  const shift = nodes.length;
  for (const node of tree.nodes) {
    const parent = node.parent >= 0 ? nodes[node.parent + shift] : several ? nodes[0] : null;
    const place = { node, depth: parent ? parent.depth + 1 : 0, parent, kids: [], isPrompt: node.parent < 0 };
    nodes.push(place);
    if (parent) parent.kids.push(place);
  }
  let leaf = 0;
  const label = (place) => {
    const text = (place.node.text || (place.isPrompt ? "several prompts" : "")).replaceAll("\n", "\u23CE");
    const limit = 30;
    if (text.length <= limit) return text || "(nothing)";
    return place.isPrompt ? "\u2026" + text.slice(-limit) : text.slice(0, limit) + "\u2026";
  };
  for (const place of nodes) {
    if (!place.kids.length) place.y = leaf++;
    place.label = label(place);
    place.width = 7.25 * place.label.length + 14;
    columns[place.depth] = Math.max(columns[place.depth] || 0, place.width);
  }
  for (const place of [...nodes].reverse()) if (place.kids.length) place.y = (place.kids[0].y + place.kids.at(-1).y) / 2;
  const gap = 34, row = 34, left = columns.map((_, d) => 14 + columns.slice(0, d).reduce((a, b) => a + b + gap, 0));
  const width = left.at(-1) + columns.at(-1) + 130, height = leaf * row + 16;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  const toY = (place) => 8 + row * (place.y + 0.5);
  const colour = (place) => {
    const graded = place.node.rows.map((i) => own[i].correct).filter((c) => c === true || c === false);
    if (!graded.length) return "var(--none)";
    return `color-mix(in oklab, var(--right) ${Math.round((100 * graded.filter(Boolean).length) / graded.length)}%, var(--wrong))`;
  };
  for (const place of nodes.filter((p) => p.parent)) {
    const x1 = left[place.parent.depth] + place.parent.width, x2 = left[place.depth], y1 = toY(place.parent), y2 = toY(place), bend = (x2 - Math.min(x1, x2 - 20)) / 2;
    svg.append(draw("path", { d: `M${x1} ${y1}C${x2 - bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, fill: "none", stroke: colour(place), "stroke-width": 1 + 4 * Math.sqrt((place.node.rows.length - 1) / Math.max(1, own.length - 1)), opacity: 0.75 }));
  }
  const read = (place, group) => {
    holder.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
    group.classList.add("chosen");
    const path = [];
    for (let at = place; at; at = at.parent) path.unshift(at);
    const ends = place.node.ends.map((i) => own[i]);
    detail.replaceChildren(el("div", { class: "card" },
      el("h3", {}, `${place.node.rows.length} of ${own.length} trajectories pass here`, ...(ends.length ? ends.map((r) => verdict(r.correct)) : [])),
      ends.length ? facts(ends[0]) : null,
      // Search statistics of the nodes that begin here: visits, values.
      ...(place.node.stats || []).slice(0, 8).map((s) => el("p", { class: "dim" }, Object.entries(s).map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "number" ? short(value) : JSON.stringify(value)}`).join(", "))),
      el("pre", { class: "tall" }, ...path.map((p) => (p === place ? el("b", {}, p.node.text) : el("span", { class: "dim" }, p.node.text))))));
  };
  for (const place of nodes) {
    const x = left[place.depth], y = toY(place);
    const group = draw("g", { class: "node", tabindex: "0", role: "button" });
    const kept = (place.node.stats || []).filter((s) => typeof s.visits === "number" && typeof s.q === "number");
    group.append(draw("title", {}, kept.slice(0, 1).map((s) => `${s.visits} visits, q ${short(s.q)}\n`).join("") + place.node.text.slice(-2000)));
    group.append(draw("rect", { x, y: y - 11, width: place.width, height: 22, rx: 4, stroke: colour(place) }));
    group.append(draw("text", { x: x + 7, y: y + 4 }, place.label));
    group.addEventListener("click", () => read(place, group));
    group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); read(place, group); } });
    svg.append(group);
    if (place.node.ends.length) {
      const end = own[place.node.ends[0]];
      const mark = (end.correct === true ? "\u2713" : end.correct === false ? "\u2717" : "?") + (end.outcome === null ? " ungraded" : " " + short(end.outcome)) + (place.node.ends.length > 1 ? ` \u00D7${place.node.ends.length}` : "");
      svg.append(draw("text", { class: "end", x: x + place.width + 8, y: y + (place.kids.length ? -8 : 4), fill: end.correct === true ? "var(--right)" : end.correct === false ? "var(--wrong)" : "var(--none)" }, mark));
    }
  }
  holder.replaceChildren(svg);
  detail.replaceChildren(tree.of > tree.count ? el("p", { class: "dim" }, `${tree.count} of the task's ${tree.of} trajectories are shown.`) : "");
}

showCurves();
showLevels();
showExamples();
showRollouts();
showTrees();
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => charts.forEach((one) => one.redraw()), 150); });
