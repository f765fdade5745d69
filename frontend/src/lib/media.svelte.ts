import { MediaQuery } from 'svelte/reactivity';

export const still = new MediaQuery('(prefers-reduced-motion: reduce)', false);
export const narrow = new MediaQuery('(max-width: 640px)', false);
