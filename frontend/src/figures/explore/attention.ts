import { Tensor, type Numbers } from '../../lib/tensor';

/** What queries of a layer may look at: nothing after themselves, or nothing farther than a window. */
export interface Masked {
  mask: 'causal' | 'full';
  window: number | null;
}

/** The keys that a query may not look at, as runs [from, to). A window of a causal layer counts the query itself. */
export function hidden({ mask, window }: Masked, query: number, keys: number): [number, number][] {
  const runs: [number, number][] = [];
  const first = window === null ? 0 : mask === 'causal' ? query - window + 1 : query - window;
  if (first > 0) runs.push([0, Math.min(first, keys)]);
  const last = mask === 'causal' ? query : window === null ? keys - 1 : query + window;
  if (last + 1 < keys) runs.push([last + 1, keys]);
  return runs;
}

export function isHidden(masked: Masked, query: number, key: number, keys: number): boolean {
  return hidden(masked, query, keys).some(([from, to]) => key >= from && key < to);
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
