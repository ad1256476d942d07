"use strict";
// Shows the page as it is now, every 15 seconds, while somebody looks and has not marked anything.
(() => {
  const SECONDS = 15;
  let under = false;
  const refresh = async () => {
    const marked = document.getSelection();
    if (under || document.hidden || (marked !== null && !marked.isCollapsed)) return;
    under = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      const shown = document.querySelector("main");
      if (fresh === null || shown === null || fresh.innerHTML === shown.innerHTML) return;
      const links = [...shown.querySelectorAll("a")];
      const focused = links.indexOf(document.activeElement);
      shown.replaceWith(fresh);
      if (focused >= 0) fresh.querySelectorAll("a")[focused]?.focus({ preventScroll: true });
    } catch {
      // Away for a moment: what is shown stays, with its time.
    } finally {
      under = false;
    }
  };
  setInterval(refresh, SECONDS * 1000);
})();
