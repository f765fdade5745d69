import { describe, expect, it } from 'vitest';
import { Tensor } from '../src/lib/tensor';

describe('Tensor', () => {
  const cube = new Tensor(Float32Array.from({ length: 24 }, (_, i) => i), [2, 3, 4]);

  it('is read in C order', () => {
    expect(cube.at(0, 0, 0)).toBe(0);
    expect(cube.at(1, 2, 3)).toBe(23);
    expect(cube.at(1, 0, 2)).toBe(14);
  });
  it('has rows that share its numbers', () => {
    expect(cube.row(1).shape).toEqual([3, 4]);
    expect(cube.row(1, 2).list()).toEqual([20, 21, 22, 23]);
    expect(cube.row(1).lists()[0]).toEqual([12, 13, 14, 15]);
    expect(cube.row(1).data.buffer).toBe(cube.data.buffer);
  });
  it('refuses places that it does not have', () => {
    expect(() => cube.at(2, 0, 0)).toThrow(RangeError);
    expect(() => cube.at(0, -1, 0)).toThrow(RangeError);
    expect(() => cube.at(0, 0, NaN)).toThrow(RangeError);
    expect(() => new Tensor(new Float32Array(5), [2, 3])).toThrow(RangeError);
  });
  it('is made from lists', () => {
    expect(Tensor.from([[1, 2], [3, 4]]).at(1, 0)).toBe(3);
    expect(Tensor.from([1, 2, 3]).shape).toEqual([3]);
  });
});
