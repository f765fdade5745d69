export const figures = {
  'attention.stepper': () => import('./Stepper.svelte'),
  'attention.rows': () => import('./Rows.svelte'),
  'attention.width': () => import('./Width.svelte'),
  'attention.gradient': () => import('./Gradient.svelte'),
  'attention.leftover': () => import('./Leftover.svelte'),
  'attention.shapes': () => import('./Shapes.svelte'),
  'attention.only': () => import('./Only.svelte'),
  'attention.model': () => import('./Model.svelte'),
};
