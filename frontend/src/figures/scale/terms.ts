import { count, power } from '../../lib/format';
import type { How } from '../../lib/how';

/** Layers of a model that keep alike, as `clearhead.studio.lesson.scale.terms` tells them. */
export interface Term {
  kind: string;
  layers: number;
  kv_heads: number | null;
  d_head: number | null;
  latent: number | null;
  width: number;
  tokens: number;
  reach: number | null;
  fixed: number;
  per_token: number;
  fixed_in_all: number;
  total: number;
}

/** What a token takes in these layers, without its value: "2 × 80 layers × 8 key-value heads × 128 numbers × 2 B". */
function product(term: Term): string {
  if (term.kv_heads !== null) return `2 × ${term.layers} layers × ${term.kv_heads} key-value heads × ${term.d_head} numbers × ${term.width} B`;
  if (term.latent !== null) return `${term.layers} layers × ${count(term.latent)} numbers × ${term.width} B`;
  return `${term.layers} layers × ${count(term.fixed)} B`;
}

/** One term as a sentence of the formula, with its value. */
export function said(term: Term): string {
  if (term.per_token === 0) return `${product(term)} = ${count(term.fixed_in_all)} B, whatever the length`;
  const far = term.reach === null ? '' : `, of ${count(term.reach)} tokens at most`;
  return `${product(term)} = ${count(term.per_token)} B a token${far}`;
}

/** Bytes of one token of one text. */
export function ofToken(terms: Term[], name: string): How {
  const growing = terms.filter((term) => term.per_token > 0);
  const latent = growing.some((term) => term.latent !== null);
  return {
    formula: growing.length === 0 ? String.raw`\textstyle\sum_{\text{layers}}\text{bytes of a token}` : latent ? String.raw`L\,(C+R)\,b` : String.raw`2\,L\,G\,K\,b`,
    put: growing.length ? growing.map(product).join(' + ') : 'no layer keeps anything of a single token',
    from: latent
      ? `the config of ${name}: layers L, numbers C of the vector that keys and values are made from and R of a rotated key, bytes of a number b`
      : `the config of ${name}: layers L, key-value heads G, width of a head K, bytes of a number b; 2 for keys and values`,
  };
}

/** Bytes of all that so many texts keep. */
export function ofState(terms: Term[], batch: number, name: string): How {
  const one = (term: Term) =>
    [
      ...(term.per_token ? [`${count(batch)} × ${count(term.tokens)} × ${count(term.per_token)} B`] : []),
      ...(term.fixed_in_all ? [`${count(batch)} × ${count(term.fixed_in_all)} B`] : []),
    ].join(' + ');
  return {
    formula: String.raw`B\,\textstyle\sum_{\text{layers}}(\text{kept tokens}\cdot\text{bytes of one}+\text{fixed})`,
    put: terms.map(one).filter(Boolean).join(' + ') || '0',
    from: `texts at once × tokens that are kept of each × bytes of one, by kind of layer: ${[...new Set(terms.map((term) => term.kind))].join(', ')}; the config of ${name}`,
  };
}

/** Bytes that the next token adds: those of the layers which are not full. */
export function ofGrowth(terms: Term[], context: number): How {
  const growing = terms.filter((term) => term.per_token > 0 && (term.reach === null || term.reach > context));
  return {
    formula: String.raw`\textstyle\sum_{\text{layers that grow}}\text{bytes of a token}`,
    put: growing.length ? growing.map(product).join(' + ') : 'no layer grows at this length',
    from: 'windows that are full and scans add nothing',
  };
}

/** Bytes of weights. */
export function ofWeights(parameters: number, width: number): How {
  return { formula: String.raw`N\,b`, put: `${count(parameters)} × ${width} B`, from: 'every tensor that loading allocates, once, times the bytes of a number' };
}

/** Parameters, part by part. */
export function ofParameters(parts: Record<string, number>): How {
  const found = Object.entries(parts);
  return { formula: String.raw`\textstyle\sum_{\text{parts}}\sum_W|W|`, put: found.map(([, n]) => count(n)).join(' + '), from: `${found.map(([name]) => name).join(', ')}: every tensor that loading allocates, counted from the config` };
}

/** Parameters that work on one token. */
export function ofActive(total: number, idle: number): How {
  return {
    formula: String.raw`N-\textstyle\sum_{\text{experts not chosen}}|W|`,
    put: `${count(total)} − ${count(idle)}`,
    from: 'all parameters, less the experts that a token does not go to',
  };
}

/** How many weights there are of each shape. */
export type Shapes = [number, number[]][];
const MOST = 6;

/** The numbers of some tensors: "80 × 8,192 × 1,024 + …". */
export function ofShapes(shapes: Shapes, from: string): How {
  const one = ([n, shape]: Shapes[number]) => [...(n > 1 ? [n] : []), ...shape].map((x) => count(x)).join(' × ');
  const rest = shapes.length - MOST;
  return {
    formula: String.raw`\textstyle\sum_{W}|W|`,
    put: shapes.slice(0, MOST).map(one).join(' + ') + (rest > 0 ? ` + … (${rest} more shapes)` : ''),
    from,
  };
}

/** What attention moves in layers whose heads are alike, as `clearhead.studio.lesson.scale.terms` tells it. */
export interface Moved {
  layers: number;
  heads: number;
  d_key: number;
  d_value: number;
  queries: number;
  keys: number;
  blocks: number;
}

export function ofTraffic(terms: Moved[], width: number): How {
  return {
    formula: String.raw`b\,\textstyle\sum_{\text{layers}}H\bigl((n+m)(d_k+d_v)+4nm\bigr)`,
    put: terms.map((t) => `${width} × ${t.layers} × ${t.heads} × ((${count(t.queries)} + ${count(t.keys)}) × (${t.d_key} + ${t.d_value}) + 4 × ${count(t.queries)} × ${count(t.keys)})`).join(' + ') || '0',
    from: 'n queries, m keys of each head H of each layer, in numbers of b bytes; scores and weights are written out and read again (Dao 2022, algorithm 0)',
  };
}

export function ofTiles(terms: Moved[], width: number): How {
  return {
    formula: String.raw`b\,\textstyle\sum_{\text{layers}}H\bigl(m(d_k+d_v)+T_c\,n(d_k+2d_v)\bigr)`,
    put: terms.map((t) => `${width} × ${t.layers} × ${t.heads} × (${count(t.keys)} × (${t.d_key} + ${t.d_value}) + ${count(t.blocks)} × ${count(t.queries)} × (${t.d_key} + 2 × ${t.d_value}))`).join(' + ') || '0',
    from: 'keys and values once; queries and outputs once for each of the T_c blocks of keys that fit the fast memory (Dao 2022, algorithm 1)',
  };
}

/** Digit by digit, as far as a number of JavaScript has them all. */
const whole = (n: number) => (Number.isSafeInteger(n) ? count(n) : power(n, 6));

/** Operations of products of matrices, and of attention's own products. */
export function ofWork(linear: number, quadratic: number, what: string): How {
  return {
    formula: String.raw`a\,n+b\,n^2`,
    put: `${whole(linear)} + ${whole(quadratic)}`,
    from: `${what}: products with weights, which grow with the tokens, and attention’s own products, which grow with their square`,
  };
}

/** The sum of parts that have names. */
export function ofParts(parts: Record<string, number>, from: string): How {
  const found = Object.entries(parts).filter(([, n]) => n > 0);
  return { formula: String.raw`\textstyle\sum_{\text{parts}}`, put: found.map(([, n]) => count(n)).join(' + '), from: `${found.map(([name]) => name).join(', ')}: ${from}` };
}

/** How many texts there is room for. */
export function ofRoom(memory: number, weights: number, perText: number): How {
  return {
    formula: String.raw`\left\lfloor\frac{\text{memory}-\text{weights}}{\text{state of a text}}\right\rfloor`,
    put: `(${count(memory)} − ${count(weights)}) / ${count(perText)}`,
    from: 'bytes; the state of a text at its full length',
  };
}
