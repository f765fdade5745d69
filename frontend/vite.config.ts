import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';
import { onlyWoff2 } from './vite.fonts.ts';

export default defineConfig({
  base: '/',
  plugins: [onlyWoff2(), svelte()],
  define: { __WIDGET__: 'false' },
  build: {
    outDir: '../clearhead/studio/static',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // the content policy allows files of this origin alone, and no data: fonts
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 400,
  },
  test: { include: ['tests/**/*.test.ts'], environment: 'node', css: true },
});
