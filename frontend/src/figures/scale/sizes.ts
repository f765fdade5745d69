import { bytes, count, fixed, power } from '../../lib/format';

export function tokens(n: number): string {
  return count(n);
}

/** Bytes: what is no whole number of its unit has one digit more. */
export function onAxis(n: number): string {
  return bytes(n);
}

/** A number of operations: "1.31 × 10¹⁵". */
export function operations(n: number): string {
  return n >= 1e6 ? power(n, 3) : count(n);
}

export function seconds(s: number): string {
  if (s >= 86400 * 2) return `${fixed(s / 86400, 1)} days`;
  if (s >= 7200) return `${fixed(s / 3600, 1)} h`;
  if (s >= 120) return `${fixed(s / 60, 1)} min`;
  if (s >= 1) return `${fixed(s, 2)} s`;
  if (s >= 1e-3) return `${fixed(s * 1e3, s >= 0.1 ? 0 : 1)} ms`;
  return `${fixed(s * 1e6, 1)} µs`;
}

export function dollars(x: number): string {
  if (x === 0) return '$0';
  return x >= 100 ? `$${count(x)}` : `$${Number(x.toPrecision(3))}`;
}

/** 46,702,792,704 as "46.7 bn", for a cell of a table. */
export function compact(n: number): string {
  if (n >= 1e9) return `${fixed(n / 1e9, 1)}\u00a0bn`;
  return n >= 1e6 ? `${fixed(n / 1e6, 0)}\u00a0m` : count(n);
}

/** Precisions by their short names, which links use, and as the library calls them. */
export const DTYPES = { bf16: 'bfloat16', fp32: 'float32', fp16: 'float16', fp8: 'float8', int8: 'int8' } as const;
export type Dtype = keyof typeof DTYPES;
export const DTYPE_KEYS = Object.keys(DTYPES) as Dtype[];
export const DTYPE_OPTIONS = DTYPE_KEYS.map((value) => ({ value, label: DTYPES[value] }));

/** Powers of two, and halfway between them: what lengths and numbers of texts usually are. */
export function neat(from: number, to: number): number[] {
  const all: number[] = [];
  for (let n = 1; n <= to; n *= 2) all.push(n, 1.5 * n);
  return all.filter((n) => Number.isInteger(n) && n >= from && n <= to);
}

/** Marks of an axis of tokens, and of one of bytes. */
export const TOKEN_TICKS = Array.from({ length: 14 }, (_, i) => 2 ** (2 * i + 1));
export const BYTE_TICKS = Array.from({ length: 32 }, (_, i) => 2 ** (2 * i));
