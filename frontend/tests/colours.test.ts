import { describe, expect, it } from 'vitest';
import { divergingTable, index, inkOn, largest, luminance, stops, table } from '../src/lib/colours';
import { paint, shareOf } from '../src/marks/paint';
import tokens from '../src/styles/tokens.css?raw';

const ramps = [...tokens.matchAll(/--ramp-(ink|diverging):\s*([^;]+);/g)].map(([, name, list]) => ({ name, list }));

describe('ramps', () => {
  it('are two in each theme', () => expect(ramps.map(({ name }) => name)).toEqual(['ink', 'diverging', 'ink', 'diverging']));

  it.each(ramps.filter(({ name }) => name === 'ink'))('ink has a lightness that never turns: $list', ({ list }) => {
    const made = table(list);
    const light = Array.from({ length: 256 }, (_, i) => luminance(made[4 * i], made[4 * i + 1], made[4 * i + 2]));
    const falls = light[0] > light[255];
    for (let i = 1; i < 256; i++) expect(falls ? light[i - 1] - light[i] : light[i] - light[i - 1]).toBeGreaterThanOrEqual(0);
  });

  it.each(ramps.filter(({ name }) => name === 'diverging'))('diverging goes one way from its middle: $list', ({ list }) => {
    const made = divergingTable(list);
    const light = Array.from({ length: 256 }, (_, i) => luminance(made[4 * i], made[4 * i + 1], made[4 * i + 2]));
    const sign = Math.sign(light[0] - light[127]);
    for (let i = 1; i < 128; i++) expect(sign * (light[i - 1] - light[i])).toBeGreaterThanOrEqual(-1e-3);
    for (let i = 129; i < 256; i++) expect(sign * (light[i] - light[i - 1])).toBeGreaterThanOrEqual(-1e-3);
  });

  it('pass through their stops', () => {
    const made = table('#000000 #102030 #ffffff');
    expect([...made.slice(0, 4)]).toEqual([0, 0, 0, 255]);
    expect([...made.slice(255 * 4)]).toEqual([255, 255, 255, 255]);
    expect(stops('#000000 #102030')).toEqual([[0, 0, 0], [16, 32, 48]]);
  });

  it.each(ramps)('have an ink of 4.5 to 1 on every colour: $list', ({ name, list }) => {
    const made = name === 'ink' ? table(list) : divergingTable(list);
    for (let i = 0; i < 256; i++) {
      const back = luminance(made[4 * i], made[4 * i + 1], made[4 * i + 2]);
      const front = inkOn(made, i) === '#ffffff' ? 1 : 0;
      expect((Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05)).toBeGreaterThanOrEqual(4.5);
    }
  });
});

describe('index', () => {
  it('is a square root where it says so', () => {
    expect(index(0.25, 'ink', 'sqrt', 1)).toBe(128);
    expect(index(0.25, 'ink', 'linear', 1)).toBe(64);
  });
  it('is symmetric about zero', () => {
    for (const value of [0.1, 0.5, 1, 7]) {
      expect(index(value, 'diverging', 'linear', 2) + index(-value, 'diverging', 'linear', 2)).toBeGreaterThanOrEqual(254);
      expect(index(value, 'diverging', 'linear', 2) + index(-value, 'diverging', 'linear', 2)).toBeLessThanOrEqual(256);
    }
  });
  it('stays on the ramp', () => {
    expect(index(9, 'ink', 'sqrt', 1)).toBe(255);
    expect(index(-9, 'ink', 'sqrt', 1)).toBe(0);
    expect(index(-Infinity, 'ink', 'sqrt', 1)).toBe(0);
    expect(index(NaN, 'diverging', 'linear', 1)).toBe(128);
  });
  it('finds the largest finite size', () => expect(largest([-3, 2, -Infinity, NaN])).toBe(3));
});

describe('paint', () => {
  const made = table('#000000 #ffffff');
  it('agrees with index', () => {
    const values = Float32Array.from({ length: 300 }, (_, i) => i / 299);
    const out = new Uint32Array(300);
    paint(out, values, 20, made, { ramp: 'ink', scale: 'sqrt', max: 1 });
    const colours = new Uint8Array(out.buffer);
    for (let i = 0; i < 300; i++) expect(Math.abs(colours[4 * i] - index(values[i], 'ink', 'sqrt', 1))).toBeLessThanOrEqual(2);
  });
  it('reads bytes as square roots', () => {
    const out = new Uint32Array(3);
    paint(out, Uint8Array.from([0, 100, 255]), 3, made, { ramp: 'ink', scale: 'sqrt', max: 1 });
    expect([...new Uint8Array(out.buffer)].filter((_, i) => i % 4 === 0)).toEqual([0, 100, 255]);
    paint(out, Uint8Array.from([0, 100, 255]), 3, made, { ramp: 'ink', scale: 'linear', max: 1 });
    expect(new Uint8Array(out.buffer)[4]).toBe(Math.round(255 * shareOf(100)));
  });
  it('paints into a part of a larger picture', () => {
    const out = new Uint32Array(12);
    paint(out, Uint8Array.from([255, 255, 255, 255]), 2, made, { ramp: 'ink', scale: 'sqrt', max: 1, stride: 4, start: 5 });
    expect([...out].map((word) => (word ? 1 : 0))).toEqual([0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0]);
  });
});
