import { describe, expect, it } from 'vitest';
import { hidden, isHidden, mips } from '../src/figures/explore/attention';
import { Tensor } from '../src/lib/tensor';
import { chosen, namesOf, tokensOf, word, type RunRecord, type Token } from '../src/pages/explore/types';

const token = (text: string): Token => ({ id: 1, text, start: 0, end: 0 });

describe('what a mask hides', () => {
  it('hides nothing where all is seen', () => {
    expect(hidden({ mask: 'full', window: null }, 3, 8)).toEqual([]);
  });
  it('hides what comes later', () => {
    expect(hidden({ mask: 'causal', window: null }, 3, 8)).toEqual([[4, 8]]);
    expect(hidden({ mask: 'causal', window: null }, 7, 8)).toEqual([]);
  });
  it('counts the query itself in a causal window, and not in one on both sides', () => {
    expect(hidden({ mask: 'causal', window: 2 }, 5, 8)).toEqual([[0, 4], [6, 8]]);
    expect(hidden({ mask: 'full', window: 2 }, 5, 9)).toEqual([[0, 3], [8, 9]]);
  });
  it('is asked of one cell', () => {
    expect(isHidden({ mask: 'causal', window: 2 }, 5, 3, 8)).toBe(true);
    expect(isHidden({ mask: 'causal', window: 2 }, 5, 4, 8)).toBe(false);
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
