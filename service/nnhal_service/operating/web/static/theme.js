// Sets the theme before the page is shown. It is not a module, so that it runs first.
// "auto" follows the system; "light" and "dark" are remembered in this browser.
(() => {
  const KEY = "nnhal-theme";
  const ORDER = ["auto", "light", "dark"];

  function stored() {
    try {
      const value = localStorage.getItem(KEY);
      return ORDER.includes(value) ? value : "auto";
    } catch {
      return "auto"; // the browser forbids storage
    }
  }

  function apply(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  let theme = stored();
  apply(theme);

  window.nnhalTheme = {
    current: () => theme,
    next() {
      theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // the choice lasts as long as the page
      }
      apply(theme);
      window.dispatchEvent(new Event("nnhal-theme"));
      return theme;
    },
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    window.dispatchEvent(new Event("nnhal-theme"));
  });
})();
