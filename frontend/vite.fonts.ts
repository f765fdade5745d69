import type { Plugin } from 'vite';

/** Leaves out of KaTeX's style sheet the older copies of each font: every browser that runs this page reads woff2. */
export function onlyWoff2(): Plugin {
  return {
    name: 'only-woff2',
    enforce: 'pre',
    transform(code, id) {
      if (!/katex(\.min)?\.css/.test(id)) return null;
      return code.replace(/,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\((["'])(?:woff|truetype)\1\)/g, '');
    },
  };
}
