// Before the first paint, so that nothing flashes: the theme that was chosen here, else the system's.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("onceward-theme"); } catch { return null; } };
  const apply = () => { document.documentElement.dataset.theme = chosen() || (system.matches ? "dark" : "light"); };
  apply();
  system.addEventListener("change", () => { apply(); dispatchEvent(new Event("theme")); });
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => { button.textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"; };
    label();
    button.addEventListener("click", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("onceward-theme", next); } catch { /* it holds until the page is left */ }
      document.documentElement.dataset.theme = next;
      label();
      dispatchEvent(new Event("theme"));
    });
  });
})();
