import { fixed } from '../lib/format';
import type { How } from '../lib/how';

/** One share of a softmax over many scores, whose sum is written as a power too: "e^5.12 / e^7.03". */
export function ofSoftmax(score: number, logSum: number, from: string): How {
  return {
    formula: String.raw`p_i=\frac{e^{z_i}}{\sum_j e^{z_j}}`,
    put: `e^${fixed(score, 3)} / e^${fixed(logSum, 3)}`,
    from: `${from}; e^${fixed(logSum, 3)} is the sum over all of them`,
  };
}

/** The loss of a text, of which there is one term for each token that is told. */
export function ofLoss(n: string, from: string): How {
  return { formula: String.raw`-\tfrac1N\textstyle\sum_t\ln p(x_t\mid x_{<t})`, put: `the mean over N = ${n} tokens`, from };
}
