import { exact } from '../../lib/format';

/** The steps of attention, in order, and what a formula looks like with its values put in. */
export const STEPS = ['score', 'scale', 'mask', 'softmax', 'mix'] as const;
export type Step = (typeof STEPS)[number];
export const NAMES: Record<Step, string> = { score: 'Score', scale: 'Scale', mask: 'Mask', softmax: 'Normalise', mix: 'Mix' };

function bracketed(x: number): string {
  return x < 0 ? `(${exact(x)})` : exact(x);
}

function short(x: number, digits: number): string {
  return bracketed(Number(x.toPrecision(digits)));
}

/** "1 × 1 + 2 × 2" of pairs. */
export function sum(pairs: number[][], digits = 6): string {
  return pairs.length === 0 ? '0' : pairs.map(([a, b]) => `${short(a, digits)} × ${short(b, digits)}`).join(' + ');
}

/** "1.4 × 5 / 2". */
export function scaling(beta: number, score: number, divisor: number): string {
  const times = beta === 1 ? '' : `${exact(beta)} × `;
  const over = divisor === 1 ? '' : ` / ${exact(divisor)}`;
  return `${times}${bracketed(score)}${over}`;
}

const MOST = 12;

/** "e^2.5 / (e^0 + e^2.5 + …)" of a row of scores, in which a masked one adds nothing. */
export function exponents(row: number[], j: number): string {
  const seen = row.filter((x) => x !== -Infinity);
  const terms = seen.slice(0, MOST).map((x) => `e^${short(x, 3)}`);
  return `e^${short(row[j], 3)} / (${terms.join(' + ')}${seen.length > MOST ? ' + …' : ''})`;
}
