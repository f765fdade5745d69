/** What the explorer's pages and views hand to each other. */

export interface Token {
  /** -1 where it is no token of a vocabulary: a patch of a picture, a moment of a sound. */
  id: number;
  /** Safe to draw: a space as a dot, a control character as an escape. */
  text: string;
  start: number;
  end: number;
}

/** What one stack reads in a run. */
export interface Read {
  stack: string;
  kind: 'text' | 'picture' | 'sound';
  n: number;
  /** Patches down and across. */
  grid: [number, number] | null;
  /** Learned tokens before the first patch. */
  prefix: number;
}

export interface Ablation {
  layer: number;
  part?: 'mixer' | 'cross' | 'ffn' | 'block';
  stack?: string;
  heads?: number[];
  queries?: number[];
  keys?: number[];
  mode?: 'zero' | 'mean';
}

export interface RunRecord {
  run: string;
  model: string;
  text: string | null;
  source: string | null;
  picture: string | null;
  sound: string | null;
  /** What the stack that gives the output reads. */
  tokens: Token[];
  /** What the other stack reads, where there are two. */
  sources: Token[];
  reads: Read[];
  ms: number;
  peak_bytes: number;
  bytes: number;
  ablate: Ablation[];
  tensors: { name: string; shape: number[]; dtype: 'f32' | 'u8'; bytes: number }[];
}

export interface AttentionLayer {
  layer: number;
  /** Its address: layers.3.mixer. */
  at: string;
  heads: number;
  kv_heads: number;
  heads_a_group: number;
  mask: 'causal' | 'full';
  window: number | null;
}

/** Layers whose attention differs by number alone. */
export interface AttentionKind {
  /** layers.*.mixer */
  at: string;
  name: string;
  cross: boolean;
  /** The stacks whose slots queries and keys are. */
  queries: string;
  keys: string;
  stack: string;
  layers: AttentionLayer[];
}

export interface ModelRecord {
  id: string;
  kind: string;
  parameters: number;
  layers: number;
  heads: number;
  kv_heads: number;
  d_model: number | null;
  d_head: number | null;
  vocab: number | null;
  context: number | null;
  dtype: string;
  tokenizer: boolean;
  /** Whether its tokenizer has a template for conversations. */
  chat: boolean;
  reads: { text: boolean; source: boolean; picture: boolean; sound: boolean };
  /** Whether the text is written by the model where it is left out, from a source. */
  writes_target: boolean;
  samples: { pictures: string[]; sounds: string[] };
  defaults: { text: string | null; source: string | null; picture: string | null; sound: string | null };
  attention: AttentionKind[];
  can: Record<
    'attention' | 'cross' | 'predict' | 'lens' | 'ablate' | 'patch' | 'generate' | 'heads' | 'pictures' | 'experts' | 'states',
    boolean
  >;
  experts: string[];
  states: string[];
  alignments: string[];
}

/** State in the address: the chosen layer, head, token and key. Each is set like a variable. */
export interface ExploreState {
  text: string;
  source: string;
  picture: string;
  sound: string;
  run: string;
  /** Which kind of attention: its number in the model's list. */
  kind: number;
  l: number;
  h: number;
  /** Whether a layer or head was chosen: until then a view may show whichever is worth seeing. */
  readonly headChosen: boolean;
  /** The chosen token: the query. -1: none is chosen, which reads as the last. */
  pos: number;
  /** The chosen key. -1: none. */
  key: number;
}

export interface ViewProps {
  model: ModelRecord;
  run: RunRecord;
  at: ExploreState;
}

/** The tokens that one stack reads. */
export function tokensOf(run: RunRecord, stack: string): Token[] {
  return run.reads[0]?.stack === stack ? run.tokens : run.sources;
}

/** The chosen token of a stack: the last of a text, the first of a picture or a sound, where none was chosen. */
export function chosen(run: RunRecord, stack: string, pos: number): number {
  const n = tokensOf(run, stack).length;
  if (pos >= 0) return Math.min(pos, n - 1);
  return run.reads.find((one) => one.stack === stack)?.kind === 'text' ? n - 1 : 0;
}

/** The stack whose tokens ask: that of the chosen kind of attention, where the view has one. */
export function queriesOf(model: ModelRecord, run: RunRecord, slug: string, kind: number): { kind: AttentionKind | undefined; stack: string } {
  const found = slug === 'attention' ? model.attention[Math.min(kind, model.attention.length - 1)] : undefined;
  return { kind: found, stack: found?.queries ?? run.reads[0]?.stack ?? '' };
}

const LABELS = { text: 'Tokens', picture: 'Patches', sound: 'Moments' };

/** What the tokens of a stack are called. */
export function labelOf(run: RunRecord, stack: string): string {
  const read = run.reads.find((one) => one.stack === stack);
  if (!read) return LABELS.text;
  if (run.reads.length < 2 || read.kind !== 'text') return LABELS[read.kind];
  return stack === 'encoder' ? 'Source tokens' : 'Answer tokens';
}

const SMALL = '₀₁₂₃₄₅₆₇₈₉';

/** Tokens as words of a sentence; one that occurs more than once carries its place as a small number. */
export function namesOf(tokens: Token[]): string[] {
  const words = tokens.map((token) => word(token));
  const often = new Map<string, number>();
  for (const one of words) often.set(one, (often.get(one) ?? 0) + 1);
  return words.map((one, i) => (often.get(one)! > 1 ? one + [...String(i)].map((digit) => SMALL[Number(digit)]).join('') : one));
}

/** A token as a word in a sentence: without the marks of spaces around it, and short. */
export function word(token: Token | undefined, longest = 24): string {
  if (!token) return '';
  const bare = token.text.replace(/^·+|·+$/g, '') || token.text;
  const signs = [...bare];
  return signs.length > longest ? `${signs.slice(0, longest - 1).join('')}…` : bare;
}
