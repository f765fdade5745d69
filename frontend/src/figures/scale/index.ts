export const figures = {
  'scale.cache': () => import('./Cache.svelte'),
  'scale.tiles': () => import('./Tiles.svelte'),
  'scale.traffic': () => import('./Traffic.svelte'),
  'scale.remedies': () => import('./Remedies.svelte'),
  'scale.experts': () => import('./Experts.svelte'),
  'scale.steps': () => import('./Steps.svelte'),
  'scale.laws': () => import('./Laws.svelte'),
  'scale.first': () => import('./First.svelte'),
  'scale.models': () => import('./Models.svelte'),
  'scale.service': () => import('./Service.svelte'),
  'scale.middle': () => import('./Middle.svelte'),
};
