import { describe, expect, it } from 'vitest';
import { hidden, isHidden, mips } from '../src/figures/explore/attention';
import { Tensor } from '../src/lib/tensor';
import { chosen, namesOf, tokensOf, word, type RunRecord, type Token } from '../src/pages/explore/types';

const token = (text: string): Token => ({ id: 1, text, start: 0, end: 0 });

describe('what a mask hides', () => {
  const visible = { first: Int32Array.from([0, 0, 1]), end: Int32Array.from([1, 2, 4]) };
  it('is nothing where there is none', () => {
    expect(hidden(null, 1, 4)).toEqual([]);
    expect(isHidden(null, 1, 3)).toBe(false);
  });
  it('is what stands before the first key and from the end on', () => {
    expect(hidden(visible, 0, 4)).toEqual([[1, 4]]);
    expect(hidden(visible, 2, 4)).toEqual([[0, 1]]);
    expect(hidden({ first: Int32Array.of(2), end: Int32Array.of(3) }, 0, 9)).toEqual([[0, 2], [3, 9]]);
  });
  it('is asked of one cell', () => {
    expect([0, 1, 2, 3].map((key) => isHidden(visible, 1, key))).toEqual([false, false, true, true]);
    expect(isHidden(visible, 2, 0)).toBe(true);
  });
});

describe('halved maps', () => {
  it('keep the largest of four, at odd edges too', () => {
    const map = new Tensor(new Uint8Array(300 * 257), [300, 257]);
    map.data[299 * 257 + 256] = 200;
    map.data[1] = 90;
    const [, half] = mips(map);
    expect(half.shape).toEqual([150, 129]);
    expect(half.at(149, 128)).toBe(200);
    expect(half.at(0, 0)).toBe(90);
  });
  it('stop where a map is small', () => {
    expect(mips(new Tensor(new Float32Array(6), [2, 3]))).toHaveLength(1);
  });
});

describe('tokens', () => {
  it('are words without the marks of spaces', () => {
    expect(word(token('·the'))).toBe('the');
    expect(word(token('·'))).toBe('·');
    expect(word(token('a'.repeat(400)))).toBe(`${'a'.repeat(23)}…`);
    expect(word(undefined)).toBe('');
  });
  it('carry their place where they occur more than once', () => {
    expect(namesOf(['·old', '·ship', 'old'].map(token))).toEqual(['old₀', 'ship', 'old₂']);
  });
  it('are those of a stack, and the last of a text is chosen where none is', () => {
    const run = {
      tokens: ['a', 'b', 'c'].map(token), sources: ['x', 'y'].map(token),
      reads: [{ stack: '', kind: 'text' }, { stack: 'encoder', kind: 'sound' }],
    } as unknown as RunRecord;
    expect(tokensOf(run, '').length).toBe(3);
    expect(tokensOf(run, 'encoder').length).toBe(2);
    expect([chosen(run, '', -1), chosen(run, '', 9), chosen(run, 'encoder', -1)]).toEqual([2, 2, 0]);
  });
});
