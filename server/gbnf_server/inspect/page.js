"use strict";
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const token = document.body.dataset.token;
  const say = (text) => { $("#status").textContent = text; };

  // Requests to the server, of which only the latest answer of each kind counts.
  const running = new Map();
  async function ask(path, body) {
    running.get(path.split("?")[0])?.abort();
    const controller = new AbortController();
    running.set(path.split("?")[0], controller);
    const options = { headers: { Authorization: `Bearer ${token}` }, signal: controller.signal };
    if (body !== undefined) {
      options.method = "POST";
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    const answer = await fetch(path, options);
    const text = await answer.text();
    if (!answer.ok) {
      let reason = `The server failed (${answer.status}). Its terminal says why.`;
      try { reason = JSON.parse(text).error; } catch { /* it is no message of the page's server */ }
      throw new Error(reason);
    }
    return text;
  }
  async function fill(target, path, body) {
    target.setAttribute("aria-busy", "true");
    try {
      target.innerHTML = await ask(path, body);
      return true;
    } catch (error) {
      if (error.name === "AbortError") return false;
      const textContent = error instanceof TypeError ? "The server does not answer: it was stopped." : error.message;
      target.replaceChildren(Object.assign(document.createElement("p"), { className: "problem", role: "alert", textContent }));
      return false;
    } finally {
      target.removeAttribute("aria-busy");
    }
  }
  const debounced = (run, wait = 150) => {
    let timer;
    return () => { clearTimeout(timer); timer = setTimeout(run, wait); };
  };

  // Tabs.
  const tabs = all("[role=tab]");
  const show = (tab) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", chosen);
      other.tabIndex = chosen ? 0 : -1;
      $(`#${other.getAttribute("aria-controls")}`).hidden = !chosen;
    }
  };
  for (const tab of tabs) {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      show(next);
      next.focus();
    });
  }

  window.inspectPage = { $, all, say, fill, token, show };

  // The grammar: what comes from what. `index` has the marked elements by the number of an origin.
  const opened = $("#opened");
  let index = new Map();
  let lit = [];
  const numbers = (element) => element.dataset.o.split(" ").filter(Boolean);
  function read() {
    const shared = $("#shared")?.content;
    for (const list of all("[data-shared]", opened)) {
      const kind = list.tagName === "OL" ? "g" : "d";
      const rules = list.dataset.shared.split(" ").map((name) => shared.getElementById(`${kind}-${name}`));
      list.replaceChildren(...rules.filter(Boolean).map((rule) => rule.cloneNode(true)));
    }
    index = new Map();
    for (const element of all("[data-o]", opened)) {
      for (const number of numbers(element)) {
        if (!index.has(number)) index.set(number, []);
        index.get(number).push(element);
      }
    }
    for (const list of all("[data-roving]", opened)) {
      all("a.key", list).forEach((key, position) => { key.tabIndex = position ? -1 : 0; });
    }
  }
  const kindOf = (element) => (element.dataset.pointer !== undefined ? "schema" : "rule");
  function light(source) {
    for (const element of lit) element.classList.remove("lit");
    lit = [];
    if (!source) return;
    const kind = kindOf(source);
    const found = new Set();
    for (const number of numbers(source)) {
      for (const element of index.get(number) ?? []) if (kindOf(element) !== kind) found.add(element);
    }
    if (kind === "rule") {
      for (const twin of all(`[data-rule="${source.dataset.rule}"]`, opened)) if (twin !== source) found.add(twin);
    }
    lit = [source, ...found];
    for (const element of lit) element.classList.add("lit");
    const own = source.closest(".pane");
    for (const pane of all(".pane", opened)) {
      const inside = pane === own ? [] : [...found].filter((element) => pane.contains(element));
      if (inside.length) bring($(".body", pane), inside);
    }
  }
  function bring(pane, elements) {
    const frame = pane.getBoundingClientRect();
    const boxes = elements.slice(0, 20).map((element) => element.getBoundingClientRect());
    if (boxes.some((box) => box.bottom > frame.top && box.top < frame.bottom)) return;
    const shown = boxes.find((box) => box.height);
    if (shown && pane.scrollHeight > pane.clientHeight) pane.scrollTop += shown.top - frame.top - 20;
  }
  function told(source) {
    const other = lit.slice(1).filter((element) => kindOf(element) !== kindOf(source));
    if (kindOf(source) === "schema") {
      const rules = [...new Set(other.map((element) => element.dataset.rule).filter(Boolean))];
      say(rules.length ? `${source.dataset.pointer}: rules ${rules.join(", ")}` : "no rule of its own");
    } else {
      say(`${source.dataset.rule ?? source.textContent}: from ${other.map((element) => element.dataset.pointer).join(", ") || "no keyword"}`);
    }
  }
  let over = null;
  opened?.addEventListener("pointerover", (event) => {
    const source = event.target.closest("[data-o]");
    if (source !== over) light(over = source);
  });
  opened?.addEventListener("pointerleave", () => light(over = null));
  opened?.addEventListener("focusin", (event) => {
    const source = event.target.closest("[data-o]");
    light(source);
    if (source) told(source);
  });
  opened?.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return light(null);
    const list = event.target.closest("[data-roving]");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!list || !step) return;
    const keys = all("a.key", list);
    const next = keys[keys.indexOf(event.target) + step];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  // A diagram that the page of a large grammar leaves out.
  async function draw(rule) {
    const note = $("[data-undrawn]", opened);
    if (!note || token === undefined) return;
    const number = $("#tools a[aria-current]")?.dataset.tool ?? 0;
    try {
      note.insertAdjacentHTML("beforebegin", await ask(`diagram?index=${number}&rule=${encodeURIComponent(rule)}`));
      read();
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  }
  opened?.addEventListener("click", async (event) => {
    const link = event.target.closest("a");
    const href = link?.getAttribute("href") ?? "";
    if (!href.startsWith("#d-") && !href.startsWith("#g-")) return;
    event.preventDefault();
    if (href.startsWith("#d-") && !document.getElementById(href.slice(1))) await draw(href.slice(3));
    const target = document.getElementById(href.slice(1)) ?? document.getElementById(`g-${href.slice(3)}`);
    if (!target) return;
    const folded = target.closest("details:not([open])");
    if (folded) folded.open = true;
    target.scrollIntoView({ block: "nearest" });
    target.tabIndex = -1;
    target.focus({ preventScroll: true });
    light(target);
  });

  // The list of tools.
  const links = all("#tools a");
  async function open(link, focus) {
    for (const other of links) other.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    light(null);
    const number = link.dataset.tool;
    const template = document.getElementById(`tool-${number}`);
    if (template) opened.replaceChildren(template.content.cloneNode(true));
    else await fill(opened, `tool?index=${number}`);
    read();
    if (focus) $("#grammar-title")?.focus();
  }
  for (const link of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", link.getAttribute("href"));
      open(link, true);
    });
  }
  $("#filter")?.addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const link of links) {
      const text = link.textContent.toLowerCase();
      link.parentElement.hidden = !words.every((word) => text.includes(word));
      count += !link.parentElement.hidden;
    }
    say(`${count} tools`);
  });
  const named = links.find((link) => link.getAttribute("href") === location.hash);
  if (named) open(named, false);
  else if (opened) read();

  document.addEventListener("click", (event) => {
    const elsewhere = event.target.closest("a[data-offered]");
    if (!elsewhere) return;
    event.preventDefault();
    show($("#tab-grammar"));
    links.find((link) => link.getAttribute("href") === elsewhere.getAttribute("href"))?.click();
  });

  // Tables.
  document.addEventListener("click", (event) => {
    const head = event.target.closest(".sortable thead th:has(button)");
    if (!head || !event.target.closest("button")) return;
    const table = head.closest("table");
    const column = head.cellIndex;
    const downward = head.getAttribute("aria-sort") === (head.classList.contains("n") ? "none" : "ascending");
    for (const other of all("th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", downward ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
    const body = table.tBodies[0];
    const order = new Intl.Collator("en", { numeric: true });
    body.append(...[...body.rows].sort((a, b) => (downward ? -1 : 1) * order.compare(value(a), value(b))));
  });

  // The live parts.
  if (token === undefined) return;
  const whenShown = (tab, run) => {
    for (const event of ["click", "focus"]) {
      $(`#tab-${tab}`).addEventListener(event, () => { if (!$(`#${tab}-result`).textContent.trim()) run(); });
    }
  };
  const text = $("#text");
  if (text) {
    const check = () => fill($("#text-result"), "text", { text: text.value });
    text.addEventListener("input", debounced(check));
    if (text.value) check();
    whenShown("text", check);
    // A continuation is inserted at the end of the accepted part; a refused rest is selected.
    $("#text-result").addEventListener("click", async (event) => {
      const button = event.target.closest("button[data-insert]");
      if (!button) return;
      const at = Number(button.closest("[data-after]").dataset.after);
      text.setRangeText(button.dataset.insert, at, at, "end");
      text.setSelectionRange(at + button.dataset.insert.length, text.value.length);
      say(`inserted ${button.title}`);
      if (await check() && document.activeElement !== text) ($("#text-result button[data-insert]") ?? text).focus();
    });
  }
  const request = $("#request");
  if (request) {
    const pool = () => fill($("#pool-result"), "pool", { request: request.value, limit: Number($("#limit").value) || 1 });
    for (const field of [request, $("#limit")]) field.addEventListener("input", debounced(pool, 250));
    whenShown("pool", pool);
  }
  for (const form of all("form")) form.addEventListener("submit", (event) => event.preventDefault());
})();
