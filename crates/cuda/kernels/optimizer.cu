// AdamW, and the gradient's norm. Weights in bf16 mode are two halves that together are the exact f32 master: `high` is what the
// network reads, `low` the 16 bits that rounding took away, as a signed difference of bit patterns. Moments are f32, or bf16 rounded stochastically.

__device__ inline float join(bf16 high, unsigned short low) {
    return bits_to_float(((unsigned)high.bits << 16) + (unsigned)(int)(short)low);
}
__device__ inline void split(float v, bf16* high, unsigned short* low) {
    unsigned u = float_to_bits(v);
    unsigned rounded = round_bf16(v);
    high->bits = (unsigned short)rounded;
    // The difference lies in [-0x8000, 0x8000]. A tie rounded down leaves +0x8000, which the upper neighbour expresses as -0x8000.
    int difference = (int)(u - (rounded << 16));
    if (difference == 0x8000) {
        high->bits = (unsigned short)(rounded + 1);
        difference = -0x8000;
    }
    *low = (unsigned short)(short)difference;
}

/// The numbers of one step: a factor of the gradient, 1 - beta1, beta2, 1 - beta2, eps, 1 - lr * decay, lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t).
struct AdamW {
    float clip, take1, beta2, take2, eps, decay, rate, root;
};

/// As torch.optim.AdamW takes it. The gradient becomes 0.
__device__ inline float adamw_step(AdamW s, float w, float* gradient, float* m, float* v) {
    float d = *gradient * s.clip;
    *gradient = 0.0f;
    *m += (d - *m) * s.take1;
    *v = d * s.take2 * d + *v * s.beta2;
    return w * s.decay - s.rate * (*m / (sqrtf(*v) * s.root + s.eps));
}

extern "C" __global__ void adamw_f32(float* w, float* gradient, float* m, float* v, float clip, float take1, float beta2, float take2, float eps,
                                     float decay, float rate, float root, uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    w[i] = adamw_step(AdamW{clip, take1, beta2, take2, eps, decay, rate, root}, w[i], gradient + i, m + i, v + i);
}
extern "C" __global__ void adamw_bf16(bf16* high, unsigned short* low, float* gradient, float* m, float* v, float clip, float take1, float beta2,
                                      float take2, float eps, float decay, float rate, float root, uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float w = adamw_step(AdamW{clip, take1, beta2, take2, eps, decay, rate, root}, join(high[i], low[i]), gradient + i, m + i, v + i);
    split(w, high + i, low + i);
}

/// 64 random bits of a parameter in a step: SplitMix64's finaliser (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014), with a multiplier for each of the two. They don't depend on the launch.
__device__ inline uint64_t random_bits(uint64_t step, uint64_t parameter) {
    uint64_t z = step * 0xd1342543de82ef95u + parameter * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/// One of the two neighbours of 16 bits, by a random number below 2^16: the one further from 0 with the probability with which the mean is v.
__device__ inline bf16 round_stochastically(float v, unsigned random) {
    const unsigned infinity = 0x7f800000u;
    unsigned u = float_to_bits(v), sum = u + random;
    if ((u & infinity) == infinity) return bf16{(unsigned short)round_bf16(v)};
    // A finite number stays finite.
    if ((sum & infinity) == infinity) sum = u;
    return bf16{(unsigned short)(sum >> 16)};
}
/// A step over moments of 16 bits, which are rounded after it. Rounded to nearest, a second moment would stop far below the mean square of the
/// gradient, where a step changes it by less than half of the distance to its neighbour.
__device__ inline float adamw_step(AdamW s, float w, float* gradient, bf16* m, bf16* v, uint64_t random) {
    float first = to_float(*m), second = to_float(*v);
    w = adamw_step(s, w, gradient, &first, &second);
    *m = round_stochastically(first, (unsigned)random & 0xffffu);
    *v = round_stochastically(second, (unsigned)(random >> 48));
    return w;
}

/// `first`: the parameter of the first number, which with the step's number decides how its moments are rounded.
extern "C" __global__ void adamw_rounded_f32(float* w, float* gradient, bf16* m, bf16* v, float clip, float take1, float beta2, float take2, float eps,
                                             float decay, float rate, float root, uint64_t count, uint64_t step, uint64_t first) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    AdamW numbers{clip, take1, beta2, take2, eps, decay, rate, root};
    w[i] = adamw_step(numbers, w[i], gradient + i, m + i, v + i, random_bits(step, first + i));
}
extern "C" __global__ void adamw_rounded_bf16(bf16* high, unsigned short* low, float* gradient, bf16* m, bf16* v, float clip, float take1, float beta2,
                                              float take2, float eps, float decay, float rate, float root, uint64_t count, uint64_t step, uint64_t first) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    AdamW numbers{clip, take1, beta2, take2, eps, decay, rate, root};
    float w = adamw_step(numbers, join(high[i], low[i]), gradient + i, m + i, v + i, random_bits(step, first + i));
    split(w, high + i, low + i);
}
/// f32 masters into their halves, and back.
extern "C" __global__ void split_master(const float* w, bf16* high, unsigned short* low, uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) split(w[i], high + i, low + i);
}
extern "C" __global__ void join_master(const bf16* high, const unsigned short* low, float* w, uint64_t count) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) w[i] = join(high[i], low[i]);
}

/// partial[b] = sum of the block's squares, in f64: the host adds the partials in their order.
extern "C" __global__ void square_sum(const float* x, double* partial, uint64_t count) {
    SHARED(double, sums);
    double sum = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (uint64_t)gridDim.x * blockDim.x)
        sum += (double)x[i] * x[i];
    sums[threadIdx.x] = sum;
    barrier();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        barrier();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}
