import { describe, expect, it } from 'vitest';
import { CELLS, HEX, fromHex, listed, toHex } from '../src/figures/masks/words';
import { dollars, neat, seconds } from '../src/figures/scale/sizes';

describe('a drawn mask in a link', () => {
  it('comes back as it was', () => {
    const cells = Uint8Array.from({ length: CELLS }, (_, i) => (i * 7 + (i >> 3)) % 3 === 0 ? 1 : 0);
    expect(HEX.test(toHex(cells))).toBe(true);
    expect([...fromHex(toHex(cells))]).toEqual([...cells]);
  });
  it('is written row by row, as the operation reads it', () => {
    const causal = Uint8Array.from({ length: CELLS }, (_, i) => (i % 10 <= Math.floor(i / 10) ? 1 : 0));
    expect(toHex(causal)).toBe('80300e03c0f83f0fe3fcffbff');
    expect(toHex(new Uint8Array(CELLS).fill(1))).toBe('f'.repeat(25));
  });
});

describe('words', () => {
  it('are listed with their marks', () => {
    expect([listed([]), listed(['a']), listed(['a', 'b', 'c'])]).toEqual(['', '“a”', '“a”, “b” and “c”']);
  });
});

describe('sizes', () => {
  it('stop at powers of two and halfway between', () => {
    expect(neat(128, 1024)).toEqual([128, 192, 256, 384, 512, 768, 1024]);
    expect(neat(1, 8)).toEqual([1, 2, 3, 4, 6, 8]);
  });
  it('are said in units that fit', () => {
    expect([seconds(0.000012), seconds(0.0406), seconds(90), seconds(9000)]).toEqual(['12.0 µs', '40.6 ms', '90.00 s', '2.5 h']);
    expect([dollars(0), dollars(0.000883), dollars(1.129), dollars(1234)]).toEqual(['$0', '$0.000883', '$1.13', '$1,234']);
  });
});
