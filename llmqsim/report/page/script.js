"use strict";
(() => {
  const all = (q, at = document) => [...at.querySelectorAll(q)];
  const number = v => {
    if (v === null || v === undefined || !isFinite(v)) return "–";
    const size = Math.abs(v);
    if (size !== 0 && size < 1e-4) return v.toExponential(1);
    return size >= 99.95 ? Math.round(v).toLocaleString("en-US") : String(Number(v.toPrecision(3)));
  };
  const shown = (v, unit) => {
    if (v === null || v === undefined) return "–";
    if (unit === "share") return number(100 * v) + " %";
    if (unit !== "s") return number(v) + (unit ? " " + unit : "");
    const size = Math.abs(v);
    return size >= 0.9995 || size === 0 ? number(v) + " s" : size >= 0.9995e-3 ? number(v * 1e3) + " ms" : number(v * 1e6) + " µs";
  };

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.area = figure.querySelector(".area");
      this.read = figure.querySelector(".read");
      this.svg = this.area.querySelector("svg");
      this.xs = figure.querySelector(".xs");
      Object.assign(this, JSON.parse(figure.querySelector("script").textContent));
      this.u = this.x.map(v => this.place(v));
      this.view = [0, 1];
      this.at = -1;
      this.cursor = document.createElement("div");
      this.cursor.className = "cursor";
      this.cursor.hidden = true;
      this.area.append(this.cursor);
      this.listen();
    }
    place(v) {
      const [low, high] = this.range.map(r => this.log ? Math.log10(r) : r);
      return ((this.log ? Math.log10(v) : v) - low) / (high - low);
    }
    value(u) {
      const [low, high] = this.range.map(r => this.log ? Math.log10(r) : r);
      const v = low + u * (high - low);
      return this.log ? 10 ** v : v;
    }
    listen() {
      const where = e => {
        const box = this.area.getBoundingClientRect();
        return [Math.min(1, Math.max(0, (e.clientX - box.left) / box.width)), (e.clientY - box.top) / box.height];
      };
      const inside = f => this.view[0] + f * (this.view[1] - this.view[0]);
      let from = null, pick = null;
      this.area.addEventListener("pointerdown", e => { from = where(e)[0]; });
      this.area.addEventListener("pointermove", e => {
        const [fx, fy] = where(e);
        this.show(this.nearest(inside(fx), fy));
        if (from === null || e.buttons === 0 || !this.zoomable) return;
        if (!pick) { pick = document.createElement("div"); pick.className = "pick"; this.area.append(pick); }
        pick.style.left = 100 * Math.min(from, fx) + "%";
        pick.style.width = 100 * Math.abs(fx - from) + "%";
      });
      const drop = e => {
        const fx = where(e)[0];
        if (pick && Math.abs(fx - from) > 0.02) this.zoom(inside(Math.min(from, fx)), inside(Math.max(from, fx)));
        if (pick) pick.remove();
        from = pick = null;
      };
      this.area.addEventListener("pointerup", drop);
      this.area.addEventListener("pointerleave", e => { drop(e); if (document.activeElement !== this.area) this.show(-1); });
      this.area.addEventListener("dblclick", () => this.zoom(0, 1));
      this.area.addEventListener("blur", () => this.show(-1));
      this.area.addEventListener("keydown", e => {
        const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[e.key];
        const [a, b] = this.view, middle = this.at < 0 ? (a + b) / 2 : this.u[this.at], half = (b - a) / 2;
        if (step) this.show(Math.min(this.x.length - 1, Math.max(0, this.at + step)));
        else if (e.key === "Home") this.show(0);
        else if (e.key === "End") this.show(this.x.length - 1);
        else if (e.key === "+" || e.key === "=") this.zoom(middle - half / 2, middle + half / 2);
        else if (e.key === "-") this.zoom(middle - half * 2, middle + half * 2);
        else if (e.key === "0" || e.key === "Escape") this.zoom(0, 1);
        else return;
        e.preventDefault();
      });
      const tools = this.figure.querySelector(".tools");
      if (!tools) return;
      tools.hidden = false;
      tools.querySelector(".values").addEventListener("click", e => this.table(e.currentTarget));
      const reset = tools.querySelector(".reset");
      if (reset) reset.addEventListener("click", () => this.zoom(0, 1));
    }
    nearest(u, fy) {
      let best = -1, least = Infinity;
      for (let i = 0; i < this.u.length; i++) {
        if (this.u[i] < this.view[0] || this.u[i] > this.view[1]) continue;
        let far = Math.abs(this.u[i] - u) / (this.view[1] - this.view[0]);
        if (this.y) far = Math.hypot(far, 1 - this.y[i] - fy);
        if (far < least) { least = far; best = i; }
      }
      return best;
    }
    show(i) {
      this.at = i;
      const f = i < 0 ? -1 : (this.u[i] - this.view[0]) / (this.view[1] - this.view[0]);
      this.cursor.hidden = f < 0 || f > 1;
      if (i < 0) { this.read.textContent = ""; return; }
      this.cursor.style.left = 100 * f + "%";
      const name = this.names ? this.names[i] : this.of + " " + shown(this.x[i], this.unit);
      this.read.textContent = name + ": " + this.series.map(s => s.name + " " + shown(s.values[i], s.unit)).join(", ");
    }
    zoom(a, b) {
      if (!this.zoomable) return;
      a = Math.max(0, a); b = Math.min(1, b);
      if (b - a < 0.005) return;
      for (const one of charts) if (one === this || (this.group && one.group === this.group)) one.look(a, b);
    }
    look(a, b) {
      this.view = [a, b];
      this.svg.setAttribute("viewBox", `${1000 * a} 0 ${1000 * (b - a)} 1000`);
      this.figure.querySelector(".reset").hidden = a === 0 && b === 1;
      const low = this.value(a), high = this.value(b), ticks = [];
      if (this.log) for (let i = 0; i < 5; i++) ticks.push(this.value(a + (b - a) * i / 4));
      else {
        const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
        const step = power * [1, 2, 5, 10].find(m => m * power >= rough);
        for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) ticks.push(Number(v.toPrecision(12)));
      }
      this.xs.replaceChildren(...ticks.map((v, i) => {
        const span = document.createElement("span"), f = (this.place(v) - a) / (b - a);
        span.style.left = 100 * f + "%";
        span.className = (f < 0.03 ? "first" : f > 0.97 ? "last" : "") + (i % 2 ? " even" : "");
        span.textContent = shown(v, this.unit);
        return span;
      }));
      this.show(this.at);
    }
    table(button) {
      const old = this.figure.querySelector(".scroll");
      button.setAttribute("aria-expanded", String(!old));
      if (old) { old.remove(); return; }
      const box = document.createElement("div"), table = document.createElement("table");
      box.className = "scroll";
      const row = (cells, kind) => {
        const line = table.insertRow();
        for (const text of cells) { const cell = document.createElement(kind); cell.textContent = text; line.append(cell); }
      };
      row([this.names ? "point" : this.of, ...this.series.map(s => s.name)], "th");
      this.x.forEach((v, i) => row([this.names ? this.names[i] : shown(v, this.unit), ...this.series.map(s => shown(s.values[i], s.unit))], "td"));
      box.append(table);
      this.figure.append(box);
    }
  }
  const charts = all("figure.chart").map(f => new Chart(f));

  for (const table of all("table.sortable")) {
    const body = table.tBodies[0], rows = [...body.rows];
    const key = (row, i) => row.cells[i].dataset.v ?? row.cells[i].textContent.trim();
    all("thead th", table).forEach((head, i) => {
      if (head.hasAttribute("data-plain")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        all("thead th", table).forEach(h => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sign = down ? -1 : 1;
        const order = [...body.rows].sort((a, b) => {
          const [p, q] = [key(a, i), key(b, i)], [m, n] = [Number(p), Number(q)];
          if (p === "" || q === "") return (p === "") - (q === "");
          return sign * (isNaN(m) || isNaN(n) ? p.localeCompare(q, "en", { numeric: true }) : m - n);
        });
        body.append(...order);
      });
    });
    const box = table.closest(".scroll").previousElementSibling;
    if (!box || !box.matches(".filter")) continue;
    box.hidden = false;
    const field = box.querySelector("input"), said = box.querySelector("span");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every(w => text.includes(w));
        left += !row.hidden;
      }
      said.textContent = words.length ? `${left} of ${rows.length}` : "";
    });
  }

  for (const button of all("button.save")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const text = document.getElementById(button.dataset.of).textContent;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = button.dataset.name;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
  document.documentElement.dataset.ready = String(charts.length);
})();
