"use strict";

// Light or dark: the reader's system decides, until the reader does.
const theme = document.getElementById("theme");
const root = document.documentElement;
const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");

function remembered() {
  try {
    return localStorage.getItem("tightrope-theme");
  } catch {
    return null; // pages from the file system may have no storage
  }
}

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches;
}

function nameTheme() {
  theme.textContent = isDark() ? "Light" : "Dark";
  theme.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  theme.setAttribute("aria-pressed", String(isDark()));
}

if (remembered()) root.dataset.theme = remembered();
theme.hidden = false;
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("tightrope-theme", root.dataset.theme);
  } catch {
    // then it holds for this visit
  }
  nameTheme();
});
systemIsDark.addEventListener("change", nameTheme);
nameTheme();

// Tables sort by any column; what is empty stays last, and rows of reference stay where they are.
function compare(a, b) {
  if (a === "" || b === "") return 0;
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}

for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("thead tr:last-child th")];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const value = (row) => row.cells[column].dataset.value;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if ((x === "") !== (y === "")) return x === "" ? 1 : -1;
        return down ? compare(y, x) : compare(x, y);
      });
      body.append(...rows);
    });
  });
}
