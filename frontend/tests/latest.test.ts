import { describe, expect, it } from 'vitest';
import { Latest } from '../src/lib/latest';

describe('Latest', () => {
  it('has one in flight and keeps only the newest', () => {
    const sent: number[] = [];
    const latest = new Latest<number>((question) => sent.push(question));
    for (let i = 0; i < 60; i++) latest.offer(i);
    expect(sent).toEqual([0]);
    latest.done();
    expect(sent).toEqual([0, 59]);
    latest.done();
    expect(latest.idle).toBe(true);
    latest.offer(99);
    expect(sent).toEqual([0, 59, 99]);
  });

  it('does not wait for the end of a stream', () => {
    const sent: number[] = [];
    const latest = new Latest<number>((question) => sent.push(question));
    latest.offer(1);
    latest.partial();
    latest.offer(2);
    expect(sent).toEqual([1, 2]);
    latest.offer(3); // the second has not begun to answer
    expect(sent).toEqual([1, 2]);
    latest.partial();
    expect(sent).toEqual([1, 2, 3]);
  });

  it('never loses the last of any order of offers and answers', () => {
    let seed = 5;
    const chance = () => (seed = (seed * 1664525 + 1013904223) >>> 0) / 2 ** 32;
    for (let round = 0; round < 200; round++) {
      const sent: number[] = [];
      const latest = new Latest<number>((question) => sent.push(question));
      let newest = -1;
      for (let i = 0; i < 50; i++) {
        if (chance() < 0.5) latest.offer((newest = i));
        else if (!latest.idle) chance() < 0.3 ? latest.partial() : latest.done();
      }
      while (!latest.idle) latest.done();
      if (newest >= 0) expect(sent.at(-1)).toBe(newest);
      expect([...sent].sort((a, b) => a - b)).toEqual(sent);
    }
  });
});
