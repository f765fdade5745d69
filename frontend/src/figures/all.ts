import type { Component } from 'svelte';

type Load = () => Promise<{ default: Component<any> }>;

/** Every figure by its name, from the index of each folder beside this file. Each is fetched when it is shown. */
const folders = import.meta.glob<{ figures?: Record<string, Load> }>('./*/index.ts', { eager: true });

export const figures: Record<string, Load> = Object.assign({}, ...Object.values(folders).map((folder) => folder.figures ?? {}));
