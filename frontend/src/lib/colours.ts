/** Ramps of colour. The stops are in styles/tokens.css, where a test checks them; this turns them into tables. */

export type Ramp = 'ink' | 'diverging';
export type Scale = 'sqrt' | 'linear';

/** 256 colours between the stops, four bytes each. */
export type Table = Uint8ClampedArray<ArrayBuffer>;

export function stops(list: string): [number, number, number][] {
  return list
    .trim()
    .split(/\s+/)
    .map((hex) => [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16)) as [number, number, number]);
}

export function table(list: string): Table {
  const made = new Uint8ClampedArray(256 * 4);
  fill(made, 0, 256, stops(list));
  return made;
}

/** A diverging ramp is two of five stops that meet at zero: bytes 0 to 127 are negative, 128 to 255 positive. */
export function divergingTable(list: string): Table {
  const colours = stops(list);
  const half = colours.length >> 1;
  const made = new Uint8ClampedArray(256 * 4);
  fill(made, 0, 128, colours.slice(0, half));
  fill(made, 128, 128, colours.slice(half));
  return made;
}

function fill(made: Table, start: number, count: number, colours: [number, number, number][]): void {
  for (let i = 0; i < count; i++) {
    const at = (i / (count - 1)) * (colours.length - 1);
    const low = Math.min(Math.floor(at), colours.length - 2);
    for (let channel = 0; channel < 3; channel++) {
      made[4 * (start + i) + channel] = colours[low][channel] + (at - low) * (colours[low + 1][channel] - colours[low][channel]);
    }
    made[4 * (start + i) + 3] = 255;
  }
}

/** Where on the ramp a value lies, 0 to 255. A diverging ramp has zero in its middle, always. */
export function index(value: number, ramp: Ramp, scale: Scale, max: number): number {
  if (!Number.isFinite(value) || max <= 0) return ramp === 'diverging' ? 128 : 0;
  const part = Math.min(1, Math.abs(value) / max);
  const shown = scale === 'sqrt' ? Math.sqrt(part) : part;
  if (ramp === 'diverging') return Math.round(127.5 + Math.sign(value) * shown * 127.5);
  return value < 0 ? 0 : Math.round(shown * 255);
}

export function css(table: Table, i: number): string {
  return `rgb(${table[4 * i]} ${table[4 * i + 1]} ${table[4 * i + 2]})`;
}

/** Relative luminance, as WCAG has it. */
export function luminance(r: number, g: number, b: number): number {
  const [x, y, z] = [r, g, b].map((c) => (c <= 10.31 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}

/** Black or white, whichever reads better on a colour of the table: one of them always has 4.5 to 1. */
export function inkOn(table: Table, i: number): '#000000' | '#ffffff' {
  const l = luminance(table[4 * i], table[4 * i + 1], table[4 * i + 2]);
  return (l + 0.05) / 0.05 >= 1.05 / (l + 0.05) ? '#000000' : '#ffffff';
}

/** The largest size of the finite numbers, at least a little above zero. */
export function largest(values: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i]);
    if (size > most && size !== Infinity) most = size;
  }
  return most || 1;
}
