// The little that pages do beyond HTML: charts, and polling only while somebody looks. Without it everything works.
(() => {
  "use strict";
  document.documentElement.classList.add("js");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = document.documentElement.dataset.theme;
  const isDark = () => (chosen ? chosen === "dark" : system.matches);
  const narrow = matchMedia("(max-width: 560px)");

  async function draw(figure) {
    const small = narrow.matches && "narrow" in figure.dataset;
    const asked = `theme=${isDark() ? "dark" : "light"}${small ? "&narrow" : ""}`;
    if (figure.dataset.drawn === asked || !window.vegaEmbed) return;
    figure.dataset.drawn = asked;
    try {
      const address = (small && figure.dataset.narrow) || figure.dataset.chart;
      const response = await fetch(`${address}${address.includes("?") ? "&" : "?"}${asked}`);
      if (!response.ok) throw new Error(response.status);
      const holder = document.createElement("div");
      const view = await vegaEmbed(holder, await response.json(), { ast: true, actions: false, renderer: "svg", defaultStyle: false, logLevel: 1 });
      const svg = holder.querySelector("svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", figure.querySelector("img")?.alt || figure.dataset.label || "");
      figure.dataset.label = svg.getAttribute("aria-label");
      figure.replaceChildren(holder);
      figure.view = view;
    } catch (error) {
      delete figure.dataset.drawn; // the picture that the page came with stays
    }
  }

  const drawAll = () => document.querySelectorAll("[data-chart]").forEach(draw);
  system.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
  window.addEventListener("load", drawAll);
  document.addEventListener("htmx:load", drawAll);

  // Polls rest while the tab is hidden, and go on at once when it is seen again.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && event.target.hasAttribute("data-poll")) event.preventDefault();
  });

  // The menu of a person closes when somebody clicks elsewhere, or presses Escape.
  const close = (kept) => document.querySelectorAll("details.who[open]").forEach((menu) => menu.contains(kept) || (menu.open = false));
  document.addEventListener("keydown", (event) => event.key === "Escape" && close(null));
  document.addEventListener("click", (event) => close(event.target));

  // On a phone a table shows one kernel: a tab shows another in place; its address shows the same.
  document.addEventListener("click", (event) => {
    const tab = event.target.closest(".tabs.phone a[data-column]");
    if (!tab) return;
    event.preventDefault();
    history.replaceState(null, "", tab.href);
    for (const other of tab.parentElement.children) other.toggleAttribute("aria-current", other === tab);
    const column = Number(tab.dataset.column);
    for (const row of tab.closest("section").querySelectorAll(".cells tr")) {
      row.querySelectorAll(".k").forEach((cell, number) => cell.classList.toggle("on", number === column));
    }
  });

  // The address of a search has no empty parameters.
  document.addEventListener("formdata", ({ target, formData }) => {
    if (!target.matches("form.search")) return;
    for (const name of new Set(formData.keys())) if (!formData.getAll(name).some(Boolean)) formData.delete(name);
  });

  // A select says "change", too: the later of both would be the only one that waits while a reply is on its way.
  document.addEventListener("input", (event) => event.target.matches("select") && event.stopPropagation(), true);

  // A secret link is selected whole by a click into it.
  document.addEventListener("focusin", (event) => event.target.matches("[data-link]") && event.target.select());

  // What a person opened stays open, and the column that a phone shows stays shown, when a poll replaces them.
  const opened = new Set();
  document.addEventListener("toggle", ({ target }) => target.id && opened[target.open ? "add" : "delete"](target.id), true);
  document.addEventListener("htmx:load", () => opened.forEach((id) => document.getElementById(id)?.setAttribute("open", "")));
  document.addEventListener("htmx:configRequest", (event) => {
    const chosen = new URLSearchParams(location.search).get("kernel");
    if (chosen && event.target.hasAttribute("data-poll")) event.detail.parameters.kernel = chosen;
  });
  // A source has line numbers beside it, and takes dropped files as a whole.
  const number = (text) => {
    const lines = document.createElement("pre");
    lines.className = "numbers";
    lines.setAttribute("aria-hidden", "true");
    text.before(lines);
    const count = () => {
      const many = text.value.split("\n").length;
      if (lines.dataset.many !== String(many)) lines.textContent = Array.from({ length: many }, (_, at) => at + 1).join("\n") + "\n\n";
      lines.dataset.many = many;
      lines.scrollTop = text.scrollTop;
    };
    for (const event of ["input", "scroll"]) text.addEventListener(event, count);
    text.addEventListener("dragover", (event) => event.preventDefault());
    text.addEventListener("drop", async (event) => {
      const [file] = event.dataTransfer.files;
      if (!file) return;
      event.preventDefault();
      text.value = await file.text();
      text.closest(".source").querySelector("input").value = file.name;
      text.dispatchEvent(new Event("input", { bubbles: true }));
    });
    count();
  };
  document.querySelectorAll(".numbered textarea").forEach(number);

  // The example of sizes is of the operation that the source declares, or that is chosen for a repository.
  const sizes = document.querySelector("form.submission [data-examples]");
  const exemplify = () => {
    const form = sizes.form;
    const source = [...form.querySelectorAll("textarea[name=source]")].map((text) => text.value).join("\n");
    const declared = /@kernel\(\s*["'](\w+)["']/.exec(source)?.[1];
    const example = JSON.parse(sizes.dataset.examples)[form.elements.git_url.value ? form.elements.git_operation.value : declared];
    if (example) form.querySelector("[data-example]").textContent = example;
  };
  for (const event of sizes ? ["input", "change"] : []) sizes.form.addEventListener(event, exemplify);

  // A log shows its end.
  const follow = () => document.querySelectorAll("pre.tail").forEach((log) => (log.scrollTop = log.scrollHeight));
  document.addEventListener("htmx:load", follow);
  follow();
})();
