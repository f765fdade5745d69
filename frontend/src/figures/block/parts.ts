/** One box of the diagram, as `block.diagram` tells it. */
export interface Part {
  id: string;
  kind: 'attention' | 'mlp' | 'norm' | 'add' | 'embed' | 'head';
  name: string;
  formula: string;
  told: string;
  reads: string;
  gives: string;
  n_parameters: number;
  shapes: Record<string, number[]>;
}

/** What happens between two additions: the boxes on the branch, the addition, and a norm on the stream behind it. */
export interface Sublayer {
  kind: string;
  branch: Part[];
  add: Part;
  after: Part | null;
}

export function sublayers(layer: Part[]): Sublayer[] {
  const found: Sublayer[] = [];
  for (const kind of ['mixer', 'cross', 'ffn']) {
    const own = layer.filter((part) => part.id === kind || part.id.startsWith(`${kind}.`));
    const add = own.find((part) => part.kind === 'add');
    if (!add) continue;
    found.push({
      kind,
      branch: own.filter((part) => part !== add && part.id !== `${kind}.after`),
      add,
      after: own.find((part) => part.id === `${kind}.after`) ?? null,
    });
  }
  return found;
}
