// Makes the figures of the page answer the mouse, a finger and the keyboard, and renews the page while it is served.
//
// The page is complete without this script: each figure is a picture (SVG), and attributes of the picture hold its data
// (chart.hpp). The script draws it again in the size of the window, for any range of iterations and any smoothing.
"use strict";
(() => {
  // State that outlives a renewal of the page.
  const state = {
    smoothing: 0, // position of the slider, 0 to 100
    logX: false,
    linked: true, // a zoom over iterations applies to all figures
    range: null, // first and last iteration of a linked zoom
    hiddenRuns: new Set(), // numbers of runs
    settings: new Map(), // of each figure by its name: hidden curves, logarithmic values, own zoom
  };
  let figures = [];
  const drawAll = () => figures.forEach((figure) => figure.draw());

  // Returns an element with attributes and children; of SVG if `parent` is.
  const make = (name, attributes = {}, children = [], namespace = document.documentElement.namespaceURI) => {
    const element = document.createElementNS(namespace, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...[].concat(children));
    return element;
  };

  // ---- numbers, in the same form as in the pictures without script (scale.cpp)

  const roundStep = (step) => {
    const power = 10 ** Math.floor(Math.log10(step));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= step * (1 - 1e-9));
  };

  const unitOf = (greatest) => {
    for (const [size, suffix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (greatest >= (size === 1e3 ? 1e4 : size) * (1 - 1e-9) && greatest < 1e15) return { size, suffix };
    }
    if (greatest >= 1e-3 && greatest < 1e15) return { size: 1, suffix: "" };
    const power = Math.floor(Math.log10(greatest) + 1e-9);
    return { size: 10 ** power, suffix: `e${power}` };
  };

  const shortNumber = (value, digits = 5) => {
    if (!Number.isFinite(value)) return "not finite";
    if (Math.abs(value) < 1e-300) return "0";
    const unit = unitOf(Math.abs(value));
    return String(Number((value / unit.size).toPrecision(digits))) + unit.suffix;
  };

  const grouped = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u202f");

  const linearTicks = (min, max, step) => {
    const decimalsIn = (unit) => Math.min(15, Math.max(0, -Math.floor(Math.log10(step / unit.size) + 1e-9)));
    let unit = unitOf(Math.max(Math.abs(min), Math.abs(max), 1e-300));
    if (unit.size > 1 && step >= 1 && decimalsIn(unit) > 2) unit = { size: 1, suffix: "" };
    const ticks = [];
    for (let i = Math.ceil(min / step - 1e-6); i <= Math.floor(max / step + 1e-6) && ticks.length < 50; ++i) {
      const label = i === 0 ? "0" : ((i * step) / unit.size).toFixed(decimalsIn(unit)) + unit.suffix;
      ticks.push({ value: i * step, label });
    }
    return ticks;
  };

  const logTicks = (min, max, maxTicks) => {
    const low = Math.log10(min), high = Math.log10(max);
    const stride = Math.max(1, Math.ceil((high - low) / maxTicks));
    const factors = high - low < 2.5 ? [1, 2, 5] : [1];
    const ticks = [];
    for (let power = Math.floor(low); power <= high; ++power) {
      if (power % stride !== 0) continue;
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= min && value <= max) ticks.push({ value, label: shortNumber(value, 3) });
      }
    }
    if (ticks.length > 2) return ticks;
    return linearTicks(min, max, roundStep((max - min) / maxTicks)).filter(({ value }) => value > 0);
  };

  // Returns the unit in which values up to `greatest` are shown: bytes in powers of 1024, fractions in percent.
  const displayUnit = (name, greatest) => {
    if (name === "%") return { size: 0.01, name };
    if (name !== "bytes") return { size: 1, name };
    const multiples = [[1024 ** 3, "GiB"], [1024 ** 2, "MiB"], [1024, "KiB"], [1, "bytes"]];
    const [size, multiple] = multiples.find(([bytes]) => greatest >= bytes) ?? [1, "bytes"];
    return { size, name: multiple };
  };

  // Returns a scale from values to positions and back.
  const scaleOf = (min, max, isLog, from, to) => {
    const into = isLog ? Math.log : Number;
    const back = isLog ? Math.exp : Number;
    const low = into(min), high = into(max);
    const at = (value) => {
      const place = isLog && value <= 0 ? -10 : (into(value) - low) / (high - low);
      return from + Math.min(10, Math.max(-10, place)) * (to - from);
    };
    return { min, max, isLog, at, value: (place) => back(low + ((place - from) / (to - from)) * (high - low)) };
  };

  // ---- data of a picture

  const unpacked = (text) =>
    (text ?? "").split(" ").filter(Boolean).flatMap((token) => {
      const [value, count] = token.split("*");
      return Array(Number(count ?? 1)).fill(value === "-" ? NaN : Number(value));
    });

  const curveOf = (group) => {
    const data = group.dataset;
    const [steps, spans, counts, bad, means] = [data.x, data.span, data.count, data.bad, data.mean].map(unpacked);
    const mins = data.min ? unpacked(data.min) : means, maxs = data.max ? unpacked(data.max) : means;
    let first = 0;
    const columns = steps.map((step, i) => {
      first += step;
      const column = { first, last: first + spans[i], x: first + spans[i] / 2, count: counts[i], bad: bad[i] };
      return Object.assign(column, { mean: means[i], min: mins[i], max: maxs[i] });
    });
    const { label, style, run, markers } = data;
    return { label, style: Number(style), run: Number(run), markers: markers === "1", columns };
  };

  // Returns the exponential mean of each column and those before it: weights fall by e over `span` iterations.
  const smoothed = (columns, span) => {
    let sum = 0, weight = 0, before = 0;
    return columns.map(({ x, count, mean }) => {
      if (!(count > 0)) return NaN;
      const decay = Math.exp((before - x) / span);
      sum = sum * decay + count * mean;
      weight = weight * decay + count;
      before = x;
      return sum / weight;
    });
  };

  // Returns the index of the first column at or after an iteration.
  const lowerBound = (columns, x) => {
    let low = 0, high = columns.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (columns[middle].x < x) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const iterationsOf = ({ first, last }) =>
    first === last ? `iteration ${grouped(first)}` : `iterations ${grouped(first)} to ${grouped(last)}`;

  // Iterations over which the smoothing extends: from 1 to a quarter of the longest curve, 0 for none.
  const smoothingSpan = () => {
    if (state.smoothing === 0) return 0;
    const longest = Math.max(4, ...figures.map(({ extent }) => extent[1] - extent[0]));
    return (longest / 4) ** (state.smoothing / 100);
  };

  // ---- figures

  class Figure {
    constructor(element) {
      this.element = element;
      this.svg = element.querySelector("svg[data-axis]");
      this.name = element.dataset.part;
      this.title = element.querySelector("h3").textContent;
      if (!state.settings.has(this.name)) {
        state.settings.set(this.name, { hidden: new Set(), logY: null, range: null, values: null });
      }
      this.settings = state.settings.get(this.name);
      this.over = this.shape("g", { class: "over" });
      this.tip = make("div", { class: "tip", hidden: "", "aria-hidden": "true" });
      this.spoken = make("output", { class: "spoken", "aria-live": "polite" });
      this.logButton = make("button", { type: "button", class: "toggle", title: `${this.title}: logarithmic values` }, "log y");
      this.logButton.onclick = () => {
        this.settings.logY = !this.isLog();
        this.settings.values = null;
        this.draw();
      };
      const heading = element.querySelector("h3");
      const head = make("div", { class: "head" });
      heading.replaceWith(head);
      head.append(heading, this.logButton);
      element.append(this.tip, this.spoken);
      this.load(this.svg, element.querySelector(".legend"));
      this.svg.classList.add("drawn");
      this.svg.setAttribute("tabindex", "0");
      this.svg.setAttribute("role", "application");
      this.svg.removeAttribute("aria-labelledby");
      this.listen();
    }

    shape(name, attributes, children) {
      return make(name, attributes, children, this.svg.namespaceURI);
    }

    // Takes the data of a picture, and its legend.
    load(svg, legend) {
      this.unit = svg.dataset.unit;
      this.axis = svg.dataset.axis;
      this.extent = [Number(svg.dataset.first), Math.max(Number(svg.dataset.last), Number(svg.dataset.first) + 1)];
      this.curves = [...svg.querySelectorAll("g.curve")].map(curveOf);
      const columns = this.curves.flatMap((curve) => curve.columns.filter(({ count }) => count > 0));
      const least = columns.reduce((value, { min }) => Math.min(value, min), Infinity);
      const greatest = columns.reduce((value, { max }) => Math.max(value, max), -Infinity);
      this.spansDecades = this.axis === "decades" && least > 0 && greatest / least >= 10;
      const marksOf = (kind) =>
        [...svg.querySelectorAll(`path.${kind}`)].map((mark) => ({
          x: Number(mark.dataset.x),
          style: [...mark.classList].find((name) => /^c\d$/.test(name)),
          text: mark.textContent,
        }));
      this.begins = marksOf("life");
      this.skipped = marksOf("skip");
      const description = svg.querySelector("desc")?.textContent ?? "";
      const help = "Arrow keys move over the values, plus and minus zoom, 0 resets.";
      this.svg.setAttribute("aria-label", `${this.title}. ${description} ${help}`);
      const labels = legend ? this.curves.map(({ label }) => label) : [];
      if (this.keys?.map(({ label }) => label).join("\n") === labels.join("\n")) return; // the focus may be there
      this.element.querySelector(".legend")?.remove();
      this.keys = [];
      if (!legend) return;
      [...legend.children].forEach((item, i) => {
        const key = make("button", { type: "button", class: "key", title: "Hide or show this curve" }, [...item.childNodes]);
        const { label } = this.curves[i];
        key.onclick = () => {
          const { hidden } = this.settings;
          if (!hidden.delete(label)) hidden.add(label);
          this.draw();
        };
        item.replaceChildren(key);
        this.keys.push({ key, label });
      });
      this.svg.after(legend);
    }

    shown() {
      return this.curves.filter(({ label, run }) => !this.settings.hidden.has(label) && !state.hiddenRuns.has(run));
    }

    isLog() {
      return this.settings.logY ?? this.spansDecades;
    }

    // First and last iteration in view.
    range() {
      const [first, last] = this.extent;
      const zoom = state.linked ? state.range : this.settings.range;
      const least = state.logX ? Math.max(first, Math.min(1, last / 2)) : first;
      const [low, high] = zoom ? [Math.max(zoom[0], least), Math.min(zoom[1], last)] : [least, last];
      return low < high ? [low, high] : [least, last];
    }

    zoom(range, values) {
      if (state.linked) state.range = range;
      else this.settings.range = range;
      this.settings.values = values;
      refreshControls();
      if (state.linked) drawAll();
      else this.draw();
    }

    // Returns the columns of a curve in view, and the neighbours at both ends, to which its line continues.
    visible(curve, [first, last]) {
      const { columns } = curve;
      const from = Math.max(0, lowerBound(columns, first) - 1), to = Math.min(columns.length, lowerBound(columns, last) + 1);
      return { from, columns: columns.slice(from, to) };
    }

    valueScale(range, curves, isLog, from, to) {
      let least = Infinity, greatest = -Infinity;
      for (const curve of curves) {
        const inView = this.visible(curve, range);
        inView.columns.forEach((column, i) => {
          if (!(column.count > 0) || column.last < range[0] || column.first > range[1]) return;
          const smooth = curve.smooth?.[inView.from + i];
          const values = curve.smooth ? [column.mean, smooth] : [column.min, column.max];
          const drawn = isLog ? values.filter((value) => value > 0) : values;
          least = Math.min(least, ...drawn);
          greatest = Math.max(greatest, ...drawn);
        });
      }
      const isEmpty = !(least <= greatest);
      if (isEmpty) [least, greatest] = [isLog ? 1 : 0, isLog ? 10 : 1];
      const unit = displayUnit(this.unit, greatest);
      least /= unit.size;
      greatest /= unit.size;
      const maxTicks = Math.max(2, Math.round(Math.abs(to - from) / 45));
      if (this.settings.values) {
        const [low, high] = this.settings.values.map((value) => value / unit.size);
        const ticks = isLog ? logTicks(low, high, maxTicks) : linearTicks(low, high, roundStep((high - low) / maxTicks));
        return { unit, ticks, ...scaleOf(low, high, isLog, from, to) };
      }
      if (isLog) {
        const [low, high] = [least / 1.1, greatest * 1.1];
        return { unit, ticks: isEmpty ? [] : logTicks(low, high, maxTicks), ...scaleOf(low, high, true, from, to) };
      }
      if (this.axis === "from_zero") [least, greatest] = [Math.min(least, 0), Math.max(greatest, 0)];
      const size = Math.max(Math.abs(least), Math.abs(greatest));
      if (greatest - least <= 1e-9 * size || size === 0) {
        const margin = size === 0 ? 1 : 0.05 * size;
        [least, greatest] = [least - margin, greatest + margin];
      }
      const step = roundStep((greatest - least) / maxTicks);
      const low = Math.floor(least / step + 1e-9) * step, high = Math.ceil(greatest / step - 1e-9) * step;
      return { unit, ticks: isEmpty ? [] : linearTicks(low, high, step), ...scaleOf(low, high, false, from, to) };
    }

    // Draws the figure in its size on the screen, or in a given one for paper.
    draw(paper) {
      const box = paper ?? this.svg.getBoundingClientRect();
      const width = Math.max(200, Math.round(box.width)), height = Math.max(120, Math.round(box.height));
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const curves = this.shown(), range = this.range(), span = smoothingSpan(), isLog = this.isLog();
      for (const curve of curves) {
        if (curve.span === span) continue;
        curve.span = span;
        curve.smooth = span > 0 ? smoothed(curve.columns, span) : null;
      }
      const em = paper?.em ?? 12;
      const top = 8, bottom = height - 3 * em, right = width - 1.2 * em;
      const y = this.valueScale(range, curves, isLog, bottom, top);
      const left = 16 + 0.58 * em * Math.max(3, ...y.ticks.map(({ label }) => label.length));
      const x = scaleOf(range[0], range[1], state.logX && range[0] > 0, left, right);
      this.plot = { left, right, top, bottom, width, height, em, x, y, range };
      this.logButton.setAttribute("aria-pressed", isLog);
      for (const { key, label } of this.keys) {
        const run = this.curves.find((curve) => curve.label === label)?.run;
        key.setAttribute("aria-pressed", !this.settings.hidden.has(label) && !state.hiddenRuns.has(run));
      }
      const clip = this.shape("clipPath", { id: `clip-${this.name}` }, [
        this.shape("rect", { x: left - 1, y: top - 2, width: right - left + 4, height: bottom - top + 4 }),
      ]);
      const inside = this.shape("g", { "clip-path": `url(#clip-${this.name})` });
      inside.append(...this.marks(), ...curves.flatMap((curve) => this.curve(curve)));
      this.svg.replaceChildren(clip, ...this.axes(), inside, this.over);
      if (this.pointed) this.point(this.pointed);
      else this.over.replaceChildren();
    }

    axes() {
      const { left, right, bottom, height, em, x, y, range } = this.plot;
      const path = (kind, d) => this.shape("path", { class: kind, d });
      const text = (kind, at, line, label) => this.shape("text", { class: kind, x: at, y: line }, label);
      const parts = y.ticks.flatMap(({ value, label }) => {
        const at = y.at(value);
        return [path("grid", `M${left} ${at}H${right}`), text("y", left - 7, at + em / 3, label)];
      });
      const maxTicks = Math.max(2, Math.floor((right - left) / (6 * em)));
      const step = Math.max(1, roundStep((range[1] - range[0]) / maxTicks));
      const ticks = x.isLog ? logTicks(range[0], range[1], 2 * maxTicks) : linearTicks(range[0], range[1], step);
      for (const { value, label } of ticks) {
        const at = x.at(value), most = right + em - 0.32 * em * label.length;
        parts.push(path("axis", `M${at} ${bottom}v4`), text("x", Math.min(at, most), bottom + 1.4 * em, label));
      }
      parts.push(path("axis", `M${left} ${bottom}H${right}`));
      parts.push(text("label", right, height - 3, x.isLog ? "iteration, logarithmic" : "iteration"));
      const kind = [y.unit.name, y.isLog ? "logarithmic" : ""].filter(Boolean).join(", ");
      if (kind) parts.push(text("label start", 2, height - 3, kind));
      return parts;
    }

    marks() {
      const { top, bottom, x, range } = this.plot;
      const isInside = (mark) => mark.x >= range[0] && mark.x <= range[1];
      const begins = this.begins.filter(isInside).map((mark) =>
        this.shape("path", { class: `life ${mark.style}`, d: `M${x.at(mark.x)} ${top}V${bottom}` }));
      const skipped = this.skipped.filter(isInside).map((mark) =>
        this.shape("path", { class: `skip ${mark.style}`, d: `M${x.at(mark.x) - 3} ${bottom - 8}l6 6m0 -6l-6 6` }));
      return [...begins, ...skipped];
    }

    // Draws a curve: the columns of one pixel are one point, with their mean and range.
    curve(curve) {
      const { x, y, top, range } = this.plot;
      const { from, columns } = this.visible(curve, range);
      const { smooth } = curve;
      const pieces = [], gaps = [];
      let point = null;
      columns.forEach((column, i) => {
        if (column.bad > 0) gaps.push(x.at(column.x));
        const isDrawn = column.count > 0 && !(y.isLog && column.mean <= 0) && !(x.isLog && column.x <= 0);
        if (column.bad > 0 || !isDrawn) point = null;
        if (!isDrawn) return;
        const at = x.at(column.x), pixel = Math.floor(at);
        if (point === null) pieces.push([]);
        if (point === null || point.pixel !== pixel) {
          point = { pixel, at, sum: 0, count: 0, min: Infinity, max: -Infinity, smooth: NaN };
          pieces.at(-1).push(point);
        }
        point.sum += column.count * column.mean;
        point.count += column.count;
        point.min = Math.min(point.min, column.min);
        point.max = Math.max(point.max, column.max);
        point.smooth = smooth ? smooth[from + i] : NaN;
      });
      const height = (value) => y.at(value / y.unit.size).toFixed(1);
      const pathOf = (points, value) => points.map((p) => `${p.at.toFixed(1)} ${height(value(p))}`).join("L");
      const lines = (value) => pieces.map((piece) => "M" + pathOf(piece, value)).join("");
      const bands = pieces.filter((piece) => piece.some(({ min, max }) => min < max))
        .map((piece) => `M${pathOf(piece, (p) => p.max)}L${pathOf([...piece].reverse(), (p) => p.min)}Z`).join("");
      const colour = `c${curve.style % 8}`, dashes = `d${curve.style % 5}`;
      const add = (kind, d) => (d ? [this.shape("path", { class: kind, d })] : []);
      const mean = lines((p) => p.sum / p.count);
      const parts = smooth
        ? [...add(`line raw ${colour}`, mean), ...add(`line ${colour} ${dashes}`, lines((p) => p.smooth))]
        : [...add(`band ${colour}`, bands), ...add(`line ${colour} ${dashes}`, mean)];
      for (const at of gaps) parts.push(...add(`warn ${colour}`, `M${at} ${top + 7}l4 -7h-8z`));
      const points = pieces.filter((piece) => curve.markers || piece.length === 1).flat();
      for (const p of points) {
        parts.push(this.shape("circle", { class: colour, cx: p.at, cy: height(p.sum / p.count), r: 3 }));
      }
      return parts;
    }

    valueText(value) {
      const { unit } = this.plot.y;
      return shortNumber(value / unit.size) + (unit.name ? ` ${unit.name}` : "");
    }

    // Returns the column of each visible curve that is nearest to an iteration, and the nearest of all.
    nearest(iteration) {
      const [first, last] = this.plot.range;
      const found = [];
      for (const curve of this.shown()) {
        const at = lowerBound(curve.columns, iteration);
        const near = [at - 1, at].filter((i) => curve.columns[i]?.last >= first && curve.columns[i]?.first <= last);
        if (near.length === 0) continue;
        const distance = (i) => Math.abs(curve.columns[i].x - iteration);
        const index = near.reduce((best, i) => (distance(i) < distance(best) ? i : best));
        found.push({ curve, index, column: curve.columns[index], distance: distance(index) });
      }
      const anchor = found.reduce((best, near) => (!best || near.distance < best.distance ? near : best), null);
      return { found, anchor };
    }

    // Marks the values at an iteration. `at` is its point in the picture; other figures get the line alone.
    point(pointed) {
      this.pointed = pointed;
      const { x, y, top, bottom } = this.plot;
      const parts = [];
      this.tip.hidden = true;
      if (this.drag?.box) parts.push(this.shape("rect", { class: "select", ...this.drag.box }));
      const isInside = pointed && pointed.iteration >= this.plot.range[0] && pointed.iteration <= this.plot.range[1];
      const { found, anchor } = isInside ? this.nearest(pointed.iteration) : { found: [] };
      if (anchor) {
        const line = x.at(anchor.column.x);
        parts.push(this.shape("path", { class: "cross", d: `M${line} ${top}V${bottom}` }));
        const rows = found.map(({ curve, index, column }) => {
          const isSmooth = curve.smooth && column.count > 0;
          const value = isSmooth ? curve.smooth[index] : column.mean;
          const height = y.at(value / y.unit.size);
          if (column.count > 0 && height <= bottom + 1 && height >= top - 1) {
            parts.push(this.shape("circle", { class: `dot c${curve.style % 8}`, cx: x.at(column.x), cy: height, r: 4 }));
          }
          const details = [];
          if (isSmooth) details.push(`not smoothed ${this.valueText(column.mean)}`);
          if (column.min < column.max) details.push(`${this.valueText(column.min)} to ${this.valueText(column.max)}`);
          if (column.bad > 0 && column.count > 0) details.push(`${column.bad} not finite`);
          if (column.first !== anchor.column.first || column.last !== anchor.column.last) details.push(iterationsOf(column));
          return { curve, height, value: column.count > 0 ? this.valueText(value) : "not finite", details: details.join(", ") };
        });
        const near = [...this.begins, ...this.skipped].filter((mark) => Math.abs(x.at(mark.x) - line) <= 4);
        if (!pointed.isGuest) this.showTip(pointed, line, anchor.column, rows, near);
      }
      this.over.replaceChildren(...parts);
    }

    showTip(pointed, line, column, rows, marks) {
      const most = 14;
      const height = pointed.height ?? 0;
      const sorted = [...rows].sort((a, b) => Math.abs(a.height - height) - Math.abs(b.height - height));
      const kept = rows.filter((row) => sorted.indexOf(row) < most);
      const swatch = ({ style }) =>
        this.shape("svg", { class: "swatch", viewBox: "0 0 34 10" },
          this.shape("path", { class: `line c${style % 8} d${style % 5}`, d: "M1 5H33" }));
      const lines = kept.map(({ curve, value, details }) =>
        make("tr", {}, [
          make("th", { scope: "row" }, this.curves.length > 1 ? [swatch(curve), " ", curve.label] : [swatch(curve)]),
          make("td", {}, [make("b", {}, value), ...(details ? [make("small", {}, details)] : [])]),
        ]));
      const more = rows.length > most ? [make("p", {}, `and ${rows.length - most} more`)] : [];
      const notes = marks.map(({ text }) => make("p", {}, text));
      this.tip.replaceChildren(make("p", {}, iterationsOf(column)), make("table", {}, lines), ...more, ...notes);
      this.tip.hidden = false;
      const frame = this.element.getBoundingClientRect(), box = this.svg.getBoundingClientRect();
      const scale = box.width / this.plot.width;
      const anchor = box.left - frame.left + line * scale, size = this.tip.offsetWidth;
      const fits = anchor + 14 + size <= frame.width;
      const place = fits ? anchor + 14 : anchor - 14 - size;
      this.tip.style.left = `${Math.max(4, Math.min(place, frame.width - size - 4))}px`;
      this.tip.style.top = `${box.top - frame.top + this.plot.top}px`;
      if (pointed.isSpoken) {
        const values = rows.map(({ curve, value }) => (this.curves.length > 1 ? `${curve.label}: ${value}` : value));
        this.spoken.textContent = [iterationsOf(column), ...values, ...marks.map(({ text }) => text)].join("; ");
      }
    }

    // Marks an iteration in all figures; null ends it.
    pointAll(pointed) {
      for (const figure of figures) figure.point(figure === this ? pointed : pointed && { ...pointed, isGuest: true });
    }

    listen() {
      const { svg } = this;
      const placeOf = (event) => {
        const box = svg.getBoundingClientRect();
        const { left, right, top, bottom, width } = this.plot;
        const scale = width / box.width;
        return {
          x: Math.min(right, Math.max(left, (event.clientX - box.left) * scale)),
          y: Math.min(bottom, Math.max(top, (event.clientY - box.top) * scale)),
        };
      };
      const pointAt = ({ x, y }) => {
        const [first, last] = this.plot.range;
        this.pointAll({ iteration: Math.min(last, Math.max(first, this.plot.x.value(x))), height: y });
      };
      svg.addEventListener("pointermove", (event) => {
        const place = placeOf(event);
        if (this.drag) this.drag.box = this.boxOf(this.drag.from, place);
        pointAt(place);
      });
      // A finger leaves at the end of a tap: its values stay until the next one.
      svg.addEventListener("pointerleave", (event) => this.drag || event.pointerType === "touch" || this.pointAll(null));
      svg.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        const from = placeOf(event);
        this.drag = { from, box: null };
        svg.setPointerCapture(event.pointerId);
        pointAt(from);
      });
      svg.addEventListener("pointerup", (event) => {
        const box = this.drag?.box;
        this.drag = null;
        if (box) this.zoomInto(box);
        pointAt(placeOf(event));
      });
      svg.addEventListener("pointercancel", () => this.cancel());
      svg.addEventListener("dblclick", () => this.zoom(null, null));
      svg.addEventListener("blur", () => this.pointAll(null));
      svg.addEventListener("keydown", (event) => this.key(event));
    }

    cancel() {
      this.drag = null;
      this.pointAll(null);
    }

    // Returns the selected box of a drag: of full height if it is mostly horizontal; null for a click.
    boxOf(from, to) {
      const { top, bottom } = this.plot;
      const width = Math.abs(to.x - from.x), height = Math.abs(to.y - from.y);
      if (width < 5) return null;
      const x = Math.min(from.x, to.x);
      if (height < 30) return { x, width, y: top, height: bottom - top, isFull: true };
      return { x, width, y: Math.min(from.y, to.y), height };
    }

    zoomInto(box) {
      const { x, y } = this.plot;
      const first = Math.floor(x.value(box.x) + 0.5), last = Math.floor(x.value(box.x + box.width) + 0.5);
      const values = [y.value(box.y + box.height), y.value(box.y)].map((value) => value * y.unit.size);
      this.zoom([first, Math.max(last, first + 1)], box.isFull ? null : values);
    }

    key(event) {
      const [first, last] = this.plot.range;
      const places = () => {
        const inside = this.shown().flatMap(({ columns }) => columns.map(({ x }) => x)).filter((x) => x >= first && x <= last);
        return [...new Set(inside)].sort((a, b) => a - b);
      };
      const current = this.pointed?.iteration;
      const move = (step) => {
        const all = places();
        if (all.length === 0) return;
        const near = all.reduce((best, x, i) => (Math.abs(x - current) < Math.abs(all[best] - current) ? i : best), 0);
        const next = current === undefined ? (step > 0 ? 0 : all.length - 1) : near + step;
        const iteration = all[Math.max(0, Math.min(all.length - 1, next))];
        this.pointAll({ iteration, isSpoken: true });
      };
      const zoomBy = (factor) => {
        const centre = current ?? (first + last) / 2, half = ((last - first) * factor) / 2;
        const range = [Math.max(this.extent[0], Math.round(centre - half)), Math.min(this.extent[1], Math.round(centre + half))];
        const isAll = range[0] <= this.extent[0] && range[1] >= this.extent[1];
        this.zoom(isAll ? null : [range[0], Math.max(range[1], range[0] + 1)], null);
      };
      const stride = event.shiftKey ? 10 : 1;
      const actions = {
        ArrowRight: () => move(stride),
        ArrowLeft: () => move(-stride),
        Home: () => move(-Infinity),
        End: () => move(Infinity),
        "+": () => zoomBy(0.5),
        "=": () => zoomBy(0.5),
        "-": () => zoomBy(2),
        0: () => this.zoom(null, null),
        Escape: () => this.cancel(),
      };
      if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[event.key]();
    }
  }

  // ---- controls of all figures

  let refreshControls = () => {};

  const addControls = () => {
    const output = make("output", { id: "smoothing-text", for: "smoothing" });
    const slider = make("input", { type: "range", id: "smoothing", min: 0, max: 100, value: 0 });
    const box = (id, text, isChecked, action) => {
      const input = make("input", { type: "checkbox", id });
      input.checked = isChecked;
      input.onchange = () => action(input.checked);
      return make("span", { class: "control" }, [input, make("label", { for: id }, text)]);
    };
    const reset = make("button", { type: "button", id: "reset" }, "Reset zoom");
    reset.onclick = () => {
      state.range = null;
      for (const settings of state.settings.values()) settings.range = settings.values = null;
      refreshControls();
      drawAll();
    };
    slider.oninput = () => {
      state.smoothing = Number(slider.value);
      refreshControls();
      drawAll();
    };
    refreshControls = () => {
      const span = smoothingSpan();
      const text = span === 0 ? "off" : `${shortNumber(span, 2)} iterations`;
      output.textContent = text;
      slider.setAttribute("aria-valuetext", text);
      reset.disabled = !state.range && ![...state.settings.values()].some(({ range, values }) => range || values);
    };
    const bar = make("div", { class: "controls", role: "group", "aria-label": "All figures" }, [
      make("span", { class: "control" }, [make("label", { for: "smoothing" }, "Smoothing"), slider, output]),
      box("log-x", "Log x", false, (isChecked) => {
        state.logX = isChecked;
        drawAll();
      }),
      box("linked", "Zoom all figures", true, (isChecked) => {
        for (const settings of state.settings.values()) settings.range = state.linked ? state.range : null;
        state.linked = isChecked;
        state.range = null;
        refreshControls();
        drawAll();
      }),
      reset,
    ]);
    document.querySelector("header").after(bar);
  };

  // Makes the swatches of the list of runs buttons that hide a run in all figures.
  const addRunKeys = () => {
    for (const item of document.querySelectorAll(".legend.runs > li")) {
      const run = Number(item.dataset.run), name = item.textContent.trim();
      const key = make("button", { type: "button", class: "key", title: "Hide or show this run", "aria-label": name });
      key.setAttribute("aria-pressed", !state.hiddenRuns.has(run));
      key.append(item.querySelector("svg"));
      key.onclick = () => {
        if (!state.hiddenRuns.delete(run)) state.hiddenRuns.add(run);
        key.setAttribute("aria-pressed", !state.hiddenRuns.has(run));
        drawAll();
      };
      item.prepend(key);
    }
  };

  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) figures.find(({ svg }) => svg === target)?.draw();
  });

  const addFigures = () => {
    observer.disconnect();
    figures = [...document.querySelectorAll("figure")].filter((element) => element.querySelector("svg[data-axis]"))
      .map((element) => new Figure(element));
    addRunKeys();
    for (const { svg } of figures) observer.observe(svg);
  };

  // ---- renewal of a page that is served

  const partsOf = (root) => new Map([...root.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
  const sources = new Map(); // markup of the parts without figures, as it was served

  // Replaces the content of a part; opened lists stay open, and the keyboard's place stays.
  const refill = (part, content) => {
    const opened = [...part.querySelectorAll("details")].map(({ open }) => open);
    const focusable = "a, summary, button";
    const place = [...part.querySelectorAll(focusable)].indexOf(document.activeElement);
    part.replaceChildren(...content);
    part.querySelectorAll("details").forEach((details, i) => (details.open = opened[i] ?? false));
    if (place >= 0) part.querySelectorAll(focusable)[place]?.focus({ preventScroll: true });
  };

  const isFigure = (part) => part.querySelector(":scope > svg[data-axis]") !== null;

  const replacePage = (next) => {
    const parts = partsOf(document), nextParts = partsOf(next);
    const kinds = (all) => [...all].map(([name, part]) => name + isFigure(part)).join();
    document.title = next.title;
    document.querySelector("h1").textContent = next.querySelector("h1").textContent;
    if (kinds(parts) !== kinds(nextParts)) {
      refill(document.querySelector("main"), next.querySelector("main").childNodes);
      remember(nextParts);
      addFigures();
    }
    for (const [name, part] of nextParts) {
      const current = parts.get(name);
      if (!current?.isConnected || sources.get(name) === part.innerHTML) continue;
      if (isFigure(part)) {
        figures.find((figure) => figure.name === name)?.load(part.querySelector("svg"), part.querySelector(".legend"));
      } else {
        sources.set(name, part.innerHTML);
        refill(current, part.childNodes);
      }
    }
    refreshControls();
    drawAll();
  };

  const remember = (parts) => {
    for (const [name, part] of parts) if (!isFigure(part)) sources.set(name, part.innerHTML);
  };

  const follow = (seconds) => {
    let tag = null, isPaused = false;
    const status = make("span", { class: "live", role: "status" }, "live");
    const pause = make("button", { type: "button", id: "pause", "aria-pressed": "false" }, "Pause");
    const show = (kind, text) => {
      status.className = `live ${kind}`;
      if (status.textContent !== text) status.textContent = text;
    };
    pause.onclick = () => {
      isPaused = !isPaused;
      pause.setAttribute("aria-pressed", isPaused);
      show(isPaused ? "paused" : "", isPaused ? "paused" : "live");
    };
    document.querySelector(".controls").append(make("span", { class: "control" }, [status, pause]));
    const renew = async () => {
      const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 304 || isPaused) return;
      tag = answer.headers.get("ETag");
      replacePage(new DOMParser().parseFromString(await answer.text(), "text/html"));
    };
    const tick = async () => {
      if (!isPaused && !document.hidden) {
        await renew().then(() => isPaused || show("", "live"), () => show("lost", "no answer, trying again"));
      }
      setTimeout(tick, 1000 * seconds);
    };
    setTimeout(tick, 1000 * seconds);
  };

  remember(partsOf(document));
  addControls();
  addFigures();
  refreshControls();
  addEventListener("beforeprint", () => figures.forEach((figure) => {
    figure.svg.classList.remove("drawn");
    figure.draw(figure.element.classList.contains("lead") ? { width: 800, height: 340, em: 13 } : { width: 560, height: 254, em: 17 });
  }));
  addEventListener("afterprint", () => figures.forEach((figure) => {
    figure.svg.classList.add("drawn");
    figure.draw();
  }));
  if (document.body.dataset.renewal > 0) follow(Number(document.body.dataset.renewal));
})();
