import { describe, expect, it } from 'vitest';
import { added, chance, difference, drawn, length, logit, products, put, way, weighed } from '../src/figures/explore/hows';
import { weightHow } from '../src/figures/explore/attention';

describe('values put into a formula', () => {
  it('have three places, or four digits where they are small', () => {
    expect([5.5917, -0.0264, 27, 0.00014421, 12345.6].map(put)).toEqual(['5.592', '−0.0264', '27', '1.442 × 10⁻⁴', '12,346'].map((x) => x.replaceAll(' ', '\u00a0')));
  });

  it('are added and multiplied with their signs', () => {
    expect(added([0.5, -0.25, 2])).toBe('0.5 − 0.25 + 2');
    expect(added([0.5, -0.25], 64)).toBe('0.5 − 0.25 + … (64 terms)');
    expect(products([[2, -3], [0.5, 4]], 9)).toBe('2 × (−3) + 0.5 × 4 + … (9 products)');
  });

  it('stand in an exponent', () => {
    expect(chance(5.592, 8.932, '').put).toBe('e^(5.592 − 8.932)');
    expect(chance(-1, -0.5, '').put).toBe('e^(−1 + 0.5)');
    expect(drawn(6.041, 0.8, 9.984, '').put).toBe('e^(6.041 / 0.8 − 9.984)');
    expect(weighed(2, 3, '').put).toBe('e^(2 − 3)');
  });

  it('say what a head does to the sum: its scale, its bias, its cap', () => {
    const pairs: [number, number][] = [[2, 3]];
    expect(logit({ pairs, of: 1 }, 'a', 'at token 1').put).toBe('2 × 3');
    expect(logit({ pairs, of: 1, bias: -0.5, scale: 0.25 }, 'a', '').put).toBe('0.25 × (2 × 3) − 0.5');
    const capped = logit({ pairs, of: 1, cap: 30 }, 'a', '');
    expect(capped.put).toBe('30 × tanh((2 × 3) / 30)');
    expect(capped.formula).toContain('tanh');
  });

  it('keep a sign in a difference, a way and a length', () => {
    expect(difference('', 1.5, -2, '').put).toBe('1.5 + 2'.replace('1.5', '1.500'));
    expect(way(-1, 2, -3, '').put).toBe('(−1 + 3) / (2 + 3)');
    expect(length({ first: [3, -4], n: 2 }, '').put).toBe('√(3² + (−4)²)');
  });
});

describe('a weight', () => {
  it('is told by its score where that is known, and by its row where it is not', () => {
    expect(weightHow(1, 2, [0.5], 'here').put).toBe('e^(1 − 2)');
    expect(weightHow(undefined, undefined, [0.1, 0.6, 0.2, 0.1], 'here').put).toBe('one of the row 0.6, 0.2, 0.1, … (4 weights)');
    expect(weightHow(-Infinity, 2, [0.4, 0.6], 'here').put).toContain('the mask');
  });
});
