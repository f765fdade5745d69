import { describe, expect, it } from 'vitest';
import { bytes, count, cut, exact, fixed, power, share, short, signed, time, token, weight } from '../src/lib/format';

const plain = (text: string) => text.replace(/\u00a0/g, ' ').replace(/\u2212/g, '-');

describe('numbers', () => {
  it.each([
    [share(0.442), '44.2 %'], [share(1), '100.0 %'], [share(0.12345, 2), '12.35 %'],
    [fixed(-1.005, 1), '-1.0'], [fixed(-0.001), '0.00'], [fixed(Infinity), '∞'], [fixed(-Infinity), '-∞'], [fixed(NaN), '–'],
    [weight(0.442), '.44'], [weight(0.996), '1'], [weight(1), '1'], [weight(0), '0'], [weight(0.001), '<.01'], [weight(-0.5), '-0.50'],
    [count(1234567), '1,234,567'], [short(70_553_706_496), '70.6 billion'], [short(999_999), '999,999'],
    [bytes(327_680), '320 KiB'], [bytes(2.5 * 2 ** 30), '2.5 GiB'], [bytes(17), '17 B'],
    [signed(0.31), '+0.31'], [signed(-0.31), '-0.31'], [signed(0), '0.00'], [signed(0.0001), '0.00'],
    [power(1.5e-9, 2), '1.5 × 10⁻⁹'], [power(0.0148), '0.0148'], [power(123456), '123,456'], [power(3.2e12, 2), '3.2 × 10¹²'], [power(0), '0'],
    [time(0.83), '0.8 ms'], [time(42.4), '42 ms'], [time(3100), '3.1 s'],
    [exact(0.44215678), '0.442157'],
  ])('%s', (made, wanted) => expect(plain(made)).toBe(wanted));
});

describe('texts', () => {
  it('show what is unseen', () => {
    expect(token(' cat')).toBe('·cat');
    expect(token('\n')).toBe('⏎');
    expect(token('a\u202eb')).toBe('a⟨202e⟩b');
    expect(token('\0')).toBe('⟨0⟩');
    expect(token('\ud83d')).toBe('\ufffd');
    expect(token('<script>')).toBe('<script>');
  });
  it('are cut between signs', () => expect(cut('ab\u{1F600}cd', 4)).toBe('ab\u{1F600}…'));
});
