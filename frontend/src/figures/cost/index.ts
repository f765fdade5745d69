export const figures = {
  'cost.model': () => import('./Model.svelte'),
  'cost.compare': () => import('./Compare.svelte'),
};
