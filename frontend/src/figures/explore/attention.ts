import type { How } from '../../lib/how';
import { Tensor, type Numbers } from '../../lib/tensor';
import { put, weighed } from './hows';

/** Where a weight comes from: its score, where an operation sent it; of a long text, where it did not, the row it stands in. */
export function weightHow(score: number | undefined, logSum: number | undefined, line: number[], from: string, kind = 'row'): How {
  if (score !== undefined && logSum !== undefined && Number.isFinite(score)) return weighed(score, logSum, from);
  if (score === -Infinity) return { formula: String.raw`e^{-\infty}=0`, put: 'the mask sets this score to −∞', from };
  const largest = [...line].sort((a, b) => b - a).slice(0, 3);
  return {
    formula: String.raw`w_j=\frac{e^{s_j}}{\sum_k e^{s_k}}`,
    put: `one of the ${kind} ${largest.map(put).join(', ')}${line.length > 3 ? ', …' : ''} (${line.length} weights)`,
    from: `${from}. Of a text as long as this the scores are read where the dot product is shown`,
  };
}

/** Which keys each query may look at: from `first` to the one before `end`. */
export interface Visible {
  first: Numbers;
  end: Numbers;
}

/** The keys that a query may not look at, as runs [from, to). */
export function hidden(visible: Visible | null, query: number, keys: number): [number, number][] {
  if (!visible) return [];
  const runs: [number, number][] = [
    [0, visible.first[query]],
    [visible.end[query], keys],
  ];
  return runs.filter(([from, to]) => to > from);
}

export function isHidden(visible: Visible | null, query: number, key: number): boolean {
  return visible !== null && (key < visible.first[query] || key >= visible.end[query]);
}

/** A map, and again at half the size by the largest of four cells, until it fits a small screen. */
export function mips(values: Tensor): Tensor[] {
  const found = [values];
  for (let last = values; Math.max(...last.shape) > 256; last = found[found.length - 1]) found.push(halved(last));
  return found;
}

function halved(map: Tensor): Tensor {
  const [h, w] = map.shape;
  const [high, wide] = [Math.ceil(h / 2), Math.ceil(w / 2)];
  const from = map.data;
  const to = new (from.constructor as new (n: number) => Numbers)(high * wide);
  for (let i = 0; i < high; i++) {
    const above = 2 * i * w;
    const below = Math.min(2 * i + 1, h - 1) * w;
    for (let j = 0; j < wide; j++) {
      const a = 2 * j;
      const b = Math.min(a + 1, w - 1);
      to[i * wide + j] = Math.max(from[above + a], from[above + b], from[below + a], from[below + b]);
    }
  }
  return new Tensor(to, [high, wide]);
}
