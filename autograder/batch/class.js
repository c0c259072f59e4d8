// Sorting by a column, and showing only rows that contain what was typed.
"use strict";
const value = (cell) => cell.dataset.value ?? cell.textContent.trim();
const compare = (a, b) => {
  const [x, y] = [parseFloat(a), parseFloat(b)];
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
  return Number.isNaN(x) ? a.localeCompare(b) : x - y;
};
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const header = button.parentElement;
    const column = header.cellIndex;
    const body = header.closest("table").tBodies[0];
    const up = header.getAttribute("aria-sort") !== "ascending";
    for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows];
    rows.sort((a, b) => compare(value(a.cells[column]), value(b.cells[column])) * (up ? 1 : -1));
    body.append(...rows);
  });
}
for (const search of document.querySelectorAll("input[type=search]")) {
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    const table = document.getElementById(search.dataset.table);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}
