export interface Chapter {
  slug: string;
  /** The page, learn/<component>.svelte. */
  component: string;
  /** 1 to 8; the last two have no number. */
  number: number | null;
  /** The name in tables of contents. */
  title: string;
  /** What a reader can do there, in one line. */
  promise: string;
}

export const chapters: Chapter[] = [
  {
    slug: '1-recurrence', component: 'Recurrence', number: 1, title: 'Why sequences needed something new',
    promise: 'Step a recurrent network through a sentence and see its memory fade.',
  },
  {
    slug: '2-lookup', component: 'Lookup', number: 2, title: 'A soft lookup',
    promise: 'Drag a query among keys and read the blend that comes back.',
  },
  {
    slug: '3-attention', component: 'Attention', number: 3, title: 'Scaled dot product',
    promise: 'Ten words, five steps, every number.',
  },
  {
    slug: '4-heads', component: 'Heads', number: 4, title: 'Many heads',
    promise: 'Watch a head that copies form while a model learns, then cut it off.',
  },
  {
    slug: '5-position', component: 'Position', number: 5, title: 'Positions',
    promise: 'Shuffle the words, then turn the clock hands that put them in order.',
  },
  {
    slug: '6-block', component: 'Block', number: 6, title: 'The block',
    promise: 'One diagram that is the model; open any part of it.',
  },
  {
    slug: '7-masks', component: 'Masks', number: 7, title: 'Encoders, decoders and masks',
    promise: 'Draw a mask and see what the model may still know.',
  },
  {
    slug: '8-scale', component: 'Scale', number: 8, title: 'Scale and efficiency',
    promise: 'What a long text costs, and how models pay less.',
  },
  {
    slug: 'check', component: 'Check', number: null, title: 'Check your understanding',
    promise: 'Six situations, four answers each, and a reason for every one.',
  },
  {
    slug: 'papers', component: 'Papers', number: null, title: 'The fifteen papers',
    promise: 'Where each idea comes from, and what this library measured of it.',
  },
];

export function neighbours(slug: string): { before: Chapter | null; after: Chapter | null } {
  const at = chapters.findIndex((chapter) => chapter.slug === slug);
  return { before: chapters[at - 1] ?? null, after: at < 0 ? null : (chapters[at + 1] ?? null) };
}
