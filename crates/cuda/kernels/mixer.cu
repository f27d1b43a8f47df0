// Gates, and gated DeltaNet: a causal convolution along the paths of a forest, then a state per head that each token decays, corrects and reads.
//
// A path is cut into runs: rows that follow each other and that nothing but the next row continues. The runs of a wave continue those of earlier waves. Passes and
// decoding compute a token in the same order of operations, so that it has the same bits in both. A state is [value, key]: the numbers of a column of values lie
// side by side.

/// No row, slot or node.
#define NONE 0xffffffffu
/// Added to the square of the length that queries and keys are divided by.
#define LENGTH_EPS 1e-6f
/// Rows of which the backward pass computes the derivatives together; it knows the state before each as many of a run.
#define STRETCH 32
/// Most numbers of a head's query or key, and of its value.
#define MIXER_HEAD 128
/// Most inputs that the convolution sees.
#define MIXER_TAPS 8

template <class T>
__device__ inline void split_heads(T* x, T* first, T* second, unsigned heads, unsigned size, unsigned stride, unsigned join, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x, width = heads * size;
    if (index >= count) return;
    unsigned row = index / stride, column = index % stride, in = column % (2 * size);
    T* half = column >= 2 * width ? first + (uint64_t)row * (stride - width) + column - width
              : in < size         ? first + (uint64_t)row * (stride - width) + column / (2 * size) * size + in
                                  : second + (uint64_t)row * width + column / (2 * size) * size + in - size;
    if (join)
        x[index] = *half;
    else
        *half = x[index];
}
/// Rows that begin with heads of twice `size`: those of `first` get the first halves and what follows the heads, those of `second` the second halves. The
/// opposite with `join`. A thread per number.
extern "C" __global__ void split_heads_f32(float* x, float* first, float* second, unsigned heads, unsigned size, unsigned stride, unsigned join, unsigned count) {
    split_heads(x, first, second, heads, size, stride, join, count);
}
extern "C" __global__ void split_heads_bf16(bf16* x, bf16* first, bf16* second, unsigned heads, unsigned size, unsigned stride, unsigned join, unsigned count) {
    split_heads(x, first, second, heads, size, stride, join, count);
}

/// The value of a gate's function, SiLU or the sigmoid, and its derivative.
struct GateValue {
    float f, slope;

    __device__ inline GateValue(float g, unsigned silu) {
        float s = sigmoid(g);
        f = silu ? g * s : s;
        slope = silu ? s + f * (1.0f - s) : s * (1.0f - s);
    }
};

template <class T>
__device__ inline void gate(const T* gates, const T* x, T* y, unsigned silu, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) put(y + index, GateValue(to_float(gates[index]), silu).f * to_float(x[index]));
}
/// y = f(gate) x.
extern "C" __global__ void gate_f32(const float* gates, const float* x, float* y, unsigned silu, unsigned count) { gate(gates, x, y, silu, count); }
extern "C" __global__ void gate_bf16(const bf16* gates, const bf16* x, bf16* y, unsigned silu, unsigned count) { gate(gates, x, y, silu, count); }

template <class T>
__device__ inline void gate_backward(T* gates, const T* x, T* dy, T* y, unsigned silu, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    GateValue of(to_float(gates[index]), silu);
    float v = to_float(x[index]), d = to_float(dy[index]);
    put(gates + index, d * v * of.slope);
    put(dy + index, d * of.f);
    put(y + index, v * of.f);
}
/// In place: the gate becomes its derivative, dy that of x; y is computed again.
extern "C" __global__ void gate_backward_f32(float* gates, const float* x, float* dy, float* y, unsigned silu, unsigned count) {
    gate_backward(gates, x, dy, y, silu, count);
}
extern "C" __global__ void gate_backward_bf16(bf16* gates, const bf16* x, bf16* dy, bf16* y, unsigned silu, unsigned count) {
    gate_backward(gates, x, dy, y, silu, count);
}

/// The convolution of a channel at a row, before its SiLU: the latest input first.
template <class T>
__device__ inline float convolved(const T* weights, const T* x, const unsigned* previous, unsigned row, unsigned taps, unsigned stride) {
    float sum = 0;
    for (unsigned back = 0; back < taps && row != NONE; back++, row = previous[row])
        sum = fmaf(to_float(weights[taps - 1 - back]), to_float(x[(uint64_t)row * stride]), sum);
    return sum;
}

template <class T>
__device__ inline void convolve(const T* filter, const T* x, const unsigned* previous, T* y, unsigned channels, unsigned taps, unsigned stride, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    unsigned row = index / channels, channel = index % channels;
    put(y + index, GateValue(convolved(filter + channel * taps, x + channel, previous, row, taps, stride), 1).f);
}
/// y = SiLU of the convolution of the first `channels` columns of x along each row's path; previous[row] is the row before. A thread per number of y.
extern "C" __global__ void convolve_f32(const float* filter, const float* x, const unsigned* previous, float* y, unsigned channels, unsigned taps, unsigned stride,
                                        unsigned count) {
    convolve(filter, x, previous, y, channels, taps, stride, count);
}
extern "C" __global__ void convolve_bf16(const bf16* filter, const bf16* x, const unsigned* previous, bf16* y, unsigned channels, unsigned taps, unsigned stride,
                                         unsigned count) {
    convolve(filter, x, previous, y, channels, taps, stride, count);
}

template <class T>
__device__ inline void convolve_keep(const T* x, const unsigned* previous, const unsigned* ends, float* states, unsigned channels, unsigned taps, unsigned stride,
                                     uint64_t state, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    unsigned channel = index % channels, tree = index / channels, row = ends[2 * tree];
    float* inputs = states + ((uint64_t)ends[2 * tree + 1] + 1) * state - (uint64_t)(taps - 1) * channels + channel;
    for (unsigned back = 0; back + 1 < taps; back++) {
        inputs[(uint64_t)back * channels] = row == NONE ? 0.0f : to_float(x[(uint64_t)row * stride + channel]);
        if (row != NONE) row = previous[row];
    }
}
/// Stores the latest inputs of paths with their states: (last row, node) in `ends`. A thread per path and channel.
extern "C" __global__ void convolve_keep_f32(const float* x, const unsigned* previous, const unsigned* ends, float* states, unsigned channels, unsigned taps,
                                             unsigned stride, uint64_t state, unsigned count) {
    convolve_keep(x, previous, ends, states, channels, taps, stride, state, count);
}
extern "C" __global__ void convolve_keep_bf16(const bf16* x, const unsigned* previous, const unsigned* ends, float* states, unsigned channels, unsigned taps,
                                              unsigned stride, uint64_t state, unsigned count) {
    convolve_keep(x, previous, ends, states, channels, taps, stride, state, count);
}

template <class T>
__device__ inline void convolve_step(const T* filter, const T* x, const unsigned* groups, const unsigned* runs, float* states, T* y, unsigned channels,
                                     unsigned taps, unsigned stride, uint64_t state, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    unsigned channel = index % channels, group = index / channels;
    for (unsigned run = groups[group]; run < groups[group + 1]; run++) {
        const unsigned* of = runs + 5 * (uint64_t)run;
        unsigned row = of[0], from = of[2], to = of[3];
        float inputs[MIXER_TAPS];
        inputs[0] = to_float(x[(uint64_t)row * stride + channel]);
        float sum = fmaf(to_float(filter[channel * taps + taps - 1]), inputs[0], 0.0f);
        uint64_t before = (uint64_t)(taps - 1) * channels - channel;
#pragma unroll
        for (unsigned back = 1; back < MIXER_TAPS; back++) {
            if (back >= taps) continue;
            inputs[back] = from == NONE ? 0.0f : states[((uint64_t)from + 1) * state - before + (uint64_t)(back - 1) * channels];
            sum = fmaf(to_float(filter[channel * taps + taps - 1 - back]), inputs[back], sum);
        }
        put(y + (uint64_t)row * channels + channel, GateValue(sum, 1).f);
        if (to == NONE) continue;
#pragma unroll
        for (unsigned back = 0; back + 1 < MIXER_TAPS; back++)
            if (back + 1 < taps) states[((uint64_t)to + 1) * state - before + (uint64_t)back * channels] = inputs[back];
    }
}
/// The same for the rows of a decoding step, whose earlier inputs are with the states. A thread per group of `runs`, in order, and channel.
extern "C" __global__ void convolve_step_f32(const float* filter, const float* x, const unsigned* groups, const unsigned* runs, float* states, float* y,
                                             unsigned channels, unsigned taps, unsigned stride, uint64_t state, unsigned count) {
    convolve_step(filter, x, groups, runs, states, y, channels, taps, stride, state, count);
}
extern "C" __global__ void convolve_step_bf16(const bf16* filter, const bf16* x, const unsigned* groups, const unsigned* runs, float* states, bf16* y,
                                              unsigned channels, unsigned taps, unsigned stride, uint64_t state, unsigned count) {
    convolve_step(filter, x, groups, runs, states, y, channels, taps, stride, state, count);
}

template <class T>
__device__ inline void convolve_silu_backward(const T* filter, const T* x, const unsigned* previous, T* dy, unsigned channels, unsigned taps, unsigned stride,
                                              unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    unsigned row = index / channels, channel = index % channels;
    float sum = convolved(filter + channel * taps, x + channel, previous, row, taps, stride);
    put(dy + index, to_float(dy[index]) * GateValue(sum, 1).slope);
}
/// In place: dy becomes the derivative of the convolution before its SiLU.
extern "C" __global__ void convolve_silu_backward_f32(const float* filter, const float* x, const unsigned* previous, float* dy, unsigned channels, unsigned taps,
                                                      unsigned stride, unsigned count) {
    convolve_silu_backward(filter, x, previous, dy, channels, taps, stride, count);
}
extern "C" __global__ void convolve_silu_backward_bf16(const bf16* filter, const bf16* x, const unsigned* previous, bf16* dy, unsigned channels, unsigned taps,
                                                       unsigned stride, unsigned count) {
    convolve_silu_backward(filter, x, previous, dy, channels, taps, stride, count);
}

template <class T>
__device__ inline void convolve_backward(const T* filter, const T* dy, const unsigned* first, const unsigned* later, T* dx, unsigned channels, unsigned taps,
                                         unsigned stride, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    unsigned row = index / channels, channel = index % channels;
    float sum = to_float(filter[channel * taps + taps - 1]) * to_float(dy[index]);
    for (unsigned at = first[row]; at < first[row + 1]; at++) {
        unsigned back = later[at] % MIXER_TAPS;
        sum = fmaf(to_float(filter[channel * taps + taps - 1 - back]), to_float(dy[(uint64_t)(later[at] / MIXER_TAPS) * channels + channel]), sum);
    }
    put(dx + (uint64_t)row * stride + channel, sum);
}
/// dx from the derivative before the SiLU. `later`: for each row those that see it, from `first[row]` on, as row times MIXER_TAPS and distance.
extern "C" __global__ void convolve_backward_f32(const float* filter, const float* dy, const unsigned* first, const unsigned* later, float* dx, unsigned channels,
                                                 unsigned taps, unsigned stride, unsigned count) {
    convolve_backward(filter, dy, first, later, dx, channels, taps, stride, count);
}
extern "C" __global__ void convolve_backward_bf16(const bf16* filter, const bf16* dy, const unsigned* first, const unsigned* later, bf16* dx, unsigned channels,
                                                  unsigned taps, unsigned stride, unsigned count) {
    convolve_backward(filter, dy, first, later, dx, channels, taps, stride, count);
}

template <class T>
__device__ inline void convolve_weight(const T* x, const unsigned* previous, const T* dy, float* partial, unsigned channels, unsigned taps, unsigned stride,
                                       unsigned rows, unsigned rows_per_block) {
    auto term = [=](unsigned r, unsigned c) {
        unsigned channel = c / taps, row = r;
        for (unsigned back = taps - 1 - c % taps; back > 0 && row != NONE; back--) row = previous[row];
        return row == NONE ? 0.0f : to_float(dy[(uint64_t)r * channels + channel]) * to_float(x[(uint64_t)row * stride + channel]);
    };
    sum_columns(term, partial, rows, channels * taps, rows_per_block);
}
/// The filter's derivative, before add_partials.
extern "C" __global__ void convolve_weight_f32(const float* x, const unsigned* previous, const float* dy, float* partial, unsigned channels, unsigned taps,
                                               unsigned stride, unsigned rows, unsigned rows_per_block) {
    convolve_weight(x, previous, dy, partial, channels, taps, stride, rows, rows_per_block);
}
extern "C" __global__ void convolve_weight_bf16(const bf16* x, const unsigned* previous, const bf16* dy, float* partial, unsigned channels, unsigned taps,
                                                unsigned stride, unsigned rows, unsigned rows_per_block) {
    convolve_weight(x, previous, dy, partial, channels, taps, stride, rows, rows_per_block);
}

/// ln(1 + e^x).
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

template <class T>
__device__ inline void mixer_prepare(const T* x, const T* a_log, const T* dt_bias, T* mixed, float* lengths, float* gates, unsigned heads, unsigned key_heads,
                                     unsigned key_size, unsigned channels, unsigned rows) {
    unsigned units = 2 * key_heads + (heads + WARP - 1) / WARP, index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= rows * units) return;
    unsigned row = index / units, unit = index % units;
    if (unit < 2 * key_heads) {
        T* head = mixed + (uint64_t)row * channels + unit * key_size;
        float squares = 0;
        for (unsigned i = lane; i < key_size; i += WARP) squares = fmaf(to_float(head[i]), to_float(head[i]), squares);
        float length = 1.0f / sqrtf(warp_sum(squares) + LENGTH_EPS);
        if (lane == 0) lengths[(uint64_t)row * 2 * key_heads + unit] = length;
        float factor = unit < key_heads ? length / sqrtf((float)key_size) : length;
        for (unsigned i = lane; i < key_size; i += WARP) put(head + i, to_float(head[i]) * factor);
    } else if (unsigned head = (unit - 2 * key_heads) * WARP + lane; head < heads) {
        const T* own = x + (uint64_t)row * (channels + 2 * heads) + channels;
        float* to = gates + (uint64_t)row * 2 * heads;
        to[head] = sigmoid(to_float(own[head]));
        to[heads + head] = -expf(to_float(a_log[head])) * softplus(to_float(own[heads + head]) + to_float(dt_bias[head]));
    }
}
/// Normalises queries and keys in `mixed`, and keeps what they were multiplied by, but for the queries' 1 / sqrt(size). gates: by row, how much each head writes,
/// then the logarithm of what it keeps of its state, from `b` and `a` behind the channels of x. A warp per row and head of queries or keys, or per 32 gates.
extern "C" __global__ void mixer_prepare_f32(const float* x, const float* a_log, const float* dt_bias, float* mixed, float* lengths, float* gates, unsigned heads,
                                             unsigned key_heads, unsigned key_size, unsigned channels, unsigned rows) {
    mixer_prepare(x, a_log, dt_bias, mixed, lengths, gates, heads, key_heads, key_size, channels, rows);
}
extern "C" __global__ void mixer_prepare_bf16(const bf16* x, const bf16* a_log, const bf16* dt_bias, bf16* mixed, float* lengths, float* gates, unsigned heads,
                                              unsigned key_heads, unsigned key_size, unsigned channels, unsigned rows) {
    mixer_prepare(x, a_log, dt_bias, mixed, lengths, gates, heads, key_heads, key_size, channels, rows);
}

template <class T>
__device__ inline void mixer_prepare_backward(const T* x, const T* a_log, const T* dt_bias, const T* mixed, const float* lengths, T* dmixed, const float* dgates, float* shares,
                                              T* dx, unsigned heads, unsigned key_heads, unsigned key_size, unsigned channels, unsigned rows) {
    unsigned units = 2 * key_heads + (heads + WARP - 1) / WARP, index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= rows * units) return;
    unsigned row = index / units, unit = index % units;
    if (unit < 2 * key_heads) {
        // `y` is a unit vector times the factor.
        const T* y = mixed + (uint64_t)row * channels + unit * key_size;
        T* d = dmixed + (uint64_t)row * channels + unit * key_size;
        float length = lengths[(uint64_t)row * 2 * key_heads + unit], factor = unit < key_heads ? 1.0f / sqrtf((float)key_size) : 1.0f, along = 0;
        for (unsigned i = lane; i < key_size; i += WARP) along += to_float(y[i]) * to_float(d[i]);
        along = warp_sum(along) / factor;
        for (unsigned i = lane; i < key_size; i += WARP) put(d + i, length * (factor * to_float(d[i]) - to_float(y[i]) * along));
    } else if (unsigned head = (unit - 2 * key_heads) * WARP + lane; head < heads) {
        uint64_t at = (uint64_t)row * (channels + 2 * heads) + channels + head;
        const float* own = dgates + (uint64_t)row * 2 * heads + head;
        float rate = -expf(to_float(a_log[head])), step = to_float(x[at + heads]) + to_float(dt_bias[head]), log = own[heads];
        float da = log * rate * sigmoid(step);
        put(dx + at, own[0]);
        put(dx + at + heads, da);
        shares[(uint64_t)row * heads + head] = log * rate * softplus(step);
        shares[((uint64_t)rows + row) * heads + head] = da;
    }
}
/// In place: dmixed from the derivative by normalised queries and keys to that of the convolution's result; `b` and `a` of dx from dgates, the derivatives by b and
/// by the logarithm of what is kept. `shares`: each row's part of a_log's derivative, then of dt_bias's.
extern "C" __global__ void mixer_prepare_backward_f32(const float* x, const float* a_log, const float* dt_bias, const float* mixed, const float* lengths,
                                                      float* dmixed, const float* dgates, float* shares, float* dx, unsigned heads, unsigned key_heads, unsigned key_size,
                                                      unsigned channels, unsigned rows) {
    mixer_prepare_backward(x, a_log, dt_bias, mixed, lengths, dmixed, dgates, shares, dx, heads, key_heads, key_size, channels, rows);
}
extern "C" __global__ void mixer_prepare_backward_bf16(const bf16* x, const bf16* a_log, const bf16* dt_bias, const bf16* mixed, const float* lengths,
                                                       bf16* dmixed, const float* dgates, float* shares, bf16* dx, unsigned heads, unsigned key_heads, unsigned key_size,
                                                       unsigned channels, unsigned rows) {
    mixer_prepare_backward(x, a_log, dt_bias, mixed, lengths, dmixed, dgates, shares, dx, heads, key_heads, key_size, channels, rows);
}

/// Heads of a mixer: those of values, each with a state, and those of queries and keys, each of as many of them. A launch has blocks for some: every `step`th from
/// `first` on.
struct MixerHeads {
    unsigned heads, key_heads, key_size, value_size, first, step;

    __device__ inline unsigned channels() const { return 2 * key_heads * key_size + heads * value_size; }
    __device__ inline unsigned numbers() const { return key_size * value_size; }
    __device__ inline unsigned head(unsigned local) const { return first + local * step; }
    /// Where queries, keys and values of a head begin in a row.
    __device__ inline unsigned q(unsigned head) const { return head / (heads / key_heads) * key_size; }
    __device__ inline unsigned k(unsigned head) const { return key_heads * key_size + q(head); }
    __device__ inline unsigned v(unsigned head) const { return 2 * key_heads * key_size + head * value_size; }
};

/// Rows of which a block of the delta rule has queries and keys in shared memory.
#define DELTA_ROWS 8
/// Columns of values that a block has.
#define DELTA_COLUMNS 32

template <class T>
__device__ inline void delta_rule(const T* mixed, const float* gates, const unsigned* groups, const unsigned* runs, const unsigned* places, float* states,
                                  uint64_t slot, float* cache, uint64_t node, T* out, float* errors, unsigned every, MixerHeads of) {
    SHARED(float, shared);
    float *queries = shared, *keys = shared + DELTA_ROWS * MIXER_HEAD;
    unsigned local = blockIdx.y, head = of.head(local), column = blockIdx.z * DELTA_COLUMNS + threadIdx.x / 4, lane = threadIdx.x % 4;
    unsigned first_run = groups == nullptr ? blockIdx.x : groups[blockIdx.x], last_run = groups == nullptr ? blockIdx.x + 1 : groups[blockIdx.x + 1];
    bool exists = column < of.value_size;
    uint64_t at = (uint64_t)(exists ? column : 0) * of.key_size, own = (uint64_t)local * of.numbers() + at;
    for (unsigned run = first_run; run < last_run; run++) {
        const unsigned* words = runs + 5 * (uint64_t)run;
        unsigned first = words[0], end = words[1], before = words[2], after = words[3];
        // A thread's numbers are 16 i + 4 lane .. + 4.
        Packed<float, 4> state[MIXER_HEAD / 16];
#pragma unroll
        for (unsigned i = 0; i < MIXER_HEAD / 16; i++)
            state[i] = load<float, 4, true>(states + (before == NONE ? 0 : before * slot) + own, 16 * i + 4 * lane, before == NONE ? 0 : of.key_size);
        for (unsigned start = first; start < end; start += DELTA_ROWS) {
            unsigned rows = min(DELTA_ROWS, end - start);
            barrier();
            for (unsigned i = threadIdx.x; i < rows * MIXER_HEAD; i += blockDim.x) {
                unsigned at = i % MIXER_HEAD;
                const T* row = mixed + (uint64_t)(start + i / MIXER_HEAD) * of.channels() + at;
                queries[i] = at < of.key_size ? to_float(row[of.q(head)]) : 0.0f;
                keys[i] = at < of.key_size ? to_float(row[of.k(head)]) : 0.0f;
            }
            barrier();
            for (unsigned r = 0; r < rows; r++) {
                unsigned row = start + r;
                const float* gate = gates + (uint64_t)row * 2 * of.heads + head;
                float write = gate[0], keep = expf(gate[of.heads]), value = exists ? to_float(mixed[(uint64_t)row * of.channels() + of.v(head) + column]) : 0.0f;
                Packed<float, 4> k[MIXER_HEAD / 16];
                float found = 0;
#pragma unroll
                for (unsigned i = 0; i < MIXER_HEAD / 16; i++) {
                    k[i] = load<float, 4, true>(keys + r * MIXER_HEAD, 16 * i + 4 * lane, MIXER_HEAD);
#pragma unroll
                    for (unsigned j = 0; j < 4; j++) {
                        state[i].put(j, times(state[i].at(j), keep));
                        found = fmaf(state[i].at(j), k[i].at(j), found);
                    }
                }
                found += shfl_xor(found, 1);
                found += shfl_xor(found, 2);
                float error = times(write, value - found), sum = 0;
#pragma unroll
                for (unsigned i = 0; i < MIXER_HEAD / 16; i++) {
                    Packed<float, 4> q = load<float, 4, true>(queries + r * MIXER_HEAD, 16 * i + 4 * lane, MIXER_HEAD);
#pragma unroll
                    for (unsigned j = 0; j < 4; j++) {
                        state[i].put(j, fmaf(k[i].at(j), error, state[i].at(j)));
                        sum = fmaf(state[i].at(j), q.at(j), sum);
                    }
                }
                sum += shfl_xor(sum, 1);
                sum += shfl_xor(sum, 2);
                unsigned place = places == nullptr ? row : places[row];
                if (exists && lane == 0 && out != nullptr && place != NONE) put(out + ((uint64_t)place * of.heads + head) * of.value_size + column, sum);
                if (exists && lane == 0 && errors != nullptr) errors[((uint64_t)row * gridDim.y + local) * of.value_size + column] = error;
                bool last = row + 1 == end;
                float* kept = after == NONE || !exists                              ? nullptr
                              : every != 0 && (last || (row + 1 - first) % every == 0) ? states + (after + (row - first) / every) * slot + own
                              : every == 0 && last                                   ? states + after * slot + own
                                                                                     : nullptr;
                float* cached = last && exists && words[4] != NONE ? cache + words[4] * node + (uint64_t)head * of.numbers() + at : nullptr;
#pragma unroll
                for (unsigned i = 0; i < MIXER_HEAD / 16; i++) {
                    if (kept != nullptr) store<float, 4, true>(kept, 16 * i + 4 * lane, of.key_size, state[i]);
                    if (cached != nullptr) store<float, 4, true>(cached, 16 * i + 4 * lane, of.key_size, state[i]);
                }
            }
        }
    }
}
/// The gated delta rule along runs: (first row, end, slot of the state before, slot of that after, node). NONE before is a state of zeros. `states` have slots of
/// `slot` numbers with those of this launch's heads, the cache has nodes of `node`. With `every`, the state after as many rows of a run, and after its last, goes
/// into one slot after another. places[row]: the row of `out`; without them all rows have one. `errors`, where wanted, are what each row writes. A block of 128
/// threads per run, or group of runs that follow each other, per head and 32 columns of values; four threads hold a column.
extern "C" __global__ void delta_rule_f32(const float* mixed, const float* gates, const unsigned* groups, const unsigned* runs, const unsigned* places,
                                          float* states, uint64_t slot, float* cache, uint64_t node, float* out, float* errors, unsigned every, unsigned heads,
                                          unsigned key_heads, unsigned key_size, unsigned value_size, unsigned first, unsigned step) {
    delta_rule(mixed, gates, groups, runs, places, states, slot, cache, node, out, errors, every, MixerHeads{heads, key_heads, key_size, value_size, first, step});
}
extern "C" __global__ void delta_rule_bf16(const bf16* mixed, const float* gates, const unsigned* groups, const unsigned* runs, const unsigned* places,
                                           float* states, uint64_t slot, float* cache, uint64_t node, bf16* out, float* errors, unsigned every, unsigned heads,
                                           unsigned key_heads, unsigned key_size, unsigned value_size, unsigned first, unsigned step) {
    delta_rule(mixed, gates, groups, runs, places, states, slot, cache, node, out, errors, every, MixerHeads{heads, key_heads, key_size, value_size, first, step});
}

/// A thread's share of a product of a block of 256 threads: rows 4 warp .. + 4 and columns 4 lane .. + 4 of x m, where m has `n` rows of `width` numbers, multiples
/// of 4, `stride` apart.
struct Share {
    float at[4][4];

    __device__ inline Share() {
#pragma unroll
        for (unsigned i = 0; i < 16; i++) at[i / 4][i % 4] = 0;
    }
    __device__ static inline unsigned row() { return threadIdx.x / WARP * 4; }
    __device__ static inline unsigned column() { return threadIdx.x % WARP * 4; }
    template <class X>
    __device__ inline void add(X x, const float* m, unsigned n, unsigned width, unsigned stride) {
        if (column() >= width) return;
        for (unsigned i = 0; i < n; i++) {
            Packed<float, 4> right = load<float, 4, true>(m + (uint64_t)i * stride, column(), width);
#pragma unroll
            for (unsigned u = 0; u < 4; u++) {
                float left = x(row() + u, i);
#pragma unroll
                for (unsigned v = 0; v < 4; v++) at[u][v] = fmaf(left, right.at(v), at[u][v]);
            }
        }
    }
};

/// A stretch of a head in shared memory.
#define WIDE (MIXER_HEAD + 4)
#define NARROW (STRETCH + 1)
struct StretchMemory {
    /// [STRETCH, WIDE]: queries and keys; what is written; derivatives by the results, and by what is written before it is corrected within the stretch.
    float *q, *k, *e, *dout, *dr;
    /// [STRETCH, NARROW]: what a row reads of the rows before it, by its key and by its query, then their derivatives times the decay.
    float *by_key, *by_query;
    /// By row: logarithm of what is left of the state before the stretch, how much is written, and the derivative by that logarithm.
    float *log, *write, *dlog, *scratch;

    __device__ inline StretchMemory(float* at) {
        q = at, k = q + STRETCH * WIDE, e = k + STRETCH * WIDE, dout = e + STRETCH * WIDE, dr = dout + STRETCH * WIDE;
        by_key = dr + STRETCH * WIDE, by_query = by_key + STRETCH * NARROW;
        log = by_query + STRETCH * NARROW, write = log + STRETCH, dlog = write + STRETCH, scratch = dlog + STRETCH;
    }
    /// What is left at row t of what row i wrote.
    __device__ inline float decay(unsigned t, unsigned i) const { return expf(log[t] - log[i]); }
    /// by_key and by_query, of each row and those before it: products of the row's numbers in `key` (with this sign) and in `query` with the earlier row's in `from`.
    __device__ inline void pair(const float* key, const float* query, const float* from, float sign, unsigned width) const {
        for (unsigned index = threadIdx.x; index < STRETCH * STRETCH; index += blockDim.x) {
            unsigned t = index / STRETCH, i = index % STRETCH;
            float of_key = 0, of_query = 0;
            if (i <= t)
                for (unsigned c = 0; c < width; c += 4) {
                    Packed<float, 4> right = load<float, 4, true>(from + i * WIDE, c, width), left = load<float, 4, true>(key + t * WIDE, c, width),
                                     read = load<float, 4, true>(query + t * WIDE, c, width);
#pragma unroll
                    for (unsigned j = 0; j < 4; j++) of_key = fmaf(left.at(j), right.at(j), of_key), of_query = fmaf(read.at(j), right.at(j), of_query);
                }
            float kept = i <= t ? decay(t, i) : 0.0f;
            by_key[t * NARROW + i] = i < t ? sign * of_key * write[t] * kept : 0.0f;
            by_query[t * NARROW + i] = of_query * kept;
        }
    }
};

template <class T>
__device__ inline void delta_rule_backward(const T* mixed, const float* gates, const unsigned* runs, const unsigned* children, const unsigned* places,
                                           const float* states, uint64_t slot, float* dstates, const float* errors, const T* dout, T* dmixed, float* dgates,
                                           unsigned run_index, unsigned add, MixerHeads of) {
    SHARED(float, shared);
    StretchMemory s(shared);
    unsigned local = blockIdx.y, head = of.head(local), run = run_index + blockIdx.x, channels = of.channels(), keys = of.key_size, values = of.value_size;
    const unsigned* words = runs + 5 * (uint64_t)run;
    unsigned first = words[0], end = words[1], before = words[2], after = words[3], numbers = of.numbers();
    // The derivative by a run's first state, [key, value], and then [value, key].
    uint64_t each = (uint64_t)gridDim.y * 2 * numbers;
    float *d = dstates + run * each + (uint64_t)local * 2 * numbers, *turned = d + numbers;
    for (unsigned i = threadIdx.x; i < 2 * numbers; i += blockDim.x) {
        float sum = 0;
        for (unsigned child = children[2 * run]; child < children[2 * run + 1]; child++) sum += dstates[child * each + (uint64_t)local * 2 * numbers + i];
        d[i] = sum;
    }
    unsigned t0 = Share::row(), c0 = Share::column();
    for (unsigned stretch = (end - first + STRETCH - 1) / STRETCH; stretch-- > 0;) {
        unsigned start = first + stretch * STRETCH, rows = min(STRETCH, end - start), slot_before = stretch > 0 ? after + stretch - 1 : before;
        const float* state = states + (slot_before == NONE ? 0 : slot_before * slot) + (uint64_t)local * numbers;
        unsigned columns = slot_before == NONE ? 0 : values;
        barrier();
        // Rows beyond the last are zeros that keep all.
        for (unsigned i = threadIdx.x; i < STRETCH * MIXER_HEAD; i += blockDim.x) {
            unsigned t = i / MIXER_HEAD, c = i % MIXER_HEAD, to = t * WIDE + c;
            const T* row = mixed + (uint64_t)(start + t) * channels;
            bool key = t < rows && c < keys, value = t < rows && c < values;
            unsigned place = !value ? NONE : places == nullptr ? start + t : places[start + t];
            s.q[to] = key ? to_float(row[of.q(head) + c]) : 0.0f;
            s.k[to] = key ? to_float(row[of.k(head) + c]) : 0.0f;
            s.e[to] = value ? errors[((uint64_t)(start + t) * gridDim.y + local) * values + c] : 0.0f;
            s.dout[to] = place != NONE ? to_float(dout[((uint64_t)place * of.heads + head) * values + c]) : 0.0f;
        }
        if (threadIdx.x < STRETCH) {
            unsigned t = threadIdx.x;
            float log = 0;
            for (unsigned i = 0; i <= t && i < rows; i++) log += gates[(uint64_t)(start + i) * 2 * of.heads + of.heads + head];
            s.log[t] = log;
            s.write[t] = t < rows ? gates[(uint64_t)(start + t) * 2 * of.heads + head] : 0.0f;
        }
        barrier();
        s.pair(s.k, s.q, s.k, 1.0f, keys);
        barrier();
        // The derivative by what is written: by later rows' results, and by the state after the stretch.
        float last = s.log[STRETCH - 1];
        Share of_state, of_rows;
        of_state.add([=](unsigned t, unsigned i) { return s.k[t * WIDE + i]; }, d, keys, values, values);
        of_rows.add([=](unsigned t, unsigned i) { return s.by_query[i * NARROW + t]; }, s.dout, STRETCH, values, WIDE);
        if (c0 < values)
#pragma unroll
            for (unsigned u = 0; u < 4; u++)
#pragma unroll
                for (unsigned v = 0; v < 4; v++)
                    s.dr[(t0 + u) * WIDE + c0 + v] = fmaf(expf(last - s.log[t0 + u]), of_state.at[u][v], of_rows.at[u][v]);
        barrier();
        // Through the corrections, the last row first.
        if (threadIdx.x < values) {
            float column[STRETCH];
#pragma unroll
            for (unsigned back = 0; back < STRETCH; back++) {
                const unsigned t = STRETCH - 1 - back;
                float sum = s.dr[t * WIDE + threadIdx.x];
#pragma unroll
                for (unsigned later = t + 1; later < STRETCH; later++) sum = fmaf(-s.by_key[later * NARROW + t], column[later], sum);
                column[t] = sum;
            }
#pragma unroll
            for (unsigned t = 0; t < STRETCH; t++) s.dr[t * WIDE + threadIdx.x] = column[t];
        }
        barrier();
        s.pair(s.dr, s.dout, s.e, -1.0f, values);
        // By values, and by how much is written.
        for (unsigned i = threadIdx.x; i < rows * values; i += blockDim.x) {
            unsigned t = i / values, c = i % values;
            put(dmixed + (uint64_t)(start + t) * channels + of.v(head) + c, s.write[t] * s.dr[t * WIDE + c]);
        }
        for (unsigned t = threadIdx.x / WARP; t < STRETCH; t += blockDim.x / WARP) {
            float sum = 0;
            for (unsigned c = threadIdx.x % WARP; c < values; c += WARP) sum = fmaf(s.dr[t * WIDE + c], s.e[t * WIDE + c], sum);
            sum = warp_sum(sum);
            if (threadIdx.x % WARP == 0 && t < rows) dgates[(uint64_t)(start + t) * 2 * of.heads + head] = sum * (1.0f - s.write[t]);
        }
        barrier();
        // By queries and keys: as readers of the state and of the rows before, and as what writes for the rows after and for the state after.
        Share dq, read, written;
        dq.add([=](unsigned t, unsigned i) { return s.dout[t * WIDE + i]; }, state, columns, keys, keys);
        read.add([=](unsigned t, unsigned i) { return -s.write[t] * s.dr[t * WIDE + i]; }, state, columns, keys, keys);
        written.add([=](unsigned t, unsigned i) { return s.e[t * WIDE + i]; }, turned, values, keys, keys);
#pragma unroll
        for (unsigned u = 0; u < 4; u++) {
            float left = expf(s.log[t0 + u]), after_it = expf(last - s.log[t0 + u]);
#pragma unroll
            for (unsigned v = 0; v < 4; v++) dq.at[u][v] *= left, read.at[u][v] *= left, written.at[u][v] *= after_it;
        }
        // What the state after the stretch gets of the rows' writes, for the derivative by the decay of all.
        float whole = 0;
        if (c0 < keys)
#pragma unroll
            for (unsigned u = 0; u < 4; u++)
#pragma unroll
                for (unsigned v = 0; v < 4; v++) whole = fmaf(s.k[(t0 + u) * WIDE + c0 + v], written.at[u][v], whole);
        dq.add([=](unsigned t, unsigned i) { return s.by_query[t * NARROW + i]; }, s.k, STRETCH, keys, WIDE);
        read.add([=](unsigned t, unsigned i) { return s.by_key[t * NARROW + i]; }, s.k, STRETCH, keys, WIDE);
        written.add([=](unsigned t, unsigned i) { return s.by_query[i * NARROW + t]; }, s.q, STRETCH, keys, WIDE);
        written.add([=](unsigned t, unsigned i) { return s.by_key[i * NARROW + t]; }, s.k, STRETCH, keys, WIDE);
#pragma unroll
        for (unsigned u = 0; u < 4; u++) {
            unsigned t = t0 + u;
            T* row = dmixed + (uint64_t)(start + t) * channels;
            float along = 0;
            if (c0 < keys)
#pragma unroll
                for (unsigned v = 0; v < 4; v++) {
                    unsigned c = c0 + v;
                    float k = s.k[t * WIDE + c], q = dq.at[u][v], both = read.at[u][v] + written.at[u][v];
                    along += s.q[t * WIDE + c] * q + k * (read.at[u][v] - written.at[u][v]);
                    if (t >= rows) continue;
                    put(row + of.q(head) + c, add ? to_float(row[of.q(head) + c]) + q : q);
                    put(row + of.k(head) + c, add ? to_float(row[of.k(head) + c]) + both : both);
                }
            along = warp_sum(along);
            if (threadIdx.x % WARP == 0) s.dlog[t] = along;
        }
        float carried = 0;
        for (unsigned i = threadIdx.x; i < keys * columns; i += blockDim.x) carried = fmaf(state[i], turned[i], carried);
        whole = block_sum(fmaf(carried, expf(last), whole), s.scratch);
        // Logarithms are sums over the rows so far.
        if (threadIdx.x < rows) {
            float sum = whole;
            for (unsigned t = threadIdx.x; t < STRETCH; t++) sum += s.dlog[t];
            dgates[(uint64_t)(start + threadIdx.x) * 2 * of.heads + of.heads + head] = sum;
        }
        // The state before the stretch is read by each row's query and key.
        for (unsigned i = threadIdx.x; i < STRETCH * MIXER_HEAD; i += blockDim.x) {
            unsigned t = i / MIXER_HEAD, at = t * WIDE + i % MIXER_HEAD;
            if (i % MIXER_HEAD >= values) continue;
            float left = expf(s.log[t]);
            s.dout[at] *= left;
            s.dr[at] *= -left * s.write[t];
        }
        barrier();
        for (unsigned base = 0; base < keys; base += blockDim.x / WARP * 4) {
            Share next;
            bool own = base + t0 < keys && c0 < values;
            next.add([=](unsigned r, unsigned i) { return base + r < keys ? s.q[i * WIDE + base + r] : 0.0f; }, s.dout, STRETCH, values, WIDE);
            next.add([=](unsigned r, unsigned i) { return base + r < keys ? s.k[i * WIDE + base + r] : 0.0f; }, s.dr, STRETCH, values, WIDE);
            if (own)
#pragma unroll
                for (unsigned u = 0; u < 4; u++)
#pragma unroll
                    for (unsigned v = 0; v < 4; v++) {
                        unsigned key = base + t0 + u, value = c0 + v;
                        float sum = fmaf(expf(last), d[key * values + value], next.at[u][v]);
                        d[key * values + value] = sum;
                        turned[value * keys + key] = sum;
                    }
        }
    }
}
/// The derivatives of the delta rule, a run's stretches from the last to the first: `mixed` and `errors` are those of the forward pass, `states` has what each stretch
/// begins with. `runs` as there, `children` has each one's (first, end) among them. dmixed is replaced, or queries' and keys' derivatives with `add` added to it;
/// dgates: by b, and by the logarithm of what is kept. A block of 256 threads per run from `run_index` on, and per head.
extern "C" __global__ __launch_bounds__(256) void delta_rule_backward_f32(
    const float* mixed, const float* gates, const unsigned* runs, const unsigned* children, const unsigned* places, const float* states, uint64_t slot,
    float* dstates, const float* errors, const float* dout, float* dmixed, float* dgates, unsigned run_index, unsigned add, unsigned heads, unsigned key_heads,
    unsigned key_size, unsigned value_size, unsigned first, unsigned step) {
    delta_rule_backward(mixed, gates, runs, children, places, states, slot, dstates, errors, dout, dmixed, dgates, run_index, add,
                        MixerHeads{heads, key_heads, key_size, value_size, first, step});
}
extern "C" __global__ __launch_bounds__(256) void delta_rule_backward_bf16(
    const bf16* mixed, const float* gates, const unsigned* runs, const unsigned* children, const unsigned* places, const float* states, uint64_t slot,
    float* dstates, const float* errors, const bf16* dout, bf16* dmixed, float* dgates, unsigned run_index, unsigned add, unsigned heads, unsigned key_heads,
    unsigned key_size, unsigned value_size, unsigned first, unsigned step) {
    delta_rule_backward(mixed, gates, runs, children, places, states, slot, dstates, errors, dout, dmixed, dgates, run_index, add,
                        MixerHeads{heads, key_heads, key_size, value_size, first, step});
}
