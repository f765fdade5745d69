import { describe, expect, it } from 'vitest';
import { ofMeasured } from '../src/figures/claims/working';
import { ofBound, ofPrice } from '../src/figures/scale/bounds';
import { ofActive, ofGrowth, ofShapes, ofState, ofTiles, ofToken, ofTraffic, ofWeights, said, type Term } from '../src/figures/scale/terms';
import { ofSoftmax } from '../src/figures/ways';

/** What is put into a formula, worked out: it is plain arithmetic, with names of what is counted between. */
function worked(put: string): number {
  const plain = put
    .replaceAll(',', '')
    .replace(/\u00a0×\u00a010([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/g, (_, raised: string) => `e${[...raised].map((sign) => '⁰¹²³⁴⁵⁶⁷⁸⁹'.indexOf(sign)).map((n) => (n < 0 ? '-' : n)).join('')}`)
    .replace('10⁶', '1e6')
    .replaceAll('×', '*')
    .replaceAll('−', '-')
    .replace(/\b(key-value|layers|heads|numbers|B|s)\b/g, '');
  expect(plain).toMatch(/^[\d\s.e+*/()-]+$/);
  return Function(`return ${plain}`)() as number;
}

const LLAMA: Term = {
  kind: 'grouped', layers: 80, kv_heads: 8, d_head: 128, latent: null, width: 2, tokens: 8192, reach: null, fixed: 0,
  per_token: 327_680, fixed_in_all: 0, total: 2_684_354_560,
};
const SCANS: Term = {
  kind: 'scan', layers: 64, kv_heads: null, d_head: null, latent: null, width: 2, tokens: 8192, reach: null, fixed: 358_400,
  per_token: 0, fixed_in_all: 22_937_600, total: 22_937_600,
};
const WINDOW: Term = { ...LLAMA, kind: 'window', tokens: 4096, reach: 4096, total: 1_342_177_280 };

describe('what is put in gives what is shown', () => {
  it('of a token', () => {
    expect(worked(ofToken([LLAMA], 'llama').put)).toBe(327_680);
    expect(worked(ofToken([LLAMA, SCANS], 'both').put)).toBe(327_680);
    expect(ofToken([SCANS], 'mamba').put).toContain('no layer');
  });
  it('of texts', () => {
    expect(worked(ofState([LLAMA, SCANS], 3, 'both').put)).toBe(3 * (LLAMA.total + SCANS.total));
    expect(worked(ofState([WINDOW], 1, 'window').put)).toBe(WINDOW.total);
  });
  it('of the next token', () => {
    expect(worked(ofGrowth([LLAMA, WINDOW], 8192).put)).toBe(327_680);
    expect(worked(ofGrowth([LLAMA, WINDOW], 100).put)).toBe(2 * 327_680);
    expect(ofGrowth([WINDOW, SCANS], 8192).put).toContain('no layer');
  });
  it('of weights, tensors and experts', () => {
    expect(worked(ofWeights(70_553_706_496, 2).put)).toBe(141_107_412_992);
    expect(worked(ofActive(46_702_792_704, 33_822_867_456).put)).toBe(12_879_925_248);
    expect(worked(ofShapes([[80, [8192, 1024]], [1, [8192]]], '').put)).toBe(80 * 8192 * 1024 + 8192);
    expect(ofShapes(Array.from({ length: 9 }, () => [1, [2]]), '').put).toContain('3 more shapes');
  });
  it('of what attention moves', () => {
    const heads = { layers: 2, heads: 3, d_key: 4, d_value: 5, queries: 16, keys: 8, blocks: 4 };
    expect(worked(ofTraffic([heads], 2).put)).toBe(2 * 2 * 3 * (24 * 9 + 4 * 16 * 8));
    expect(worked(ofTiles([heads, heads], 2).put)).toBe(2 * (2 * 2 * 3 * (8 * 9 + 4 * 16 * 14)));
  });
  it('of a bound and a price', () => {
    const bound = { seconds: 2, flops: 4e12, bytes: 3e9, waits_for: 'arithmetic' };
    const machine = { name: 'one', bandwidth: 3e9, peak: 2e12 };
    const put = ofBound(bound, machine, '').put;
    expect(put).toBe('max(4.00\u00a0×\u00a010¹² / (2.00\u00a0×\u00a010¹²), 3.00\u00a0×\u00a010⁹ / (3.00\u00a0×\u00a010⁹)) s');
    expect(worked(ofPrice(0.02, 1, 12, '').put)).toBeCloseTo((0.02 * 1e6 * 12) / 3600, 9);
  });
  it('says a term as a sentence', () => {
    expect(said(LLAMA)).toBe('2 × 80 layers × 8 key-value heads × 128 numbers × 2 B = 327,680 B a token');
    expect(said(WINDOW)).toContain('4,096 tokens at most');
    expect(said(SCANS)).toBe('64 layers × 358,400 B = 22,937,600 B, whatever the length');
  });
  it('of a softmax', () => {
    expect(ofSoftmax(1.5, 2.25, 'these').put).toBe('e^1.500 / e^2.250');
  });
  it('of a claim’s number', () => {
    expect(ofMeasured({ name: 'x', each: [1, 2, 6], low: 0, high: 6 }, 'm').put).toBe('(1 + 2 + 6) / 3');
    expect(ofMeasured({ name: 'x', each: [1], low: 1, high: 1 }, 'm').formula).toContain('as measured');
  });
});
