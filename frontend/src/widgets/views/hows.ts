import type { How } from '../../lib/how';
import { put } from '../../figures/explore/hows';

/** A weight of attention in a result that holds weights and no scores: one of its row, which sums to one. */
export function shareHow(row: number[], from: string, cell: string): How {
  const largest = [...row].sort((a, b) => b - a).slice(0, 3);
  return {
    formula: String.raw`w_j=\frac{e^{s_j}}{\sum_k e^{s_k}}`,
    put: `${cell}: in a row of ${row.length} weights, ${largest.map(put).join(', ')}${row.length > 3 ? ', …' : ''}`,
    from,
  };
}
