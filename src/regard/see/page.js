
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const DATA = JSON.parse($("data").textContent);
  const root = document.documentElement;
  // Even steps in lightness, from the paper to the ink and from the night to the light.
  const RAMPS = {
    light: ["#f4f6fa", "#d3e3f0", "#9fcbe1", "#5fabcb", "#3085b6", "#275c9b", "#28367a", "#1d1748"],
    dark: ["#121824", "#182a4d", "#1d4678", "#23689a", "#308fb0", "#57b7b5", "#9adcb4", "#f0f9c4"],
  };
  const MEAN = -1;
  const seen = { view: 0, layer: 0, head: MEAN, mode: "lines", theme: "", pick: null, kept: false };

  // ---- numbers -------------------------------------------------------------------------------------------------

  const view = () => DATA.views[seen.view];
  const layer = () => view().layers[seen.layer];
  const decoded = new WeakMap();

  function heads(l) {                       // one Float32Array of N M for each head, read from the bytes once
    if (!decoded.has(l)) {
      const text = atob(l.bytes), n = DATA.names[l.rows].length, m = DATA.names[l.columns].length, size = n * m;
      decoded.set(l, l.peaks.map((peak, h) => {
        const w = new Float32Array(size);
        for (let k = 0; k < size; k++) {
          const s = (text.charCodeAt(h * size + k) - l.zero) / (255 - l.zero);
          w[k] = peak * s * Math.abs(s);
        }
        return w;
      }));
    }
    return decoded.get(l);
  }

  function average(arrays) {
    const out = new Float32Array(arrays[0].length);
    for (const a of arrays) for (let k = 0; k < out.length; k++) out[k] += a[k] / arrays.length;
    return out;
  }

  function map(l, head) {                   // everything drawn comes from here
    const all = heads(l), rows = DATA.names[l.rows], columns = DATA.names[l.columns];
    const w = head === MEAN ? average(all) : all[head];
    const told = l.sums && (head === MEAN ? average(l.sums) : l.sums[head]);
    const sums = told || rows.map(() => 1);
    let peak = 0, least = 0;
    for (const x of w) { if (x > peak) peak = x; if (x < least) least = x; }
    return { w, rows, columns, n: rows.length, m: columns.length, sums, peak: Math.max(peak, -least) || 1, gaps: sums.some(isGap) };
  }
  let now = null;

  const isGap = (sum) => Math.abs(1 - sum) > 0.005;
  function percent(x) {
    const p = 100 * x;
    return (Math.abs(p) >= 9.95 ? p.toFixed(0) : Math.abs(p) >= 0.05 ? p.toFixed(1) : p ? "<0.1" : "0") + " %";
  }
  const gapText = (sum) => sum < 1 ? percent(1 - sum) + " missing" : "row sums to " + sum.toFixed(2);

  // ---- colours -------------------------------------------------------------------------------------------------

  const dark = () => root.dataset.theme === "dark";
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const tables = {};
  function table() {                        // 256 colours, r g b
    const key = dark() ? "dark" : "light";
    if (!tables[key]) {
      const stops = RAMPS[key].map((c) => [1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16)));
      tables[key] = Array.from({ length: 256 }, (_, k) => {
        const x = (k / 255) * (stops.length - 1), a = Math.min(Math.floor(x), stops.length - 2), t = x - a;
        return stops[a].map((v, c) => Math.round(v + (stops[a + 1][c] - v) * t));
      });
    }
    return tables[key];
  }
  const shade = (x) => table()[Math.max(0, Math.min(255, Math.round(255 * Math.sqrt(Math.abs(x)))))];
  function picture(w, n, m, peak) {         // one pixel a cell
    const canvas = document.createElement("canvas");
    canvas.width = m; canvas.height = n;
    const context = canvas.getContext("2d"), image = context.createImageData(m, n);
    for (let k = 0; k < n * m; k++) {
      const c = shade(w[k] / peak);
      image.data[4 * k] = c[0]; image.data[4 * k + 1] = c[1]; image.data[4 * k + 2] = c[2]; image.data[4 * k + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  // ---- choosing ------------------------------------------------------------------------------------------------

  function element(tag, text, name) {       // text only, never markup
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (name) e.className = name;
    return e;
  }

  function group(box, items, chosen, choose) {       // buttons of which one is on; arrows move
    const held = box.contains(document.activeElement);
    const across = box.scrollLeft;
    const buttons = items.map((item, k) => {
      const b = element("button");
      b.type = "button";
      if (item.thumb) b.append(item.thumb);
      b.append(element("span", item.text));
      if (item.title) b.title = item.title;
      b.setAttribute("role", "radio");
      b.setAttribute("aria-checked", String(item.value === chosen));
      b.tabIndex = item.value === chosen ? 0 : -1;
      b.addEventListener("click", () => choose(item.value));
      b.addEventListener("keydown", (e) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
        if (!step) return;
        e.preventDefault();
        choose(items[(k + step + items.length) % items.length].value);
      });
      return b;
    });
    const lines = new Map();                // buttons of one kind stand in one line, after its name
    items.forEach((item, k) => {
      const kind = item.kind || "";
      if (!lines.has(kind)) { lines.set(kind, element("div", undefined, "line")); if (kind) lines.get(kind).append(element("span", kind, "lead")); }
      lines.get(kind).append(buttons[k]);
    });
    box.replaceChildren(...lines.values());
    box.scrollLeft = across;
    const on = box.querySelector("[aria-checked=true]");
    if (held && on) on.focus();
  }

  function show(change) {                   // the one place where the choice changes
    Object.assign(seen, change);
    if ("view" in change) { seen.layer = view().layers.length - 1; seen.head = NaN; }
    seen.layer = Math.max(0, Math.min(seen.layer, view().layers.length - 1));
    const l = layer();
    if (!(seen.head < l.heads.length && seen.head >= (l.mean ? MEAN : 0))) seen.head = l.mean ? MEAN : 0;
    if (!("theme" in change)) { seen.pick = null; seen.kept = false; }
    now = map(l, seen.head);
    remember();
    controls(l);
    stage(l);
  }

  function controls(l) {
    group($("views"), DATA.views.map((v, k) => ({ text: v.title, value: k })), seen.view, (view) => show({ view }));
    group($("modes"), [{ text: "Lines", value: "lines" }, { text: "Matrix", value: "matrix" }], seen.mode, (mode) => show({ mode }));
    group($("layers"), view().layers.map((x, k) => ({ text: x.label, value: k, title: x.name, kind: x.group })), seen.layer, (layer) => show({ layer }));
    const picks = l.heads.map((text, k) => ({ text, value: k }));
    if (l.mean) picks.unshift({ text: "mean", value: MEAN });
    for (const item of picks) {
      const { w, n, m, peak } = map(l, item.value);
      item.thumb = picture(w, n, m, peak);
    }
    group($("heads"), picks, seen.head, (head) => show({ head }));
    $("head-tag").textContent = view().id === "rollout" ? "heads" : "head";
    $("says").textContent = view().says;
    const which = seen.head === MEAN ? "mean of " + l.heads.length + " heads" : l.mean || l.heads.length === 1 ? "head " + l.heads[seen.head] : l.heads[seen.head] + " of heads";
    $("caption").textContent = l.name + " · " + which + " · " + now.n + " × " + now.m + (l.exact ? "" : " · approximate: rows and columns are receptive fields");
  }

  function stage(l) {
    $("lines").hidden = seen.mode !== "lines";
    $("matrix").hidden = seen.mode !== "matrix";
    const [left, verb, right] = view().sides;
    $("looks").textContent = left;
    $("at").textContent = (verb + " " + right).trim();
    if (seen.mode === "lines") words(); else $("cells").setAttribute("aria-label", l.name + ", matrix of " + now.n + " rows and " + now.m + " columns; arrow keys move from cell to cell");
    draw();
    tell();
  }

  // pick: { i } a row, { j } a column, { i, j } a cell
  function pick(p, keep) {
    const same = (a, b) => a && b && a.i === b.i && a.j === b.j;
    if (keep) {
      seen.kept = !(seen.kept && same(seen.pick, p));
      seen.pick = p;
    } else {
      if (seen.kept || same(seen.pick, p)) return;
      seen.pick = p;
    }
    soon();
    tell();
  }

  // ---- lines ---------------------------------------------------------------------------------------------------

  function words() {
    const side = (box, names, key) => {
      box.replaceChildren(...names.map((text, k) => {
        const b = element("button", undefined, "word");
        b.type = "button";
        b.setAttribute("role", "option");
        b.tabIndex = k ? -1 : 0;
        const word = element("b", text);
        word.dir = "auto";
        b.append(word, element("i"));
        if (text.length > 14) b.title = text;
        if (key === "i" && isGap(now.sums[k])) {
          const gap = element("i", now.sums[k] < 1 ? percent(1 - now.sums[k]) : "Σ " + now.sums[k].toFixed(2), "gap");
          if (now.sums[k] < 1) gap.append(element("span", " missing"));
          gap.title = gapText(now.sums[k]);
          b.append(gap);
        }
        b.addEventListener("mouseenter", () => pick({ [key]: k }));
        b.addEventListener("mouseleave", () => pick(null));
        b.addEventListener("focus", () => { if (b.matches(":focus-visible")) pick({ [key]: k }); });
        b.addEventListener("click", () => pick({ [key]: k }, true));
        b.addEventListener("keydown", (e) => {
          const step = { ArrowDown: 1, ArrowUp: -1, Home: -1e9, End: 1e9 }[e.key];
          const other = e.key === "ArrowRight" && key === "i" ? $("right") : e.key === "ArrowLeft" && key === "j" ? $("left") : null;
          if (!step && !other) return;
          e.preventDefault();
          const to = other || box, last = to.children.length - 1;
          const next = to.children[Math.max(0, Math.min(last, other ? k : k + step))];
          seen.kept = false;
          for (const x of to.children) x.tabIndex = -1;
          next.tabIndex = 0;
          next.focus();
        });
        return b;
      }));
    };
    side($("left"), now.rows, "i");
    side($("right"), now.columns, "j");
  }

  function strongest() {                    // the cells worth a line, at most 5000 of them, found once for each map
    if (!now.strong) {
      const { w, peak } = now, size = (k) => Math.abs(w[k]);
      now.strong = [...w.keys()].filter((k) => size(k) > peak * .03);
      if (now.strong.length > 5000) now.strong = now.strong.sort((a, b) => size(b) - size(a)).slice(0, 5000);
    }
    return now.strong;
  }

  function drawLines() {
    const { w, n, m, peak } = now, p = seen.pick, canvas = $("strokes");
    const high = Math.max(n, m) * 28, wide = canvas.parentElement ? canvas.getBoundingClientRect().width : 0;
    if (!wide) return;
    const scale = Math.min(window.devicePixelRatio || 1, 8000 / high, Math.sqrt(12e6 / (wide * high)));
    canvas.width = Math.round(wide * scale); canvas.height = Math.round(high * scale);
    canvas.style.height = high + "px";
    const c = canvas.getContext("2d"), blue = style("--blue"), orange = style("--orange");
    c.scale(scale, scale);
    c.lineCap = "butt";
    const stroke = (i, j, colour, alpha, width) => {
      const y = i * 28 + 14, z = j * 28 + 14;
      c.globalAlpha = alpha; c.strokeStyle = colour; c.lineWidth = width;
      c.beginPath(); c.moveTo(0, y); c.bezierCurveTo(wide * .45, y, wide * .55, z, wide, z); c.stroke();
    };
    for (const k of strongest()) {
      const x = Math.abs(w[k]) / peak;
      stroke(Math.floor(k / m), k % m, blue, p ? .07 * x : .06 + .84 * Math.pow(x, 1.3), .75 + 2.6 * x);
    }
    if (p) {
      const one = p.i !== undefined ? now.columns.map((_, j) => [p.i, j]) : now.rows.map((_, i) => [i, p.j]);
      const most = Math.max(...one.map(([i, j]) => Math.abs(w[i * m + j]))) || 1;
      for (const [i, j] of one) {
        const v = w[i * m + j], x = Math.abs(v) / most;
        if (x > .01) stroke(i, j, v < 0 || p.i === undefined ? orange : blue, .12 + .85 * x, .75 + 4.5 * Math.sqrt(x) * Math.min(1, .35 + Math.abs(v)));
      }
    }
    const mark = (box, key, heat) => [...box.children].forEach((b, k) => {
      const x = heat ? heat(k) : 0;
      b.classList.toggle("lit", !!p && p[key] === k);
      b.classList.toggle("warm", Math.abs(x) > .02);
      b.setAttribute("aria-selected", String(!!p && p[key] === k));
      b.style.setProperty("--heat", Math.min(1, Math.abs(x)).toFixed(3));
      b.style.setProperty("--tint", p && p.i === undefined ? "var(--orange)" : "var(--blue)");
      b.children[1].textContent = heat && Math.abs(x) >= .005 ? percent(x) : "";
    });
    $("lines").classList.toggle("dim", !!p);
    mark($("left"), "i", p && p.i === undefined ? (i) => w[i * m + p.j] : null);
    mark($("right"), "j", p && p.i !== undefined ? (j) => w[p.i * m + j] : null);
  }

  // ---- matrix --------------------------------------------------------------------------------------------------

  const ELSEWHERE = "missing";
  let plan = null, base = null;

  function lay() {                          // where cells and labels stand, in CSS pixels
    const { n, m, rows, columns, gaps } = now, room = $("matrix").clientWidth || 300, small = room < 480;
    const c = $("cells").getContext("2d"), font = (small ? 12 : 13) + "px " + getComputedStyle(document.body).fontFamily;
    c.font = font;
    const widest = (names, most) => Math.min(most, 10 + Math.max(...names.map((t) => c.measureText(t).width)));
    const left = Math.ceil(widest(rows, small ? 84 : 150)), extra = gaps ? 1.5 : 0;
    const fit = (room - left - 30) / (m + extra);
    const tall = Math.max(26, (.84 * window.innerHeight - 150) / n);   // all rows on one screen where that keeps them legible
    const cell = Math.max(Math.min(fit, tall, 46), m > 120 ? 3 : m > 50 ? 9 : 15);
    const slant = cell < 12 ? 1 : .74;      // crowded labels stand upright
    const names = widest(gaps ? columns.concat(ELSEWHERE) : columns, small ? 84 : 130);
    const top = Math.ceil(names * slant) + 12, lean = slant < 1 ? Math.max(0, names * .7 - cell) : 0;
    const width = left + cell * (m + extra) + lean + 4;
    return { left, top, cell, font, slant, width, height: top + cell * n + 4, room: left + cell * (m + extra) };
  }

  function drawMatrix() {
    const { w, n, m, rows, columns, peak, sums, gaps } = now, p = seen.pick, canvas = $("cells");
    plan = lay();
    const { left, top, cell, slant } = plan;
    const scale = Math.min(window.devicePixelRatio || 1, 8000 / Math.max(plan.width, plan.height), Math.sqrt(14e6 / (plan.width * plan.height)));
    canvas.width = Math.round(plan.width * scale); canvas.height = Math.round(plan.height * scale);
    canvas.style.width = plan.width + "px"; canvas.style.height = plan.height + "px";
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    const ink = style("--ink"), quiet = style("--quiet"), card = style("--card"), blue = style("--blue"), orange = style("--orange");
    c.imageSmoothingEnabled = false;
    if (!base || base.of !== now || base.dark !== dark()) base = { of: now, dark: dark(), image: picture(w, n, m, peak) };
    c.drawImage(base.image, left, top, cell * m, cell * n);
    if (cell >= 12) {                       // thin gaps make cells countable
      c.strokeStyle = card; c.lineWidth = 1; c.beginPath();
      for (let j = 0; j <= m; j++) { c.moveTo(left + j * cell, top); c.lineTo(left + j * cell, top + n * cell); }
      for (let i = 0; i <= n; i++) { c.moveTo(left, top + i * cell); c.lineTo(left + m * cell, top + i * cell); }
      c.stroke();
    }
    const far = left + (m + .5) * cell;     // the column for what is missing
    if (gaps) for (let i = 0; i < n; i++) if (isGap(sums[i])) {
      c.fillStyle = orange; c.globalAlpha = .12 + .88 * Math.min(1, Math.abs(1 - sums[i]));
      c.fillRect(far, top + i * cell + .5, cell, Math.max(1, cell - 1));
      c.globalAlpha = 1;
    }
    if (cell >= 27) {
      c.textAlign = "center"; c.textBaseline = "middle"; c.font = plan.font.replace(/^\d+px/, "11px");
      for (let k = 0; k < n * m; k++) if (Math.abs(w[k]) >= .01) {
        const bright = Math.sqrt(Math.abs(w[k]) / peak);
        c.fillStyle = dark() ? (bright > .62 ? "#0b1320" : "#dfe6f2") : (bright > .57 ? "#ffffff" : "#1c2333");
        c.fillText((100 * w[k]).toFixed(0), left + (k % m + .5) * cell, top + (Math.floor(k / m) + .5) * cell);
      }
      if (gaps) sums.forEach((s, i) => { if (isGap(s)) { c.fillStyle = ink; c.fillText((100 * (1 - s)).toFixed(0), far + cell / 2, top + (i + .5) * cell); } });
    }
    const cut = (text, most) => {
      if (c.measureText(text).width <= most) return text;
      const letters = [...text];
      while (letters.length > 1 && c.measureText(letters.join("") + "…").width > most) letters.pop();
      return letters.join("") + "…";
    };
    const step = Math.max(1, Math.ceil(13 / cell)), lit = (k, at) => p && at === k;
    const name = (text, on, x, y, turn, most) => {
      c.save(); c.translate(x, y); c.rotate(turn);
      c.font = (on ? "700 " : "") + plan.font; c.fillStyle = on ? blue : p ? quiet : ink;
      if (on && step > 1) { c.globalAlpha = .92; const long = Math.min(most, c.measureText(text).width); c.fillStyle = card; c.fillRect(turn ? -2 : -long - 2, -8, long + 4, 16); c.globalAlpha = 1; c.fillStyle = blue; }
      c.textBaseline = "middle"; c.textAlign = turn ? "left" : "right";
      c.fillText(cut(text, most), 0, 0); c.restore();
    };
    const upright = slant === 1, turn = upright ? -Math.PI / 2 : -Math.PI / 4;
    const column = (j) => name(columns[j], lit(j, p && p.j), left + (j + .5) * cell + (upright ? 0 : 2), top - 6, turn, (top - 12) / slant);
    const row = (i) => name(rows[i], lit(i, p && p.i), left - 6, top + (i + .5) * cell, 0, left - 8);
    for (let j = 0; j < m; j += step) column(j);
    for (let i = 0; i < n; i += step) row(i);
    if (gaps) name(ELSEWHERE, false, far + cell / 2, top - 6, turn, (top - 12) / slant);
    if (p) {                                // the lit row and column
      c.strokeStyle = blue; c.lineWidth = 2;
      const frame = (x, y, width, height) => {
        if (cell >= 9) return c.strokeRect(x, y, width, height);
        c.globalAlpha = .4; c.fillStyle = blue; c.fillRect(x, y, width, height); c.globalAlpha = 1;
      };
      if (p.i !== undefined) { frame(left, top + p.i * cell, m * cell, cell); row(p.i); }
      if (p.j !== undefined) { frame(left + p.j * cell, top, cell, n * cell); column(p.j); }
    }
  }

  function where(e) {                       // the row, column or cell under the pointer
    const box = $("cells").getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    const j = Math.floor((x - plan.left) / plan.cell), i = Math.floor((y - plan.top) / plan.cell);
    const inRow = i >= 0 && i < now.n, inColumn = j >= 0 && j < now.m;
    if (inRow && inColumn) return { i, j };
    if (inRow) return { i };
    return inColumn && y < plan.top ? { j } : null;
  }
  $("cells").addEventListener("pointermove", (e) => pick(where(e)));
  $("cells").addEventListener("pointerleave", () => pick(null));
  $("cells").addEventListener("click", (e) => { const p = where(e); if (p) pick(p, true); });
  $("cells").addEventListener("keydown", (e) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[e.key];
    if (!step) return;
    e.preventDefault();
    const p = seen.pick || { i: 0, j: 0 }, hold = (x, most) => Math.max(0, Math.min(most - 1, x));
    seen.kept = false;
    pick(seen.pick ? { i: hold((p.i || 0) + step[0], now.n), j: hold((p.j || 0) + step[1], now.m) } : p);
    const box = $("matrix"), at = seen.pick, x = plan.left + at.j * plan.cell, y = plan.top + at.i * plan.cell;
    if (x + plan.cell > box.scrollLeft + box.clientWidth) box.scrollLeft = x + plan.cell - box.clientWidth;
    if (x - plan.left < box.scrollLeft) box.scrollLeft = x - plan.left;
    if (y + plan.cell > box.scrollTop + box.clientHeight) box.scrollTop = y + plan.cell - box.clientHeight;
    if (y - plan.top < box.scrollTop) box.scrollTop = y - plan.top;
  });

  // ---- telling -------------------------------------------------------------------------------------------------

  function tell() {                         // the numbers, in words
    const { w, n, m, rows, columns, sums, peak } = now, p = seen.pick, box = $("told"), parts = [];
    if (!p) {
      parts.push(element("p", seen.mode === "lines" ? "Point at a word to see its numbers." : "Point at a cell or a label to see its numbers."));
      const missing = sums.filter(isGap).length;
      if (missing) {
        const worst = sums.reduce((a, s) => Math.abs(1 - s) > Math.abs(1 - a) ? s : a, 1);
        parts.push(element("p", missing + " of " + n + " rows do not sum to one (at worst " + gapText(worst) + "): part of what these words look at is not shown here.", "gap"));
      }
      const legend = element("div"); legend.id = "legend";
      legend.style.background = "linear-gradient(90deg," + [0, 32, 64, 96, 128, 160, 192, 224, 255].map((k) => "rgb(" + table()[k].join(",") + ")").join(",") + ")";
      const ends = element("div", undefined, "ends");
      ends.append(element("span", "0"), element("span", percent(peak / 4)), element("span", percent(peak)));
      if (seen.mode === "matrix") parts.push(legend, ends);
    } else {
      const row = p.i !== undefined, cell = row && p.j !== undefined;
      const title = element("h2");
      const bold = (text) => { const e = element("span", text); e.dir = "auto"; return e; };
      if (cell) title.append(bold(rows[p.i]), element("em", " " + view().sides[1] + " "), bold(columns[p.j]), element("em", " " + percent(w[p.i * m + p.j])));
      else if (row) title.append(bold(rows[p.i]), element("em", " " + view().sides[1]));
      else title.append(bold(columns[p.j]), element("em", " " + view().sides[3]));
      parts.push(title);
      const all = row ? columns.map((text, j) => [text, w[p.i * m + j]]) : rows.map((text, i) => [text, w[i * m + p.j]]);
      const top = all.filter(([, x]) => Math.abs(x) >= .0005).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 8);
      const list = element("dl");
      if (!row) list.style.setProperty("--tint", "var(--orange)");
      for (const [text, x] of top) {
        const term = element("dt", text), rule = element("div", undefined, "rule"), bar = element("span");
        term.dir = "auto";
        bar.style.width = Math.min(100, 100 * Math.abs(x)) + "%";
        rule.append(bar);
        list.append(term, element("dd", percent(x)), rule);
      }
      parts.push(top.length ? list : element("p", row ? "Looks at nothing." : "Nothing looks here."));
      if (all.length > top.length && top.length) parts.push(element("p", (all.length - top.length) + " more" + (row ? ", together " + percent(Math.max(0, sums[p.i] - top.reduce((a, [, x]) => a + x, 0))) : "")));
      if (row && isGap(sums[p.i])) parts.push(element("p", gapText(sums[p.i]) + (sums[p.i] < 1 ? ": looked at what is not shown here" : ""), "gap"));
    }
    box.replaceChildren(...parts);
  }

  // ---- the rest ------------------------------------------------------------------------------------------------

  const draw = () => seen.mode === "lines" ? drawLines() : drawMatrix();
  let waiting = false;
  function soon() {                         // once a frame, however fast the pointer moves
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }

  function theme(choice) {                  // "": what the system likes
    seen.theme = choice;
    const liked = window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = choice || liked;
    $("theme").textContent = dark() ? "☀ Light" : "☾ Dark";
    $("theme").setAttribute("aria-label", dark() ? "Switch to light colours" : "Switch to dark colours");
  }

  function remember() {                     // the choice is in the address, so that a link shows the same picture
    const v = view(), parts = ["view=" + v.id, "layer=" + seen.layer, "head=" + (seen.head === MEAN ? "mean" : seen.head), "mode=" + seen.mode];
    if (seen.theme) parts.push("theme=" + seen.theme);
    try { history.replaceState(null, "", "#" + parts.join("&")); } catch (e) { /* a browser that forbids it loses only the link */ }
  }

  function recall() {
    const said = new URLSearchParams(location.hash.slice(1)), whole = (x) => /^\d{1,4}$/.test(x || "") ? Number(x) : NaN;
    theme(["dark", "light"].includes(said.get("theme")) ? said.get("theme") : "");
    const cross = DATA.views.findIndex((v) => v.id === "cross"), asked = DATA.views.findIndex((v) => v.id === said.get("view"));
    const narrow = said.get("mode") === "matrix" ? "matrix" : "lines";
    show({ view: asked >= 0 ? asked : Math.max(0, cross), mode: narrow });
    const change = {};
    if (!Number.isNaN(whole(said.get("layer")))) change.layer = whole(said.get("layer"));
    if (!Number.isNaN(whole(said.get("head")))) change.head = whole(said.get("head"));
    if (Object.keys(change).length) show(change);
    const row = whole(said.get("row")), column = whole(said.get("column"));
    if (row < now.n && column < now.m && seen.mode === "matrix") pick({ i: row, j: column }, true);
    else if (row < now.n) pick({ i: row }, true);
    else if (column < now.m) pick({ j: column }, true);
  }

  document.title = DATA.title;
  $("title").textContent = DATA.title;
  $("note").textContent = DATA.note;
  $("note").hidden = !DATA.note;
  $("theme").addEventListener("click", () => { theme(dark() ? "light" : "dark"); show({ theme: seen.theme }); });
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") { seen.kept = false; pick(null); } });
  $("app").hidden = false;
  recall();
  new ResizeObserver(soon).observe($("stage"));
})();
