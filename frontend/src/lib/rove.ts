import type { Attachment } from 'svelte/attachments';

/** A table of many explained numbers is one stop of the tab key: within it, the arrow keys go from number to number. */
export const rove: Attachment<HTMLElement> = (table) => {
  let current: HTMLElement | null = null;
  const numbers = () => [...table.querySelectorAll<HTMLElement>('button.num')];

  function settle(): void {
    const found = numbers();
    if (current === null || !found.includes(current)) current = found[0] ?? null;
    for (const one of found) one.tabIndex = one === current ? 0 : -1;
  }

  /** The number of the same column in the next row, this way, that has one. */
  function inColumn(from: HTMLElement, by: 1 | -1): HTMLElement | null {
    const cell = from.closest<HTMLTableCellElement>('td, th');
    let row = cell?.parentElement ?? null;
    while (cell && row) {
      row = (by === 1 ? row.nextElementSibling : row.previousElementSibling) as HTMLElement | null;
      const found = row?.children[cell.cellIndex]?.querySelector<HTMLElement>('button.num');
      if (found) return found;
    }
    return null;
  }

  function next(from: HTMLElement, key: string): HTMLElement | null | undefined {
    const found = numbers();
    const at = found.indexOf(from);
    if (key === 'ArrowRight') return found[at + 1];
    if (key === 'ArrowLeft') return found[at - 1];
    if (key === 'ArrowDown') return inColumn(from, 1);
    if (key === 'ArrowUp') return inColumn(from, -1);
    if (key === 'Home') return found[0];
    return key === 'End' ? found.at(-1) : null;
  }

  function pressed(event: KeyboardEvent): void {
    const from = (event.target as Element).closest<HTMLElement>('button.num');
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    const to = next(from, event.key);
    if (!to) return;
    event.preventDefault();
    to.focus();
  }

  function focused(event: FocusEvent): void {
    const on = (event.target as Element).closest<HTMLElement>('button.num');
    if (on) {
      current = on;
      settle();
    }
  }

  settle();
  const watch = new MutationObserver(settle);
  watch.observe(table, { childList: true, subtree: true });
  table.addEventListener('keydown', pressed);
  table.addEventListener('focusin', focused);
  return () => {
    watch.disconnect();
    table.removeEventListener('keydown', pressed);
    table.removeEventListener('focusin', focused);
  };
};
