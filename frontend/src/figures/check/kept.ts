/** The answers, kept in the browser from one visit to the next. */
const KEY = 'clearhead-check';

export function kept(): number[] | null {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? 'null');
    return Array.isArray(found) && found.every((one) => Number.isInteger(one) && one >= -1 && one <= 3) ? found : null;
  } catch {
    return null; // no storage here, or something else in it
  }
}

export function keep(answers: number[] | null): void {
  try {
    if (answers === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, JSON.stringify(answers));
  } catch {
    // The link still holds them.
  }
}
