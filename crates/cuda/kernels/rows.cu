// Rows by index: embedding and its gradient, gather, scatter. One block per row of `width` numbers.

template <class T>
__device__ inline void copy_row(const T* from, T* to, unsigned width) {
    const unsigned N = Line<T>::N;
    if (width % N == 0)
        for (unsigned i = threadIdx.x * N; i < width; i += blockDim.x * N) store<T, N, true>(to, i, width, load<T, N, true>(from, i, width));
    else
        for (unsigned i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

template <class T>
__device__ inline void gather(const T* x, const unsigned* rows, T* y, unsigned width) {
    copy_row(x + (uint64_t)rows[blockIdx.x] * width, y + (uint64_t)blockIdx.x * width, width);
}
/// y[i] = x[rows[i]]. Also the embedding: `x` is the table, `rows` are tokens.
extern "C" __global__ void gather_f32(const float* x, const unsigned* rows, float* y, unsigned width) { gather(x, rows, y, width); }
extern "C" __global__ void gather_bf16(const bf16* x, const unsigned* rows, bf16* y, unsigned width) { gather(x, rows, y, width); }

/// The index of a row that is left out: one that only fills up a decoding step's bucket.
#define NO_ROW 0xffffffffu

template <class T>
__device__ inline void scatter(const T* x, const unsigned* rows, T* y, unsigned width) {
    unsigned row = rows[blockIdx.x];
    if (row != NO_ROW) copy_row(x + (uint64_t)blockIdx.x * width, y + (uint64_t)row * width, width);
}
/// y[rows[i]] = x[i]; rows differ, except for NO_ROW.
extern "C" __global__ void scatter_f32(const float* x, const unsigned* rows, float* y, unsigned width) { scatter(x, rows, y, width); }
extern "C" __global__ void scatter_bf16(const bf16* x, const unsigned* rows, bf16* y, unsigned width) { scatter(x, rows, y, width); }

template <class T>
__device__ inline void scatter_add(const T* x, const unsigned* rows, T* y, unsigned width) {
    const T* from = x + (uint64_t)blockIdx.x * width;
    T* to = y + (uint64_t)rows[blockIdx.x] * width;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) put(to + i, to_float(to[i]) + to_float(from[i]));
}
/// y[rows[i]] += x[i]; rows differ.
extern "C" __global__ void scatter_add_f32(const float* x, const unsigned* rows, float* y, unsigned width) { scatter_add(x, rows, y, width); }
extern "C" __global__ void scatter_add_bf16(const bf16* x, const unsigned* rows, bf16* y, unsigned width) { scatter_add(x, rows, y, width); }

template <class T>
__device__ inline void embed_backward(const T* dx, const unsigned* tokens, const unsigned* starts, const unsigned* order, float* gradient,
                                      unsigned width) {
    unsigned token = tokens[blockIdx.x], first = starts[blockIdx.x], last = starts[blockIdx.x + 1];
    float* to = gradient + (uint64_t)token * width;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
        float sum = 0;
        for (unsigned at = first; at < last; at++) sum += to_float(dx[(uint64_t)order[at] * width + i]);
        to[i] += sum;
    }
}
/// gradient[tokens[j]] += sum of dx[order[i]], starts[j] <= i < starts[j + 1]. One block per distinct token, so that equal tokens are
/// added in one fixed order.
extern "C" __global__ void embed_backward_f32(const float* dx, const unsigned* tokens, const unsigned* starts, const unsigned* order,
                                              float* gradient, unsigned width) {
    embed_backward(dx, tokens, starts, order, gradient, width);
}
extern "C" __global__ void embed_backward_bf16(const bf16* dx, const unsigned* tokens, const unsigned* starts, const unsigned* order,
                                               float* gradient, unsigned width) {
    embed_backward(dx, tokens, starts, order, gradient, width);
}

template <class T>
__device__ inline void column_partials(const T* x, float* partial, unsigned rows, unsigned width, unsigned rows_per_block) {
    auto term = [=](unsigned r, unsigned c) { return to_float(x[(uint64_t)r * width + c]); };
    sum_columns(term, partial, rows, width, rows_per_block);
}
/// Sums of the columns of x, before add_partials.
extern "C" __global__ void column_partials_f32(const float* x, float* partial, unsigned rows, unsigned width, unsigned rows_per_block) {
    column_partials(x, partial, rows, width, rows_per_block);
}
extern "C" __global__ void column_partials_bf16(const bf16* x, float* partial, unsigned rows, unsigned width, unsigned rows_per_block) {
    column_partials(x, partial, rows, width, rows_per_block);
}
/// sum[c] += partial[0][c] + partial[1][c] + ..., in this order.
extern "C" __global__ void add_partials(const float* partial, float* sum, unsigned blocks, unsigned width) {
    unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    float total = 0;
    for (unsigned b = 0; b < blocks; b++) total += partial[(uint64_t)b * width + column];
    sum[column] += total;
}
