import { describe, expect, it } from 'vitest';
import { RIGHT, scenarios } from '../src/figures/check/scenarios';

const numbers = { factor: 0.95, words: 100, left: 0.005921, mlp: 0.6663, context: 8192, many: 21474836480, few: 2684354560, times: 8, layers: 80, heads: 64, kv_heads: 8, d_head: 128 };

describe('the scenarios of the check', () => {
  const all = scenarios(numbers);

  it('are six, each of four options with a reason', () => {
    expect(all).toHaveLength(6);
    expect(RIGHT).toHaveLength(6);
    for (const { options } of all) {
      expect(options).toHaveLength(4);
      expect(new Set(options.map(({ says }) => says)).size).toBe(4);
      for (const { reason } of options) expect(reason).toMatch(/\.$/);
    }
  });

  it('begin with the trophy, whose answer is attention', () => {
    expect(all[0].asks).toContain('trophy');
    expect(all[0].options[all[0].right].says).toMatch(/^Attention/);
  });

  it('have their answers where they are counted, and not all in one place', () => {
    expect(all.map(({ right }) => right)).toEqual([...RIGHT]);
    expect(new Set(RIGHT).size).toBe(4);
  });

  it('name the numbers that they were given', () => {
    const text = JSON.stringify(all);
    for (const part of ['0.6\u00a0%', '66.6\u00a0%', '20\u00a0GiB', '2.5\u00a0GiB', '8 times']) expect(text).toContain(part);
  });
});
