export const figures = {
  'claims.report': () => import('./Report.svelte'),
};
