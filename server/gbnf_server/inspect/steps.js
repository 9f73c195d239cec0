"use strict";
(() => {
  const pair = document.getElementById("pair");
  if (!pair) return;
  const { $, all, say, fill, token, show } = window.inspectPage;
  const KINDS = { sampled: "sampled", drafted: "drafted", forced: "forced", end: "the end", untraced: "not traced" };
  const WHY = { grammar: "refused by the grammar", limit: "refused by the token limit" };

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const percent = (value) => {
    if (value === 0) return "0 %";
    if (value < 1e-4) return "< 0.01 %";
    return `${(100 * value).toPrecision(value > 0.9995 && value < 1 ? 4 : 3)} %`;
  };
  const SIGNS = { "\n": "↵", "\r": "␍", "\t": "⇥" };
  const hexadecimal = (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
  const visible = (text) => (/^ *$/.test(text) ? "␣".repeat(text.length) || "∅" : text.replace(/[\0-\x1f\x7f]/g, (one) => SIGNS[one] ?? hexadecimal(one)));
  const written = (piece) => element("code", {}, typeof piece === "string" ? visible(piece) : `bytes ${piece.bytes.replace(/(..)(?=.)/g, "$1 ")}`);
  const characters = (piece) => (typeof piece === "string" ? piece : "\ufffd".repeat(piece.bytes.length / 2));
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  const duration = (seconds) => (seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(1000 * seconds).toFixed(1)} ms`);

  // One decoding: its tokens, the current one, and what is known of it.
  class Decoding {
    constructor(root) {
      this.root = root;
      this.entries = JSON.parse($(".trace", root).textContent);
      this.tokens = all(".line > .t", root);
      this.now = $(".now", root);
      this.range = $("input[type=range]", root);
      this.output = $("output", root);
      this.current = -1;
      this.starts = [];
      this.text = "";
      for (const entry of this.entries) {
        this.starts.push(this.text.length);
        this.text += characters(entry[0]);
      }
      this.partner = null;
      this.blocks = [];
      if (!this.tokens.length) return;
      const line = $(".line", root);
      this.marks = [...this.tokens.keys()].filter((number) => this.tokens[number].classList.contains("x"));
      this.numbers = new Map(this.tokens.map((one, number) => [one, number]));
      line.addEventListener("click", (event) => this.pick(event.target.closest(".t"), true));
      line.addEventListener("focusin", (event) => this.pick(event.target.closest(".t"), false));
      line.addEventListener("keydown", (event) => this.key(event));
      this.range.addEventListener("input", () => this.go(this.range.value - 1));
      $(".next", root).addEventListener("click", () => {
        const next = this.changed(1);
        if (next !== null) this.go(next, true);
      });
      this.go(0);
    }
    pick(one, focus) {
      if (one) this.go(this.numbers.get(one), focus);
    }
    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const last = this.tokens.length - 1;
      const target = {
        ArrowRight: this.current + 1, ArrowLeft: this.current - 1, ArrowDown: this.current + 10, ArrowUp: this.current - 10,
        Home: 0, End: last, n: this.changed(1), p: this.changed(-1),
      }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      if (target === null) return say("no other token was changed");
      this.go(Math.min(Math.max(target, 0), last), true);
    }
    changed(step) {
      const after = (number) => (step > 0 ? number > this.current : number < this.current);
      const found = step > 0 ? this.marks.find(after) : this.marks.findLast(after);
      return found ?? this.marks.at(step > 0 ? 0 : -1) ?? null;
    }
    go(number, focus = false, leads = true) {
      const one = this.tokens[number];
      if (!one) return;
      if (number !== this.current) {
        const before = this.tokens[this.current];
        if (before) {
          before.removeAttribute("aria-selected");
          before.tabIndex = -1;
        }
        this.current = number;
        one.setAttribute("aria-selected", "true");
        one.tabIndex = 0;
        this.range.value = number + 1;
        this.output.textContent = `${number + 1} of ${this.tokens.length}`;
        this.bring(one);
        this.tell();
        if (leads) {
          this.partner?.go(this.across(number), false, false);
          say(this.summary());
        }
      }
      if (focus && document.activeElement !== one) one.focus({ preventScroll: true });
    }
    bring(one) {
      const line = one.parentElement;
      const top = one.offsetTop;
      if (top < line.scrollTop || top + one.offsetHeight > line.scrollTop + line.clientHeight) {
        line.scrollTop = top - line.clientHeight / 2;
      }
    }
    summary() {
      const [, kind, , left, probability] = this.entries[this.current];
      const changed = this.tokens[this.current].classList.contains("x") ? ", changed here" : "";
      const chance = probability === null ? "" : `, ${percent(probability)}`;
      return `token ${this.current + 1} of ${this.tokens.length}, ${KINDS[kind]}${chance}${changed}, ${left} left`;
    }
    tell() {
      const [piece, kind, at, left, probability, allowed, candidates] = this.entries[this.current];
      const parts = [element("h3", { className: "which" }, kind === "end" ? "end of the text" : kind === "untraced" ? "the whole text" : written(piece), ` ${KINDS[kind]}`)];
      if (candidates.length && candidates[0][2]) {
        parts.push(element("p", { className: "changed" }, "Changed here: the model preferred ", written(candidates[0][0]), `, ${WHY[candidates[0][2]]}.`));
      }
      const facts = [];
      if (probability !== null) {
        facts.push(["before the mask", percent(probability)]);
        facts.push(["after the mask", percent(allowed > 0 ? Math.min(probability / allowed, 1) : 0)]);
        facts.push(["allowed in all", percent(allowed)]);
      }
      if (kind !== "untraced") facts.push(["tokens left", String(left)], ["time", duration(at)]);
      parts.push(element("dl", {}, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
      if (candidates.length) parts.push(this.table(piece, kind, allowed, candidates));
      else if (kind === "forced") parts.push(element("p", { className: "quiet" }, "The grammar allows nothing else, so the model was not asked."));
      this.now.replaceChildren(...parts);
    }
    table(piece, kind, allowed, candidates) {
      const most = candidates[0][1] || 1;
      const rows = candidates.map(([other, probability, refused]) => {
        const taken = !refused && kind !== "end" && same(other, piece);
        const bar = element("i");
        bar.style.width = `${(100 * probability) / most}%`;
        const after = refused ? `✗ ${WHY[refused]}` : percent(allowed > 0 ? Math.min(probability / allowed, 1) : 0);
        return element(
          "tr", { className: taken ? "taken" : refused ? "refused" : "" },
          element("th", { scope: "row" }, written(other)),
          element("td", { className: "n" }, percent(probability)),
          element("td", { className: "meter" }, bar),
          element("td", { className: "after" }, after, taken ? " ✓ chosen" : ""),
        );
      });
      const heads = [["th", "Token", ""], ["th", "Before", "n"], ["td", "", ""], ["th", "After the mask", ""]];
      const head = element("tr", {}, ...heads.map(([name, text, className]) => element(name, { className }, text)));
      return element("table", {}, element("caption", { className: "sr" }, "The likeliest tokens, before and after the mask"), element("thead", {}, head), element("tbody", {}, ...rows));
    }
    // The other text, of which `blocks` are the common parts: [start here, start there, length].
    join(partner, blocks) {
      this.partner = partner;
      this.blocks = blocks;
      let block = 0;
      this.tokens.forEach((one, number) => {
        const [start, end] = [this.starts[number], this.starts[number + 1] ?? this.text.length];
        while (block < blocks.length && blocks[block][0] + blocks[block][2] < end) block++;
        const common = start === end || (block < blocks.length && blocks[block][0] <= start);
        one.classList.toggle("v", !common);
      });
    }
    across(number) {
      const start = this.starts[number];
      let there = 0;
      for (const [here, other, length] of this.blocks) {
        if (here > start) break;
        there = start < here + length ? other + start - here : other + length;
      }
      return this.partner.starts.findLastIndex((each) => each <= there);
    }
  }

  // What two texts have in common: the beginning, the end, and words between.
  function common(a, b) {
    const words = (text) => text.match(/[\p{L}\p{N}_]+|\s+|[^]/gu) ?? [];
    const [left, right] = [words(a), words(b)];
    let head = 0;
    while (head < left.length && head < right.length && left[head] === right[head]) head++;
    let tail = 0;
    while (tail < left.length - head && tail < right.length - head && left.at(-1 - tail) === right.at(-1 - tail)) tail++;
    const matched = [];
    for (let number = 0; number < head; number++) matched.push([number, number]);
    const [n, m] = [left.length - head - tail, right.length - head - tail];
    if (n && m && n * m <= 4e6) {
      const best = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
      for (let i = n - 1; i >= 0; i--) {
        for (let j = m - 1; j >= 0; j--) {
          best[i][j] = left[head + i] === right[head + j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
        }
      }
      for (let i = 0, j = 0; i < n && j < m;) {
        if (left[head + i] === right[head + j]) matched.push([head + i++, head + j++]);
        else if (best[i + 1][j] >= best[i][j + 1]) i++;
        else j++;
      }
    }
    for (let number = tail; number > 0; number--) matched.push([left.length - number, right.length - number]);
    const offsets = (list) => { let sum = 0; return list.map((word) => (sum += word.length) - word.length); };
    const [lefts, rights] = [offsets(left), offsets(right)];
    const blocks = [];
    for (const [i, j] of matched) {
      const last = blocks.at(-1);
      if (last && last[0] + last[2] === lefts[i] && last[1] + last[2] === rights[j]) last[2] += left[i].length;
      else blocks.push([lefts[i], rights[j], left[i].length]);
    }
    return blocks;
  }
  function start() {
    const decodings = all(".decoding", pair).map((root) => new Decoding(root));
    if (decodings.length !== 2 || !decodings.every((one) => one.tokens.length)) return;
    const blocks = common(decodings[0].text, decodings[1].text);
    decodings[0].join(decodings[1], blocks);
    decodings[1].join(decodings[0], blocks.map(([here, there, length]) => [there, here, length]));
  }

  // Recorded decodings.
  const [left, right] = [$("#left"), $("#right")];
  const slot = (number) => element("div", { className: "slot" }, document.getElementById(`decoding-${number}`).content.cloneNode(true));
  function choose() {
    pair.replaceChildren(slot(left.value), ...(right.value === "" ? [] : [slot(right.value)]));
    start();
  }
  if (left) {
    left.addEventListener("change", choose);
    right.addEventListener("change", choose);
    choose();
  }
  const open = (number) => {
    if (!document.getElementById(`decoding-${number}`)) return;
    left.value = number;
    choose();
    show($("#tab-decoding"));
    $(".t[tabindex='0']", pair)?.focus();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-decoding]");
    if (!link) return;
    event.preventDefault();
    history.replaceState(null, "", link.getAttribute("href"));
    open(link.dataset.decoding);
  });
  const named = /^#decoding-(\d+)$/.exec(location.hash);
  if (named) open(named[1]);

  // Live ones.
  const form = $("#decode");
  if (!form || token === undefined) return;
  const request = $("#decode-request");
  request.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!request.value.trim()) return request.focus();
    say("decoding");
    const made = await fill(pair, "decode", {
      request: request.value,
      strategies: [$("#decode-left").value, $("#decode-right").value].filter(Boolean),
      max_tokens: Number($("#decode-tokens").value),
      temperature: Number($("#decode-temperature").value),
      seed: Number($("#decode-seed").value),
    });
    if (!made) return;
    start();
    say("decoded");
  });
})();
