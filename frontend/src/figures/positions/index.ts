export const figures = {
  'positions.shuffle': () => import('./Shuffle.svelte'),
  'positions.table': () => import('./Table.svelte'),
  'positions.similarity': () => import('./Similarity.svelte'),
  'positions.clock': () => import('./Clock.svelte'),
  'positions.rotary': () => import('./Rotary.svelte'),
  'positions.stretch': () => import('./Stretch.svelte'),
};
