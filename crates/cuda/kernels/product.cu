// Matrix products: the fallback where cuBLASLt is not found, and what the emulator runs. Tiles of 64 x 64, 256 threads, f32 sums.

/// c[m][n] = alpha Σ_k a(m, k) b(k, n), + onto[m][n] with `add`, + bias[n] with `biased`; with any strides: a at (m, k) is a[m * am + k * ak], and
/// `onto` lies like `c`. The sum runs over k in order and is rounded once, at the end.
template <class A, class B, class C>
__device__ inline void product(const A* a, uint64_t am, uint64_t ak, const B* b, uint64_t bk, uint64_t bn, C* c, uint64_t cm, unsigned m, unsigned n,
                               unsigned k, float alpha, const C* onto, unsigned add, const C* bias, unsigned biased) {
    SHARED(float, tiles);
    float* ta = tiles;
    float* tb = tiles + 16 * 65;
    unsigned row = blockIdx.y * 64, column = blockIdx.x * 64, tr = threadIdx.x / 16 * 4, tc = threadIdx.x % 16 * 4;
    float sum[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = 0;
    for (unsigned base = 0; base < k; base += 16) {
        for (unsigned i = threadIdx.x; i < 64 * 16; i += 256) {
            // Neighbouring threads read neighbouring addresses, whichever index is the inner one.
            unsigned inner = ak == 1 ? i % 16 : i / 64, outer = ak == 1 ? i / 16 : i % 64;
            ta[inner * 65 + outer] = row + outer < m && base + inner < k ? to_float(a[(row + outer) * am + (base + inner) * ak]) : 0.0f;
            inner = bk == 1 ? i % 16 : i / 64, outer = bk == 1 ? i / 16 : i % 64;
            tb[inner * 65 + outer] = column + outer < n && base + inner < k ? to_float(b[(base + inner) * bk + (column + outer) * bn]) : 0.0f;
        }
        barrier();
        for (int kk = 0; kk < 16; kk++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += ta[kk * 65 + tr + i] * tb[kk * 65 + tc + j];
        barrier();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            if (row + tr + i >= m || column + tc + j >= n) continue;
            uint64_t at = (row + tr + i) * cm + column + tc + j;
            put(c + at, alpha * sum[i][j] + (add ? to_float(onto[at]) : 0.0f) + (biased ? to_float(bias[column + tc + j]) : 0.0f));
        }
}
extern "C" __global__ void product_f32(const float* a, uint64_t am, uint64_t ak, const float* b, uint64_t bk, uint64_t bn, float* c, uint64_t cm,
                                       unsigned m, unsigned n, unsigned k, float alpha, const float* onto, unsigned add,
                                       const float* bias, unsigned biased) {
    product(a, am, ak, b, bk, bn, c, cm, m, n, k, alpha, onto, add, bias, biased);
}
extern "C" __global__ void product_bf16(const bf16* a, uint64_t am, uint64_t ak, const bf16* b, uint64_t bk, uint64_t bn, bf16* c, uint64_t cm,
                                        unsigned m, unsigned n, unsigned k, float alpha, const bf16* onto, unsigned add,
                                        const bf16* bias, unsigned biased) {
    product(a, am, ak, b, bk, bn, c, cm, m, n, k, alpha, onto, add, bias, biased);
}
/// bf16 in, f32 out: gradients and logits.
extern "C" __global__ void product_bf16_f32(const bf16* a, uint64_t am, uint64_t ak, const bf16* b, uint64_t bk, uint64_t bn, float* c, uint64_t cm,
                                            unsigned m, unsigned n, unsigned k, float alpha, const float* onto, unsigned add,
                                            const float* bias, unsigned biased) {
    product(a, am, ak, b, bk, bn, c, cm, m, n, k, alpha, onto, add, bias, biased);
}
