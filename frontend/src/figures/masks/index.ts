export const figures = {
  'masks.families': () => import('./Families.svelte'),
  'masks.draw': () => import('./Draw.svelte'),
  'masks.fill': () => import('./Fill.svelte'),
  'masks.hide': () => import('./Hide.svelte'),
  'masks.write': () => import('./Write.svelte'),
  'masks.predictions': () => import('./Predictions.svelte'),
  'masks.translate': () => import('./Translate.svelte'),
  'masks.prompted': () => import('./Prompted.svelte'),
};
