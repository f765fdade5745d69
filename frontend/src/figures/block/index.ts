export const figures = {
  'block.diagram': () => import('./Diagram.svelte'),
  'block.placement': () => import('./Placement.svelte'),
  'block.norms': () => import('./Norms.svelte'),
  'block.activation': () => import('./Activation.svelte'),
  'block.parameters': () => import('./Parameters.svelte'),
  'block.alone': () => import('./Alone.svelte'),
  'block.fed': () => import('./Fed.svelte'),
};
