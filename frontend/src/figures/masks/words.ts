/** Words in quotation marks, as a sentence lists them: “a”, “b” and “c”. */
export function listed(words: readonly string[]): string {
  const quoted = words.map((word) => `“${word}”`);
  if (quoted.length < 2) return quoted.join('');
  return `${quoted.slice(0, -1).join(', ')} and ${quoted.at(-1)}`;
}

/** A token without the sign that stands for the space before it. */
export function bare(piece: string): string {
  return piece.replace(/^·/, '');
}

export const CELLS = 100;

/** The hundred cells of a mask as 25 hexadecimal digits, row by row, four cells to a digit. */
export function toHex(cells: ArrayLike<number>): string {
  let hex = '';
  for (let i = 0; i < CELLS; i += 4) {
    hex += (8 * (cells[i] ? 1 : 0) + 4 * (cells[i + 1] ? 1 : 0) + 2 * (cells[i + 2] ? 1 : 0) + (cells[i + 3] ? 1 : 0)).toString(16);
  }
  return hex;
}

export function fromHex(hex: string): Uint8Array {
  const cells = new Uint8Array(CELLS);
  for (let i = 0; i < CELLS; i++) cells[i] = (Number.parseInt(hex[i >> 2] ?? '0', 16) >> (3 - (i & 3))) & 1;
  return cells;
}

export const HEX = /^[0-9a-f]{25}$/;
