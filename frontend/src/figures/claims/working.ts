import { exact } from '../../lib/format';
import type { How } from '../../lib/how';

/** A number of a report: by seed, and the ends of its interval. */
export interface Measured {
  name: string;
  each: (number | null)[];
  low: number | null;
  high: number | null;
}

/** Where a measured number comes from: the mean over seeds, or what the one run gave with its own interval. */
export function ofMeasured(of: Measured, module: string): How {
  const around = of.low !== null && of.high !== null && of.low !== of.high;
  const between = around ? `${exact(of.low ?? 0)} to ${exact(of.high ?? 0)}` : '';
  const values = of.each.filter((value) => value !== null);
  if (of.each.length > 1) {
    return {
      formula: String.raw`\bar x\pm t_{n-1}\,\frac{s}{\sqrt n}`,
      put: `(${values.map(exact).join(' + ')}) / ${of.each.length}`,
      from: `“${of.name}” with ${of.each.length} seeds, by ${module}.measure${around ? `; Student’s 95 % interval over them: ${between}` : ''}`,
    };
  }
  return {
    formula: around ? String.raw`\bar x\pm 1.96\,\frac{s}{\sqrt N}` : String.raw`\text{as measured}`,
    put: `“${of.name}”`,
    from: `one run of ${module}.measure, which says how${around ? `; 95 % interval within it: ${between}` : ''}`,
  };
}
