import { readFileSync, readdirSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** What a notebook is sent: a loader of two kilobytes with each widget, and the bundle once for each page. */
export default defineConfig({
  plugins: [withoutKatexStyle(), svelte(), beside()],
  define: { __WIDGET__: 'true', 'process.env.NODE_ENV': '"production"' },
  publicDir: false,
  build: {
    outDir: '../clearhead/studio/widget',
    emptyOutDir: true,
    target: 'es2022',
    lib: { entry: 'src/widgets/main.ts', formats: ['es'], fileName: () => 'bundle.js', cssFileName: 'bundle' },
    rolldownOptions: { output: { codeSplitting: false, minify: true } },
    chunkSizeWarningLimit: 2000,
  },
});

/** Formulas in a notebook are MathML, which needs neither KaTeX's style sheet nor its fonts. */
function withoutKatexStyle(): Plugin {
  return {
    name: 'without-katex-style',
    enforce: 'pre',
    load: (id) => (/katex(\.min)?\.css/.test(id) ? '' : null),
  };
}

/** The loader as it is, and the names of the figures, which Python checks before it makes a widget. */
function beside(): Plugin {
  return {
    name: 'beside',
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: 'loader.js', source: readFileSync('src/widgets/loader.js', 'utf8') });
      const names = readdirSync('src/figures', { withFileTypes: true })
        // Those two show folders that the Studio was started with; a notebook has none.
        .filter((folder) => folder.isDirectory() && !['claims', 'runs'].includes(folder.name))
        .flatMap((folder) => {
          try {
            const index = readFileSync(`src/figures/${folder.name}/index.ts`, 'utf8');
            return [...index.matchAll(/['"]([\w-]+\.[\w.-]+)['"]\s*:/g)].map(([, name]) => name);
          } catch {
            return [];
          }
        });
      this.emitFile({ type: 'asset', fileName: 'figures.json', source: JSON.stringify(names.sort(), null, 1) });
    },
  };
}
