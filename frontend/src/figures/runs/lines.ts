import { count } from '../../lib/format';
import type { How } from '../../lib/how';

/** Where the numbers of a run come from: lines that it writes into a file as it goes (clearhead.training.watch). */
export function ofTraining(from: number, to: number, file: string): How {
  return {
    formula: String.raw`-\tfrac1N\textstyle\sum_i\ln p(y_i)`,
    put: `the mean over all targets of the steps ${count(from + 1)} to ${count(to)}`,
    from: `“loss” in the line of step ${count(to)} of ${file}`,
  };
}

export function ofHeldOut(step: number, file: string): How {
  return {
    formula: String.raw`-\tfrac1N\textstyle\sum_i\ln p(y_i)`,
    put: `the mean over the targets of the held-out data, with the weights of step ${count(step)}`,
    from: `“held_out_loss” in the line of that step of ${file}`,
  };
}
