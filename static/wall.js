// A status page goes on by itself: htmx asks every 10 s. Between two answers its ages and its clock go on; without an answer it says so.
// On a screen it gets smaller until it fits. What is still too long turns its pages, unless somebody touches it.
(() => {
  "use strict";
  const SMALLEST = 0.75; // of the size that is read from three metres
  const REST = 120000; // ms without a turn after somebody used the page
  let ahead = 0; // of the site's clock, in ms
  let heard = Date.now();
  const read = () => {
    const part = document.getElementById("wall");
    if (part) ahead = Date.parse(part.dataset.now) - Date.now();
  };
  const age = (seconds) =>
    seconds < 60 ? `${seconds} s ago` : seconds < 3600 ? `${Math.floor(seconds / 60)} min ago` : seconds < 86400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86400)} d ago`;
  const tick = () => {
    for (const one of document.querySelectorAll("time.ago")) {
      one.textContent = age(Math.max(0, Math.round((Date.now() + ahead - Date.parse(one.dateTime)) / 1000)));
    }
    const lost = document.querySelector(".lost");
    if (!lost) return;
    lost.hidden = Date.now() - heard < 30000;
    lost.querySelector("b").textContent = new Date(heard).toTimeString().slice(0, 5);
  };
  const wide = matchMedia("(min-width: 900px)");
  const isLong = () => document.documentElement.scrollHeight > innerHeight + 1;
  const fit = () => {
    const style = document.body.style;
    style.setProperty("--fit", 1);
    if (!wide.matches || document.body.classList.contains("framed")) return;
    for (let size = 1; isLong() && size > SMALLEST; ) style.setProperty("--fit", (size -= 0.03));
  };
  let touched = -Infinity;
  for (const kind of ["wheel", "touchstart", "keydown", "pointerdown"]) addEventListener(kind, () => (touched = Date.now()), { passive: true });
  const turn = () => {
    if (!wide.matches || !isLong() || Date.now() - touched < REST) return;
    const isLast = scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
    scrollTo(0, isLast ? 0 : scrollY + 0.9 * innerHeight);
  };
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) heard = Date.now();
  });
  document.addEventListener("htmx:load", () => {
    read();
    tick();
    fit();
  });
  addEventListener("resize", fit);
  document.fonts.ready.then(fit);
  setInterval(tick, 1000);
  setInterval(turn, 20000);
})();
