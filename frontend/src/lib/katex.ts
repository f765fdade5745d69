declare const __WIDGET__: boolean;

/** A notebook has not the fonts of KaTeX; its browser draws MathML with its own. */
export const OUTPUT = __WIDGET__ ? 'mathml' : 'htmlAndMathml';

/** KaTeX and its style sheet, fetched when the first formula is shown. */
let loading: Promise<typeof import('katex').default> | undefined;

export function katex() {
  loading ??= Promise.all([import('katex'), import('katex/dist/katex.min.css')]).then(([module]) => module.default);
  return loading;
}
