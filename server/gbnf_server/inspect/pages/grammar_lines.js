"use strict";
(() => {
  // A folded grammar names the lines that it has in common with others; opened, it shows copies of them.
  document.addEventListener("toggle", (event) => {
    const details = event.target;
    const ranges = details.dataset?.lines;
    if (ranges === undefined || !details.open) return;
    const lines = document.getElementById("grammar-lines").content.querySelectorAll("li");
    const list = document.createElement("ol");
    list.className = "gbnf code";
    for (const range of ranges.split(" ")) {
      const [first, last = first] = range.split("-").map(Number);
      for (let number = first; number <= last; number++) list.append(lines[number].cloneNode(true));
    }
    delete details.dataset.lines;
    const body = document.createElement("div");
    body.className = "lines-of";
    body.append(list);
    details.append(body);
    body.tabIndex = 0;
    body.setAttribute("role", "group");
    body.setAttribute("aria-label", "Grammar");
  }, true);
})();
