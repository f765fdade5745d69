import { describe, expect, it } from 'vitest';

const SAYS = /\{#snippet says\(\)\}([\s\S]*?)\{\/snippet\}/g;
const figures = import.meta.glob<string>('../src/figures/**/*.svelte', { query: '?raw', import: 'default', eager: true });

/** The settings of a figure that its question is made of. */
function asked(source: string): string[] {
  return [...source.matchAll(/args: \{([\s\S]*?)\}/g)].flatMap(([, args]) => [...args.matchAll(/\bat\.(\w+)/g)].map(([, key]) => key));
}

describe('sentences of figures', () => {
  // While a slider moves, the answer shown is of an earlier question than the settings: a sentence of both states what is not so.
  it.each(Object.entries(figures))('%s takes what was asked from the answer', (_, source) => {
    const told = [...source.matchAll(SAYS)].map(([, text]) => text).join('\n');
    expect(asked(source).filter((key) => new RegExp(`\\bat\\.${key}\\b`).test(told))).toEqual([]);
  });
});
