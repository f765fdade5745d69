import { describe, expect, it } from 'vitest';
import { choice, flag, integer, integers, number, numbers, parameters, searchOf, text, type Codec } from '../src/lib/codec';

/** The same numbers every time. */
function random(seed: number): () => number {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

const chance = random(7);
const anyText = (length: number) =>
  Array.from({ length }, () => String.fromCodePoint(Math.floor(chance() * (chance() < 0.5 ? 128 : 0x10ffff)))).join('').toWellFormed();

const cases: [string, Codec<any>, () => unknown][] = [
  ['number', number(1, -5, 5), () => chance() * 10 - 5],
  ['tiny number', number(1, 0, 5), () => chance() * 1e-9],
  ['integer', integer(0, -100, 100), () => Math.floor(chance() * 201) - 100],
  ['flag', flag(true), () => chance() < 0.5],
  ['choice', choice('none', ['none', 'causal', 'a b&c=d']), () => ['none', 'causal', 'a b&c=d'][Math.floor(chance() * 3)]],
  ['text', text('', 400), () => anyText(Math.floor(chance() * 100))],
  ['numbers', numbers([], -1, 1), () => Array.from({ length: Math.floor(chance() * 9) }, () => chance() * 2 - 1)],
  ['integers', integers([], 0, 9), () => Array.from({ length: Math.floor(chance() * 9) }, () => Math.floor(chance() * 10))],
];

describe('codec', () => {
  it.each(cases)('%s: what is written is read back', (_, codec, any) => {
    for (let i = 0; i < 400; i++) {
      const value = any();
      const search = searchOf([['k', codec.encode(value)]]);
      expect(codec.decode(new Map(parameters(search)).get('k')!)).toEqual(value);
    }
  });

  it.each(cases)('%s: no text breaks it', (_, codec) => {
    const hostile = ['', ' ', '1e999', 'NaN', '-Infinity', '0x10', '<script>', '__proto__', '1,2,,3', ','.repeat(9999), '9'.repeat(9999), 'null', '1 ', '١'];
    for (const bad of [...hostile, ...Array.from({ length: 200 }, () => anyText(12))]) {
      const read = codec.decode(bad);
      if (read !== null) expect(codec.decode(codec.encode(read))).toEqual(read);
    }
  });

  it('refuses what is out of range', () => {
    expect(number(1, 0, 4).decode('4.01')).toBeNull();
    expect(number(1, 0, 4).decode('NaN')).toBeNull();
    expect(integer(1, 0, 4).decode('1.5')).toBeNull();
    expect(choice('a', ['a', 'b']).decode('c')).toBeNull();
    expect(text('', 5).decode('sixsix')).toBeNull();
    expect(integers([], 0, 3, 2).decode('1,2,3')).toBeNull();
  });

  it('holds what is set within its range', () => {
    expect(number(1, 0, 4).encode(9)).toBe('4');
    expect(number(1, 0, 4).encode(NaN)).toBe('1');
    expect(text('', 3).encode('abcdef')).toBe('abc');
    expect(text('', 3).encode('ab\u{1F600}')).toBe('ab\ufffd');
  });
});

describe('query strings', () => {
  it('round trip', () => {
    for (let i = 0; i < 200; i++) {
      const entries = Array.from({ length: Math.floor(chance() * 6) }, (_, k) => [`k${k}`, anyText(8)] as [string, string]);
      expect(parameters(searchOf(entries))).toEqual(entries);
      expect(searchOf(parameters(searchOf(entries)))).toBe(searchOf(entries));
    }
  });
  it('carry the version, and another one says nothing', () => {
    expect(searchOf([['q', '7']])).toBe('?v=1&q=7');
    expect(searchOf([])).toBe('');
    expect(parameters('?q=7')).toEqual([['q', '7']]);
    expect(parameters('?v=2&q=7')).toEqual([]);
  });
});
