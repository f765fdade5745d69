/** Tokens as they stand in a sentence, and short names of parts for a narrow label. */
export interface Named {
  id: number;
  text: string;
}

/** Without the marks of the spaces around it, and short. */
export function bare(text: string | undefined, longest = 24): string {
  if (text === undefined) return '';
  const inner = text.replace(/^·+|·+$/g, '') || text;
  const signs = [...inner];
  return signs.length > longest ? `${signs.slice(0, longest - 1).join('')}…` : inner;
}

/** "layer 3, cross-attention head 2" as "L3 cross 2". */
export function shortly(part: string): string {
  return part
    .replace(/^layer (\d+),? ?/, 'L$1 ')
    .replace('cross-attention head', 'cross')
    .replace('cross-attention', 'cross')
    .replace('embedding: ', 'embed: ');
}
