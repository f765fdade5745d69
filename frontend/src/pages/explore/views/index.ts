import type { Component } from 'svelte';
import type { ModelRecord, ViewProps } from '../types';

export interface View {
  /** The name in the address: /explore/:model/:slug. */
  slug: string;
  title: string;
  when: (model: ModelRecord) => boolean;
  /** Why a model has no such view, as the rest of a sentence that begins with its name. */
  without: string;
  load: () => Promise<{ default: Component<ViewProps> }>;
  /** Addresses that are kept from the first pass on. */
  capture?: (model: ModelRecord) => string[];
}

const patterns = (model: ModelRecord) => model.attention.map((kind) => `${kind.at}.pattern`);

/** The views of a run, in the order of their tabs. */
export const views: View[] = [
  {
    slug: 'attention', title: 'Attention', without: 'has no attention to look at',
    when: (model) => model.can.attention, load: () => import('./Attention.svelte'), capture: patterns,
  },
  {
    slug: 'predict', title: 'Next token', without: 'gives no tokens, so there is no next one to expect',
    when: (model) => model.can.predict, load: () => import('./Predict.svelte'),
  },
  {
    slug: 'lens', title: 'Logit lens', without: 'has no vocabulary to read its layers with',
    when: (model) => model.can.lens, load: () => import('./Lens.svelte'),
  },
  {
    slug: 'heads', title: 'Heads', without: 'has no heads that a text could be asked about',
    when: (model) => model.can.heads, load: () => import('./Heads.svelte'),
  },
  {
    slug: 'ablate', title: 'Switch off', without: 'gives no tokens by which a change could be told',
    when: (model) => model.can.ablate && (model.can.predict || model.can.pictures), load: () => import('./Ablate.svelte'),
  },
  {
    slug: 'patch', title: 'Patch', without: 'gives no tokens by which a change could be told',
    when: (model) => model.can.patch, load: () => import('./Patch.svelte'),
  },
  {
    slug: 'generate', title: 'Write', without: 'writes no text',
    when: (model) => model.can.generate, load: () => import('./Generate.svelte'),
  },
  {
    slug: 'picture', title: 'Picture', without: 'reads no pictures',
    when: (model) => model.can.pictures, load: () => import('./Pictures.svelte'), capture: patterns,
  },
  {
    slug: 'experts', title: 'Experts', without: 'has no experts to choose from',
    when: (model) => model.can.experts, load: () => import('./Experts.svelte'),
  },
  {
    slug: 'state', title: 'State over time', without: 'carries no state from token to token',
    when: (model) => model.can.states, load: () => import('./States.svelte'),
  },
  {
    slug: 'shapes', title: 'Shapes', without: 'has no parts',
    when: () => true, load: () => import('./Shapes.svelte'),
  },
];
