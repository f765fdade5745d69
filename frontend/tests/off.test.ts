import { describe, expect, it } from 'vitest';
import { parse, said, same, write } from '../src/figures/explore/off';

describe('what is switched off, as text', () => {
  it('goes there and back', () => {
    const text = '3.1,3.attn,2.mlp~,0.all,1.x2,1.cross,e0.3,e1.mlp,2.1:7>2,2.attn:7>0,4.0~';
    expect(write(parse(text))).toBe(text);
  });

  it('reads heads, parts and links', () => {
    expect(parse('3.1')).toEqual([{ layer: 3, part: 'mixer', stack: '', heads: [1], queries: [], keys: [], mode: 'zero' }]);
    expect(parse('e2.mlp~')).toEqual([{ layer: 2, part: 'ffn', stack: 'encoder', heads: [], queries: [], keys: [], mode: 'mean' }]);
    expect(parse('1.x4:5>0')[0]).toMatchObject({ part: 'cross', heads: [4], queries: [5], keys: [0] });
  });

  it('leaves out what is none', () => {
    for (const text of ['', 'x', '3', '3.', '.1', '-1.2', '3.1.2', '3.mlps', '3.1:2', '<script>', '99999.1', '1.1:1234567>0']) expect(parse(text)).toEqual([]);
    expect(write(parse(' 3.1 , nonsense, 2.mlp '))).toBe('3.1,2.mlp');
  });

  it('knows the same place whatever stands in it', () => {
    const [a, b, c] = parse('3.1,3.1~,3.2');
    expect(same(a, b)).toBe(true);
    expect(same(a, c)).toBe(false);
  });

  it('says it in words', () => {
    expect(parse('3.1,e0.attn,2.1:1>0').map((one) => said(one, (i) => ['the', 'cat'][i]))).toEqual([
      'head 1 of layer 3',
      'attention of encoder layer 0',
      'head 1 of layer 2, from “cat” to “the”',
    ]);
    const ends = { query: ['die', 'Katze'], key: ['the', 'cat'] };
    expect(said(parse('1.x3:0>1')[0], (i, end) => ends[end][i])).toBe('cross-attention head 3 of layer 1, from “die” to “cat”');
  });
});
