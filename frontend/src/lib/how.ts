/** Where a number comes from: the formula, the same with the values put in, and the place of those values. */
export interface How {
  /** TeX. */
  formula: string;
  /** Plain text. */
  put: string;
  /** Plain text. */
  from: string;
}
