/**
 * Where the explorer's numbers come from: formulas with their values put in. Every value is one that an operation sent;
 * nothing is computed here.
 */
import { count, fixed, power } from '../../lib/format';
import type { How } from '../../lib/how';

/** The first terms of a sum, how many there are, and what they come to. */
export interface Terms {
  first: number[];
  n: number;
  sum?: number;
}

/** How the vocabulary head makes a logit: the first products of a stream's number and a weight, and what follows. */
export interface ReadOut {
  pairs?: [number, number][];
  of?: number;
  sum?: number;
  bias?: number | null;
  scale?: number;
  cap?: number | null;
  /** Whether the head makes something of the stream before it reads it. */
  transforms?: boolean;
  logit?: number;
}

/** A value inside a line of arithmetic: three places behind the point, and four digits of what is smaller than 1. */
export function put(x: number): string {
  const size = Math.abs(x);
  return size >= 1 && size < 1e4 && !Number.isInteger(x) ? fixed(x, 3) : power(x, 4);
}

/** "0.31 − 0.2 + … (64 terms)". */
export function added(first: number[], n = first.length, what = 'terms'): string {
  const line = first.map((x, i) => (i === 0 ? put(x) : x < 0 ? ` − ${put(-x)}` : ` + ${put(x)}`)).join('');
  return n > first.length ? `${line} + … (${count(n)} ${what})` : line;
}

function less(x: number): string {
  return x < 0 ? `+ ${put(-x)}` : `− ${put(x)}`;
}

function factor(x: number): string {
  return x < 0 ? `(${put(x)})` : put(x);
}

export function products(pairs: [number, number][], n: number): string {
  const line = pairs.map(([a, b]) => `${factor(a)} × ${factor(b)}`).join(' + ');
  return n > pairs.length ? `${line} + … (${count(n)} products)` : line;
}

/** A probability of a softmax, from a logit and the logarithm of what the softmax divides by. */
export function chance(logit: number, logSum: number, from: string): How {
  return {
    formula: String.raw`p=\frac{e^{z}}{\sum_v e^{z_v}}=e^{\,z-\ln\sum_v e^{z_v}}`,
    put: `e^(${put(logit)} ${less(logSum)})`,
    from,
  };
}

/** What temperature, top-k and top-p make of it. */
export function drawn(logit: number, temperature: number, logSum: number, from: string): How {
  return {
    formula: String.raw`p'=\frac{e^{z/T}}{\sum_{v\ \mathrm{kept}} e^{z_v/T}}`,
    put: `e^(${put(logit)} / ${put(temperature)} ${less(logSum)})`,
    from,
  };
}

/** A weight of attention, from a score and the logarithm of what the softmax of its row divides by. */
export function weighed(score: number, logSum: number, from: string): How {
  return {
    formula: String.raw`w_j=\frac{e^{s_j}}{\sum_k e^{s_k}}=e^{\,s_j-\ln\sum_k e^{s_k}}`,
    put: `e^(${put(score)} ${less(logSum)})`,
    from,
  };
}

/** A logit, from the stream and a row of the vocabulary’s matrix; of a model of labels, from its scores. */
export function logit(made: ReadOut, token: string, where: string): How {
  const { pairs, of = 0, bias = null, scale = 1, cap = null, transforms = false } = made;
  if (!pairs) {
    return { formula: String.raw`z_c=w_c\cdot x+b_c`, put: `the score of “${token}”`, from: `${where}: the model’s head over its labels` };
  }
  const inner = `${String.raw`\textstyle\sum_i x_i W_{ti}`}${scale === 1 ? '' : String.raw`\cdot s`}${bias === null ? '' : '+b_t'}`;
  const sum = products(pairs, of);
  const scaled = scale === 1 ? sum : `${put(scale)} × (${sum})`;
  const biased = bias === null ? scaled : `${scaled} ${bias < 0 ? '−' : '+'} ${put(Math.abs(bias))}`;
  return {
    formula: cap ? String.raw`z_t=c\tanh\!\bigl((${inner})/c\bigr)` : `z_t=${inner}`,
    put: cap ? `${put(cap)} × tanh((${biased}) / ${put(cap)})` : biased,
    from: `${transforms ? 'what the head’s transform makes of the finished stream' : 'the finished stream (final)'} ${where}, and the row of “${token}” in the vocabulary’s matrix`,
  };
}

/** A rank among all tokens: one more than there are above. */
export function rank(above: number, logitOf: number, of: number | null, token: string): How {
  return {
    formula: String.raw`1+\#\{v: z_v>z_t\}`,
    put: `1 + ${count(above)}`,
    from: `logits above ${put(logitOf)}, that of “${token}”${of === null ? '' : `, among ${count(of)}`}`,
  };
}

/** How unsure a distribution is, from its largest shares. */
export function entropy(largest: number[], of: number | null, from: string): How {
  const few = largest.slice(0, 3).map((p) => `${put(p)} ln ${put(p)}`).join(' + ');
  return {
    formula: String.raw`H=-\textstyle\sum_v p_v\ln p_v`,
    put: `−(${few}${of === null || of > 3 ? ` + …` : ''})${of === null ? '' : `, over ${count(of)} tokens`}`,
    from,
  };
}

/** As many equally likely tokens as have this entropy or loss. */
export function many(nats: number, from: string): How {
  return { formula: String.raw`e^{H}`, put: `e^${put(nats)}`, from };
}

export function mean(terms: Terms, from: string): How {
  return {
    formula: String.raw`\frac1n\textstyle\sum_i x_i`,
    put: `(${added(terms.first, terms.n)}) / ${count(terms.n)}`,
    from,
  };
}

/** What a token cost: the logarithm of 1 over its probability. */
export function dear(logitOf: number, logSum: number, from: string): How {
  return { formula: String.raw`-\ln p=\ln\textstyle\sum_v e^{z_v}-z`, put: `${put(logSum)} ${less(logitOf)}`, from };
}

/** The mean of what the tokens of a text cost. */
export function cost(terms: Terms, from: string): How {
  return {
    formula: String.raw`L=\frac1n\textstyle\sum_t -\ln p(x_{t+1}\mid x_{\le t})`,
    put: `(${added(terms.first, terms.n)}) / ${count(terms.n)}`,
    from,
  };
}

/** One number less another. */
export function difference(formula: string, a: number, b: number, from: string): How {
  return { formula, put: `${put(a)} ${less(b)}`, from };
}

/** How far from the second text to the first. */
export function way(patched: number, first: number, second: number, from: string): How {
  return {
    formula: String.raw`\frac{m-m_2}{m_1-m_2}`,
    put: `(${put(patched)} ${less(second)}) / (${put(first)} ${less(second)})`,
    from,
  };
}

/** The length of a vector: the root of the sum of its squares. */
export function length(terms: Terms, from: string): How {
  const squares = terms.first.map((x) => `${factor(x)}²`).join(' + ');
  return {
    formula: String.raw`\lVert h\rVert=\sqrt{\textstyle\sum_i h_i^2}`,
    put: `√(${squares}${terms.n > terms.first.length ? ` + … (${count(terms.n)} numbers)` : ''})`,
    from,
  };
}

/** A sum of named parts: the largest in size first. */
export function parts(values: number[], formula: string, from: string, most = 4): How {
  const order = values.map((value) => value).sort((a, b) => Math.abs(b) - Math.abs(a));
  return { formula, put: added(order.slice(0, most), values.length, 'parts'), from };
}

/** What changed: the same number before and after. */
export function change(after: number, before: number, from: string): How {
  return difference(String.raw`m_{\mathrm{without}}-m`, after, before, from);
}

