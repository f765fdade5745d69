/* Memory read once from end to end by all threads: nothing that reads as many bytes is faster. */

long long read_all(const long long *x, long n, int n_threads) {
    long long sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(n_threads) schedule(static)
    for (long i = 0; i < n; i++) sum += x[i];
    return sum;
}
