import { index, type Ramp, type Scale, type Table } from '../lib/colours';
import type { Numbers } from '../lib/tensor';

/**
 * A table from the 256 values of a byte to words of four bytes. A byte carries the square root of a share (`sqrt255`), so a
 * square-root scale reads it as it is and a linear one squares it.
 */
export function bytesToWords(table: Table, scale: Scale): Uint32Array {
  const colours = new Uint32Array(table.buffer);
  if (scale === 'sqrt') return colours;
  return Uint32Array.from({ length: 256 }, (_, i) => colours[Math.round((i * i) / 255)]);
}

const FINE = 4096;

/** Colours a matrix: one word of `out` for each number, rows of `width` numbers, each row of `out` `stride` words long. */
export function paint(
  out: Uint32Array,
  values: Numbers,
  width: number,
  table: Table,
  { ramp, scale, max, stride = width, start = 0 }: { ramp: Ramp; scale: Scale; max: number; stride?: number; start?: number },
): void {
  const height = width === 0 ? 0 : values.length / width;
  if (values instanceof Uint8Array) {
    const words = bytesToWords(table, scale);
    for (let i = 0, from = 0; i < height; i++) {
      const to = start + i * stride;
      for (let j = 0; j < width; j++) out[to + j] = words[values[from++]];
    }
    return;
  }
  // The way from a number to a colour, tabled once: a square root for each of four million cells would be too slow.
  const colours = new Uint32Array(table.buffer);
  const words = new Uint32Array(FINE + 1);
  const low = ramp === 'diverging' ? -max : 0;
  const span = ramp === 'diverging' ? 2 * max : max;
  for (let k = 0; k <= FINE; k++) words[k] = colours[index(low + (k / FINE) * span, ramp, scale, max)];
  const factor = FINE / span;
  // Minus infinity says that there is nothing: it has no colour of its own.
  const nothing = colours[index(-Infinity, ramp, scale, max)];
  for (let i = 0, from = 0; i < height; i++) {
    const to = start + i * stride;
    for (let j = 0; j < width; j++) {
      let k = (values[from++] - low) * factor;
      k = k > 0 ? (k < FINE ? k + 0.5 : FINE) : 0;
      out[to + j] = values[from - 1] === -Infinity ? nothing : words[k | 0];
    }
  }
}

/** A byte of the `sqrt255` code as the share it stands for. */
export function shareOf(byte: number): number {
  return (byte / 255) ** 2;
}
