export const figures = {
  'heads.sentence': () => import('./Sentence.svelte'),
  'heads.cost': () => import('./Cost.svelte'),
  'heads.snapshots': () => import('./Snapshots.svelte'),
  'heads.compose': () => import('./Compose.svelte'),
  'heads.repeats': () => import('./Repeats.svelte'),
  'heads.pruning': () => import('./Pruning.svelte'),
  'heads.roles': () => import('./Roles.svelte'),
};
