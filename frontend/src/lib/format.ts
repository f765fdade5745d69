/** How numbers are written. Each keeps its sign as a true minus and never writes more digits than it is asked for. */

const MINUS = '\u2212';
const NBSP = '\u00a0';

function proper(text: string): string {
  return text.replace('-', MINUS);
}

/** A number that is not finite, in words; null for one that is. */
function odd(x: number): string | null {
  if (Number.isFinite(x)) return null;
  return Number.isNaN(x) ? '–' : x > 0 ? '∞' : `${MINUS}∞`;
}

/** 0.442 as "44.2 %". */
export function share(x: number, digits = 1): string {
  return odd(x) ?? `${fixed(100 * x, digits)}${NBSP}%`;
}

/** With so many digits after the point. What rounds to zero has no sign. */
export function fixed(x: number, digits = 2): string {
  const unusual = odd(x);
  if (unusual !== null) return unusual;
  const text = x.toFixed(digits);
  return Number(text) === 0 ? text.replace('-', '') : proper(text);
}

/** A weight between 0 and 1 as a cell shows it: ".44", "1", "0". */
export function weight(x: number): string {
  const unusual = odd(x);
  if (unusual !== null) return unusual;
  if (x < 0 || x > 1.005) return fixed(x, 2);
  if (x >= 0.995) return '1';
  if (x === 0) return '0';
  return x < 0.005 ? '<.01' : x.toFixed(2).slice(1);
}

/** 1234567 as "1,234,567". */
export function count(n: number): string {
  return odd(n) ?? proper(Math.round(n).toLocaleString('en-GB'));
}

/** 70,553,706,496 as "70.6 billion". */
export function short(n: number, digits = 1): string {
  const unusual = odd(n);
  if (unusual !== null) return unusual;
  const size = Math.abs(n);
  for (const [from, word] of [
    [1e12, 'trillion'],
    [1e9, 'billion'],
    [1e6, 'million'],
  ] as const) {
    if (size >= from) return `${fixed(n / from, digits)}${NBSP}${word}`;
  }
  return count(n);
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** 327,680 as "320 KiB". */
export function bytes(n: number, digits = 1): string {
  const unusual = odd(n);
  if (unusual !== null) return unusual;
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < UNITS.length - 1) {
    n /= 1024;
    unit += 1;
  }
  const text = Number.isInteger(n) ? count(n) : fixed(n, digits);
  return `${text}${NBSP}${UNITS[unit]}`;
}

/** With its sign always: "+0.31". */
export function signed(x: number, digits = 2): string {
  const text = fixed(x, digits);
  return x > 0 && Number.isFinite(x) && Number(x.toFixed(digits)) !== 0 ? `+${text}` : text;
}

/** Readable from 1e-30 to 1e30: plain between a thousandth and a million, else "1.5 × 10⁻⁹". */
export function power(x: number, digits = 3): string {
  const unusual = odd(x);
  if (unusual !== null) return unusual;
  const size = Math.abs(x);
  if (x === 0) return '0';
  if (size >= 1e-3 && size < 1e6) {
    const rounded = Number(x.toPrecision(digits));
    if (size >= 1e4) return count(x);
    return Number.isInteger(rounded) ? count(rounded) : proper(String(rounded));
  }
  const [mantissa, exponent] = x.toExponential(Math.max(0, digits - 1)).split('e');
  return `${proper(mantissa)}${NBSP}×${NBSP}10${raised(Number(exponent))}`;
}

const RAISED: Record<string, string> = {
  '-': '⁻', '0': '⁰', '1': '¹', '2': '²', '3': '³', '4': '⁴', '5': '⁵', '6': '⁶', '7': '⁷', '8': '⁸', '9': '⁹',
};

export function raised(n: number): string {
  return [...String(n)].map((sign) => RAISED[sign]).join('');
}

/** Milliseconds as a person says them: "0.8 ms", "42 ms", "3.1 s". */
export function time(ms: number): string {
  if (ms >= 1000) return `${fixed(ms / 1000, 1)}${NBSP}s`;
  return `${fixed(ms, ms < 10 ? 1 : 0)}${NBSP}ms`;
}

/** A number as it is, for a screen reader or a popover: six significant digits. */
export function exact(x: number): string {
  return odd(x) ?? proper(String(Number(x.toPrecision(6))));
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufffd]/g;

/** A token as it is shown: white space and unseen signs take a visible form, and the order of writing cannot be turned. */
export function token(text: string): string {
  return text
    .toWellFormed()
    .replace(/^ /, '·')
    .replace(/\n/g, '⏎')
    .replace(/\t/g, '⇥')
    .replace(UNSEEN, (sign) => (sign === '\ufffd' ? sign : `⟨${sign.charCodeAt(0).toString(16)}⟩`));
}

/** A text cut to a length, with an ellipsis where it was cut. */
export function cut(text: string, length: number): string {
  const signs = [...text];
  return signs.length <= length ? text : `${signs.slice(0, length - 1).join('')}…`;
}

export type Format = 'share' | 'fixed' | 'weight' | 'count' | 'short' | 'bytes' | 'signed' | 'power' | 'time' | 'exact';

const FORMATS: Record<Format, (x: number, digits?: number) => string> = {
  share, fixed, weight, count, short, bytes, signed, power, time, exact,
};

export function format(x: number, as: Format = 'fixed', digits?: number): string {
  return FORMATS[as](x, digits);
}
