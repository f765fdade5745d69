import { count, exact, power } from '../../lib/format';
import type { How } from '../../lib/how';

/** The least that a piece of work takes on a device: what it computes and what it reads. */
export interface Bound {
  seconds: number;
  flops: number;
  bytes: number;
  waits_for: string;
}
export interface Machine {
  name: string;
  bandwidth: number;
  peak: number;
}

/** Seconds: the longer of computing and reading. */
export function ofBound(bound: Bound, on: Machine, what: string): How {
  return {
    formula: String.raw`t=\max\!\left(\frac{\text{operations}}{\text{peak}},\ \frac{\text{bytes}}{\text{bandwidth}}\right)`,
    put: `max(${power(bound.flops)} / (${power(on.peak)}), ${power(bound.bytes)} / (${power(on.bandwidth)})) s`,
    from: `${what}; the peak and the bandwidth that the maker names of ${on.name}; it waits for ${bound.waits_for}`,
  };
}

/** Dollars for a million tokens, of which so many take so long. */
export function ofPrice(seconds: number, tokens: number, price: number, what: string): How {
  return {
    formula: String.raw`\frac{t}{n}\cdot 10^6\cdot\frac{\$}{3600\,\text{s}}`,
    put: `${exact(seconds)} / ${count(tokens)} × 10⁶ × ${exact(price)} / 3600`,
    from: what,
  };
}
