/** Values of a link: written as short text, and read back with suspicion. `null` says that a text is not a value. */
export interface Codec<T> {
  readonly initial: T;
  encode(value: T): string;
  decode(text: string): T | null;
}

function within(value: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, value));
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

function parsed(text: string, min: number, max: number): number | null {
  if (text.length > 32 || !NUMBER.test(text)) return null;
  const value = Number(text);
  return value >= min && value <= max ? value : null;
}

export function number(initial: number, min: number, max: number): Codec<number> {
  return {
    initial,
    encode: (value) => String(Number.isFinite(value) ? within(value, min, max) : initial),
    decode: (text) => parsed(text, min, max),
  };
}

export function integer(initial: number, min: number, max: number): Codec<number> {
  return {
    initial,
    encode: (value) => String(Number.isFinite(value) ? Math.round(within(value, min, max)) : initial),
    decode: (text) => {
      const value = parsed(text, min, max);
      return value !== null && Number.isInteger(value) ? value : null;
    },
  };
}

export function flag(initial: boolean): Codec<boolean> {
  return {
    initial,
    encode: (value) => (value ? '1' : '0'),
    decode: (text) => (text === '1' ? true : text === '0' ? false : null),
  };
}

export function choice<const T extends string>(initial: NoInfer<T>, options: readonly T[]): Codec<T> {
  return {
    initial,
    encode: (value) => (options.includes(value) ? value : initial),
    decode: (text) => (options.includes(text as T) ? (text as T) : null),
  };
}

/** A text of at most `max` signs; a longer one in a link is no value, a longer one that is set is cut. */
export function text(initial: string, max = 2000): Codec<string> {
  return {
    initial,
    encode: (value) => value.toWellFormed().slice(0, max).toWellFormed(),
    decode: (value) => (value.length <= max ? value.toWellFormed() : null),
  };
}

/** Numbers in a row: "1,0.5,-2". */
export function numbers(initial: readonly number[], min: number, max: number, longest = 64): Codec<number[]> {
  return {
    initial: [...initial],
    encode: (values) =>
      values.slice(0, longest).map((value) => (Number.isFinite(value) ? within(value, min, max) : min)).join(','),
    decode: (value) => {
      if (value === '') return [];
      if (value.length > 33 * longest) return null;
      const found = value.split(',').map((one) => parsed(one, min, max));
      return found.length <= longest && found.every((one) => one !== null) ? (found as number[]) : null;
    },
  };
}

/** Whole numbers in a row: "3,1,4". */
export function integers(initial: readonly number[], min: number, max: number, longest = 64): Codec<number[]> {
  const plain = numbers(initial, min, max, longest);
  return {
    ...plain,
    encode: (values) => plain.encode(values.map(Math.round)),
    decode: (value) => {
      const found = plain.decode(value);
      return found && found.every(Number.isInteger) ? found : null;
    },
  };
}

export const VERSION = '1';

/** The parameters of a query string, in their order; none where the link is of another version. */
export function parameters(search: string): [string, string][] {
  const all = [...new URLSearchParams(search.slice(0, 20_000))].slice(0, 200);
  const version = all.find(([key]) => key === 'v')?.[1] ?? VERSION;
  return version === VERSION ? all.filter(([key]) => key !== 'v') : [];
}

/** A query string that starts with the version, or nothing where there is nothing to say. */
export function searchOf(entries: Iterable<readonly [string, string]>): string {
  const all = [...entries];
  if (all.length === 0) return '';
  return `?${new URLSearchParams([['v', VERSION], ...all.map(([k, v]) => [k, v])])}`;
}
