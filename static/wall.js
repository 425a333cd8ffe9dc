// A status page goes on by itself: htmx asks every 10 s. Between two answers its ages and its clock go on; without an answer it says so.
(() => {
  "use strict";
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
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) heard = Date.now();
  });
  document.addEventListener("htmx:load", () => {
    read();
    tick();
  });
  setInterval(tick, 1000);
})();
