import { bytes, count, share } from '../../lib/format';

/** What `check.numbers` found. */
export interface Numbers {
  factor: number;
  words: number;
  left: number;
  mlp: number;
  context: number;
  many: number;
  few: number;
  times: number;
  /** Of the large model: the layers, its query heads and key-value heads, and their width. */
  layers: number;
  heads: number;
  kv_heads: number;
  d_head: number;
}

export interface Option {
  says: string;
  /** Why it is right, or why it is not. */
  reason: string;
}

export interface Scenario {
  /** Where it comes from. */
  chapter: string;
  asks: string;
  options: Option[];
  right: number;
  figure: { href: string; says: string };
  claim: string;
}

/** The place of the right option of each scenario, so that answers can be counted before the numbers are there. */
export const RIGHT = [1, 2, 0, 3, 1, 2] as const;

export function scenarios(n: Numbers): Scenario[] {
  return [
    {
      chapter: 'Chapter 3, scaled dot product',
      asks: '“The trophy did not fit in the suitcase because it was too big.” Which mechanism most directly lets “it” take in something of “trophy”?',
      right: RIGHT[0],
      options: [
        {
          says: 'The positions: they tell “it” how far away “trophy” is.',
          reason: 'A position says where a word stands. It says nothing of what the word is, and it carries nothing over.',
        },
        {
          says: 'Attention: the query of “it” meets the key of “trophy”, and its value is read.',
          reason: 'This is the one place in a transformer where one token reads another, and it does so in a single step.',
        },
        {
          says: 'The feed-forward layers, which hold most of what the model knows.',
          reason: 'They work on each token by itself. What of the trophy is not yet in “it” when they begin is not in it when they end.',
        },
        {
          says: 'The last layer, which scores the whole vocabulary.',
          reason: 'It reads a finished vector and turns it into scores. By then all reading of other words is over.',
        },
      ],
      figure: { href: '/learn/3-attention#stepper', says: 'watch “it” find “cat”' },
      claim: 'only-attention',
    },
    {
      chapter: 'Chapter 1, recurrence',
      asks: `A recurrent network learns to judge reviews of ${count(n.words)} words. Every step multiplies its gradient by about ${n.factor}. It comes to use the last words of a review, and never the first. Why?`,
      right: RIGHT[1],
      options: [
        {
          says: 'Its hidden vector is too short; give it twice the units.',
          reason: 'A longer vector has more room. But the way back is as long as before, and every step still takes its share.',
        },
        {
          says: 'The learning rate is too high.',
          reason: 'A rate is the same for the first word and for the last. It cannot explain why only one of them is learned from.',
        },
        {
          says: `Only ${share(n.left)} of the gradient arrives at the first word.`,
          reason: `${n.factor} to the power ${n.words}. What the first word did to the judgement is hardly heard there, and other words drown it.`,
        },
        {
          says: 'The first words of reviews carry no meaning.',
          reason: 'They often say it all. And the network never got a chance to find out.',
        },
      ],
      figure: { href: `/learn/1-recurrence?v=1&factor=${n.factor}&steps=${n.words}#gradient`, says: 'set the factor yourself' },
      claim: 'factor-to-the-power',
    },
    {
      chapter: 'Chapter 5, positions',
      asks: 'You take the positions out of an encoder, and give it “dog bites man” and then “man bites dog”. What comes out?',
      right: RIGHT[2],
      options: [
        {
          says: 'The same three vectors both times, in another order.',
          reason: 'Scores depend on vectors and not on places. Move the words, and the outputs only move along.',
        },
        {
          says: 'Different vectors: the softmax sees which word comes first.',
          reason: 'A softmax runs over a set of scores. Put them in another order, and each word’s weight moves with it.',
        },
        {
          says: 'Different vectors: each layer adds a little of the order.',
          reason: 'No layer has the order to add. A hundred blind layers are as blind as one.',
        },
        {
          says: 'Nothing of use: without positions attention cannot be worked out.',
          reason: 'Nothing in the formula needs them. It works, and it reads a bag of words.',
        },
      ],
      figure: { href: '/learn/5-position#shuffle', says: 'shuffle the words' },
      claim: 'dog-bites-man',
    },
    {
      chapter: 'Chapter 6, the block',
      asks: 'Your model must become a third smaller, and attention should keep every parameter that it has. Where do you find so many?',
      right: RIGHT[3],
      options: [
        {
          says: 'In the norms, which stand before every sub-layer.',
          reason: 'A norm has a number or two for each dimension: thousands, where the model has millions.',
        },
        {
          says: 'In the residual stream.',
          reason: 'The stream is what flows through the model. It has no parameters at all.',
        },
        {
          says: 'In the matrices of queries and keys.',
          reason: 'They are attention’s own, and hold only a sixth of a standard block.',
        },
        {
          says: `In the feed-forward layers: ${share(n.mlp)} of a standard block is there.`,
          reason: 'Two thirds, and they work on each token by itself. Make their middle narrower, and no parameter of attention is touched.',
        },
      ],
      figure: { href: '/learn/6-block#parameters', says: 'see where the parameters are' },
      claim: 'two-thirds',
    },
    {
      chapter: 'Chapter 7, masks',
      asks: 'A decoder learns to guess the next token. Within an hour its loss is almost zero, and what it writes is nonsense. What went wrong?',
      right: RIGHT[4],
      options: [
        {
          says: 'It is too small to write well.',
          reason: 'Then it could not guess well either. A loss near zero on natural text is better than any model should be.',
        },
        {
          says: 'The causal mask is missing: each token sees the one that it has to guess.',
          reason: 'In training it copies the answer from the next place. When it writes there is no next place, and it has learned nothing else.',
        },
        {
          says: 'The temperature is too low.',
          reason: 'A temperature acts when tokens are drawn. It makes text duller or wilder and has no part in the loss.',
        },
        {
          says: 'It needs labelled data.',
          reason: 'Guessing the next token needs none: the text is its own label.',
        },
      ],
      figure: { href: '/learn/7-masks#draw', says: 'draw a mask' },
      claim: 'exactly-zero',
    },
    {
      chapter: 'Chapter 8, scale',
      asks: `Your model has the shape of Llama 3 70B, but each of its ${n.heads} query heads has keys and values of its own. One conversation of ${count(n.context)} tokens keeps ${bytes(n.many)} in memory. You convert it to ${n.kv_heads} key-value heads. What do you gain?`,
      right: RIGHT[5],
      options: [
        {
          says: `The weights shrink to an eighth, and so does the cache.`,
          reason: 'Only the two matrices that make keys and values shrink. The rest of the weights, most of them in the feed-forward layers, stay.',
        },
        {
          says: 'Attention’s work no longer grows with the square of the length.',
          reason: `All ${n.heads} query heads still score every token against every other. They only share what they score against.`,
        },
        {
          says: `The cache shrinks to ${bytes(n.few)}: ${n.times} times as many conversations fit beside the weights.`,
          reason: `Two (key and value) × ${n.layers} layers × ${n.kv_heads} heads × ${n.d_head} numbers × 2 bytes a token. What was kept for ${n.heads} heads is kept for ${n.kv_heads}.`,
        },
        {
          says: 'Nothing, until it is trained again from the start.',
          reason: 'A short further training after the conversion brings back nearly all of the quality. That is the point of the method.',
        },
      ],
      figure: { href: '/learn/8-scale#calculator', says: 'move the calculator' },
      claim: 'grouped-queries',
    },
  ];
}
