/**
 * What is switched off, as short text for a link: "3.1" is head 1 of layer 3, "3.attn" all its attention, "3.mlp" its
 * MLP, "3.all" all that the layer adds, "3.x1" head 1 of its cross-attention, "3.cross" all of that; "e" before it is the
 * encoder, "~" behind it the mean in place of zero, and "3.1:7>2" the link from query 7 to key 2 alone.
 */
import type { Ablation } from '../../pages/explore/types';

const ONE = /^(e?)(\d{1,4})\.(?:(x?)(\d{1,4})|(attn|mlp|cross|all))(?::(\d{1,6})>(\d{1,6}))?(~?)$/;
const PARTS = { attn: 'mixer', mlp: 'ffn', cross: 'cross', all: 'block' } as const;
const WORDS = { mixer: 'attn', ffn: 'mlp', cross: 'cross', block: 'all' } as const;
export const MOST = 256;

/** The ablations of a text; what is none is left out. */
export function parse(text: string): Ablation[] {
  const found: Ablation[] = [];
  for (const part of text.split(',').slice(0, MOST)) {
    const match = ONE.exec(part.trim());
    if (!match) continue;
    const [, encoder, layer, crossed, head, word, query, key, mean] = match;
    found.push({
      layer: Number(layer),
      part: head === undefined ? PARTS[word as keyof typeof PARTS] : crossed ? 'cross' : 'mixer',
      stack: encoder ? 'encoder' : '',
      heads: head === undefined ? [] : [Number(head)],
      queries: query === undefined ? [] : [Number(query)],
      keys: key === undefined ? [] : [Number(key)],
      mode: mean ? 'mean' : 'zero',
    });
  }
  return found;
}

export function write(off: Ablation[]): string {
  return off.map(one).join(',');
}

function one({ layer, part = 'mixer', stack, heads, queries, keys, mode }: Ablation): string {
  const what = heads?.length ? `${part === 'cross' ? 'x' : ''}${heads[0]}` : WORDS[part];
  const link = queries?.length && keys?.length ? `:${queries[0]}>${keys[0]}` : '';
  return `${stack ? 'e' : ''}${layer}.${what}${link}${mode === 'mean' && !link ? '~' : ''}`;
}

/** In words: "head 1 of layer 3". */
export function said({ layer, part = 'mixer', stack, heads, queries, keys }: Ablation, token: (i: number, end: 'query' | 'key') => string = String): string {
  const where = `${stack ? 'encoder ' : ''}layer ${layer}`;
  const kinds = { mixer: 'attention', ffn: 'the MLP', cross: 'cross-attention', block: 'all' };
  const which = heads?.length ? `${part === 'cross' ? 'cross-attention head' : 'head'} ${heads[0]}` : kinds[part];
  const link = queries?.length && keys?.length ? `, from “${token(queries[0], 'query')}” to “${token(keys[0], 'key')}”` : '';
  return `${which} of ${where}${link}`;
}

/** Whether two take out the same place. */
export function same(a: Ablation, b: Ablation): boolean {
  return one({ ...a, mode: 'zero' }) === one({ ...b, mode: 'zero' });
}
