// The vocabulary head after its product: log-probabilities and entropies of softmax(logits / temperature), their derivatives, and drawing
// tokens. One block per row of logits, which are f32.

/// The lesser of a number and 0, or the number itself where it isn't one: fminf would pass over it.
__device__ inline float at_most_0(float v) { return v > 0.0f ? 0.0f : v; }
__device__ inline float at_least_0(float v) { return v < 0.0f ? 0.0f : v; }

/// Logits are read by 16 bytes if the vocabulary is a multiple of that: `body(index, logit)` for each of a thread's own.
#define LOGITS_AT_ONCE 4
template <bool WHOLE, class Body>
__device__ inline void each_logit_by(const float* row, unsigned vocabulary, Body body) {
    for (unsigned i = threadIdx.x * LOGITS_AT_ONCE; i < vocabulary; i += blockDim.x * LOGITS_AT_ONCE) {
        Packed<float, LOGITS_AT_ONCE> z = load<float, LOGITS_AT_ONCE, WHOLE>(row, i, vocabulary);
#pragma unroll
        for (unsigned j = 0; j < LOGITS_AT_ONCE; j++)
            if (WHOLE || i + j < vocabulary) body(i + j, z.at(j));
    }
}
template <class Body>
__device__ inline void each_logit(const float* row, unsigned vocabulary, Body body) {
    if (vocabulary % LOGITS_AT_ONCE == 0)
        each_logit_by<true>(row, vocabulary, body);
    else
        each_logit_by<false>(row, vocabulary, body);
}

/// Logits `begin .. end` in their order, by one thread, until `body(index, logit)` is true. `begin` is a multiple of 4.
template <bool WHOLE, class Body>
__device__ inline void run_of_logits_by(const float* row, unsigned begin, unsigned end, Body body) {
    for (unsigned i = begin; i < end; i += LOGITS_AT_ONCE) {
        Packed<float, LOGITS_AT_ONCE> z = load<float, LOGITS_AT_ONCE, WHOLE>(row, i, end);
        for (unsigned j = 0; j < LOGITS_AT_ONCE; j++)
            if (i + j < end && body(i + j, z.at(j))) return;
    }
}
template <class Body>
__device__ inline void run_of_logits(const float* row, unsigned vocabulary, unsigned begin, unsigned end, Body body) {
    if (vocabulary % LOGITS_AT_ONCE == 0)
        run_of_logits_by<true>(row, begin, end, body);
    else
        run_of_logits_by<false>(row, begin, end, body);
}

/// Softmax of a thread's numbers in one pass: the greatest, and relative to it Σ exp and Σ exp z. Sums of products are spelled out: scores and samples have the
/// same bits.
struct RunningSoftmax {
    float most, sum, weighted;

    __device__ inline void raise(float above) {
        // Without numbers there is nothing to scale, and the distance may be infinite.
        if (sum > 0.0f && above > most) {
            float down = most - above, keep = expf(down);
            weighted = times(keep, fmaf(sum, down, weighted));
            sum *= keep;
        }
        most = above;
    }
    __device__ inline void add(float z) {
        if (z > most) raise(z);
        float e = expf(z - most);
        sum += e;
        weighted = fmaf(e, z - most, weighted);
    }
};

/// The greatest of a row's tempered logits, log Σ exp and the entropy, in one pass and a fixed order; every thread gets them. `scratch`: one number per warp.
struct RowSoftmax {
    float most, lse, entropy;
};
__device__ inline RowSoftmax row_softmax(const float* row, unsigned vocabulary, float factor, float* scratch) {
    RunningSoftmax own{MINUS_INFINITY, 0, 0};
    each_logit(row, vocabulary, [&](unsigned, float z) { own.add(times(z, factor)); });
    float most = block_max(own.most, scratch);
    own.raise(most);
    float sum = block_sum(own.sum, scratch), weighted = block_sum(own.weighted, scratch);
    return RowSoftmax{most, most + logf(sum), at_least_0(logf(sum) - weighted / sum)};
}

/// saved[row] = (log Σ exp, entropy).
extern "C" __global__ void head_scores(const float* logits, float* saved, unsigned vocabulary, float factor) {
    SHARED(float, scratch);
    RowSoftmax found = row_softmax(logits + (uint64_t)blockIdx.x * vocabulary, vocabulary, factor, scratch);
    if (threadIdx.x == 0) {
        saved[2 * blockIdx.x] = found.lse;
        saved[2 * blockIdx.x + 1] = found.entropy;
    }
}

/// logp and entropy of each pick: (row, token). One thread each. `logits` begin with row `first`.
extern "C" __global__ void head_picks(const float* logits, const float* saved, const unsigned* pick_rows, const unsigned* pick_tokens, float* logp,
                                      float* entropy, unsigned picks, unsigned first, unsigned vocabulary, float factor) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= picks) return;
    unsigned row = pick_rows[i];
    logp[i] = at_most_0(times(logits[(uint64_t)(row - first) * vocabulary + pick_tokens[i]], factor) - saved[2 * row]);
    entropy[i] = saved[2 * row + 1];
}

/// Logits become their derivative, in their place: a row of T, which begins where the row of logits does. Row r's picks are
/// `pick_first[r] .. pick_first[r + 1]`; with D = Σ dlogp and S = Σ dentropy of them,
/// d/dz_v = (Σ_{picks of v} dlogp - p_v D - S p_v (log p_v + entropy)) / temperature.
template <class T, bool WHOLE>
__device__ inline void head_backward_by(float* row, float lse, float entropy, unsigned first, unsigned last, const unsigned* pick_tokens,
                                        const float* dlogp, const float* dentropy, unsigned vocabulary, float factor) {
    const unsigned N = LOGITS_AT_ONCE;
    T* out = reinterpret_cast<T*>(row);
    float d = 0, s = 0;
    for (unsigned i = first; i < last; i++) {
        d += dlogp[i];
        s += dentropy[i];
    }
    for (unsigned begin = 0; begin < vocabulary; begin += blockDim.x * N) {
        unsigned v = begin + threadIdx.x * N;
        Packed<float, N> z = load<float, N, WHOLE>(row, v, vocabulary);
        float own[N] = {};
        for (unsigned i = first; i < last; i++) {
            unsigned at = pick_tokens[i] - v;
#pragma unroll
            for (unsigned j = 0; j < N; j++)
                if (at == j) own[j] += dlogp[i];
        }
#pragma unroll
        for (unsigned j = 0; j < N; j++) {
            float log_p = times(z.at(j), factor) - lse, p = expf(log_p);
            own[j] = (own[j] - p * (d + s * (log_p + entropy))) * factor;
        }
        // Shorter numbers lie where others have logits of this round or of rounds before.
        if (sizeof(T) < sizeof(float)) barrier();
#pragma unroll
        for (unsigned j = 0; j < N; j++)
            if (v + j < vocabulary) put(out + v + j, own[j]);
    }
}
template <class T>
__device__ inline void head_backward(float* logits, const float* saved, const unsigned* pick_first, const unsigned* pick_tokens, const float* dlogp,
                                     const float* dentropy, unsigned vocabulary, float factor) {
    unsigned r = blockIdx.x, first = pick_first[r], last = pick_first[r + 1];
    float* row = logits + (uint64_t)r * vocabulary;
    float lse = saved[2 * r], entropy = saved[2 * r + 1];
    if (vocabulary % LOGITS_AT_ONCE == 0)
        head_backward_by<T, true>(row, lse, entropy, first, last, pick_tokens, dlogp, dentropy, vocabulary, factor);
    else
        head_backward_by<T, false>(row, lse, entropy, first, last, pick_tokens, dlogp, dentropy, vocabulary, factor);
}
extern "C" __global__ void head_backward_f32(float* logits, const float* saved, const unsigned* pick_first, const unsigned* pick_tokens,
                                             const float* dlogp, const float* dentropy, unsigned vocabulary, float factor) {
    head_backward<float>(logits, saved, pick_first, pick_tokens, dlogp, dentropy, vocabulary, factor);
}
extern "C" __global__ void head_backward_bf16(float* logits, const float* saved, const unsigned* pick_first, const unsigned* pick_tokens,
                                              const float* dlogp, const float* dentropy, unsigned vocabulary, float factor) {
    head_backward<bf16>(logits, saved, pick_first, pick_tokens, dlogp, dentropy, vocabulary, factor);
}

/// Bins of a search's histogram, and the most probabilities of a bin that are listed.
#define BINS 2048
#define LISTED 2048

/// Shared memory of a search for the least probability kept. Masses of a bin are exact: its probabilities have one exponent, and the lower and upper twelve
/// bits of their mantissas are summed apart. So are counts; neither depends on an order.
struct Histogram {
    unsigned *counts, *low, *high, *list, *place;
    double* sums;

    __device__ inline void clear() const {
        barrier();
        for (unsigned b = threadIdx.x; b < 3 * BINS; b += blockDim.x) counts[b] = 0;
        if (threadIdx.x == 0) place[0] = BINS, place[1] = 0;
        barrier();
    }
    __device__ inline void add(unsigned bin, unsigned bits) const {
        unsigned mantissa = (bits & 0x7fffffu) | (bits >> 23 ? 0x800000u : 0);
        shared_add(counts + bin, 1);
        shared_add(low + bin, mantissa & 0xfffu);
        shared_add(high + bin, mantissa >> 12);
    }
    /// The mass of a bin, whose probabilities have this exponent.
    __device__ inline double mass(unsigned bin, unsigned exponent) const {
        // 2^(exponent - 150), with the least one for numbers below the normal ones.
        double unit = (double)bits_to_float(1u << 23) * (1.0 / 8388608.0);
        unsigned steps = exponent > 0 ? exponent - 1 : 0;
        for (; steps >= 32; steps -= 32) unit *= 4294967296.0;
        unit *= (double)(1ull << steps);
        return ((double)high[bin] * 4096.0 + (double)low[bin]) * unit;
    }
};

/// The least probability that a search keeps, as bits (positive floats order like integers); how many probabilities are greater, their mass, and how many
/// are equal to it; `wanted`, the mass looked for.
struct Threshold {
    unsigned bits, equal;
    double above, mass, wanted;
};

/// The greatest threshold whose probabilities are `rank` in number, or, if that is 0, have the `part` of the mass `all` (of the whole mass, if that is 0). In
/// rounds: by the upper 12 bits, then among those in the bin found by the next 11, then by the last 8. Few in a bin are listed, so that later rounds don't
/// read all logits again.
__device__ inline Threshold search(const float* row, unsigned vocabulary, float factor, float most, const Histogram& h, unsigned rank, double part,
                                   double all) {
    Threshold found{0, vocabulary, 0, 0, part * all};
    unsigned upper = 31, listed = 0;
    bool is_listed = false;
#pragma unroll 1
    for (unsigned round = 0; round < 3; round++) {
        unsigned shift = round == 0 ? 19 : round == 1 ? 8 : 0, prefix = found.bits >> upper;
        h.clear();
        auto take = [&](unsigned bits) {
            // Nothing has no mass, and is what no bin reaches.
            if (bits > 0 && bits >> upper == prefix) h.add((bits >> shift) % BINS, bits);
        };
        if (is_listed)
            for (unsigned i = threadIdx.x; i < listed; i += blockDim.x) take(h.list[i]);
        else
            each_logit(row, vocabulary, [&](unsigned, float z) { take(float_to_bits(expf(times(z, factor) - most))); });
        barrier();
        // From the greatest bin down, a thread has eight.
        const unsigned each = BINS / 256;
        double count = 0, mass = 0;
        for (unsigned b = 0; b < each; b++) {
            unsigned bin = BINS - 1 - threadIdx.x * each - b, bits = (found.bits >> upper << upper) | bin << shift;
            count += h.counts[bin];
            if (h.counts[bin] > 0) mass += h.mass(bin, bits >> 23);
        }
        h.sums[2 * threadIdx.x] = count;
        h.sums[2 * threadIdx.x + 1] = mass;
        barrier();
        double greater = 0, heavier = 0, total = 0, whole = 0, own_greater = 0, own_heavier = 0;
        for (unsigned t = 0; t < 256; t++) {
            if (t == threadIdx.x) greater = total, heavier = whole;
            total += h.sums[2 * t];
            whole += h.sums[2 * t + 1];
            if (t == threadIdx.x) own_greater = total, own_heavier = whole;
        }
        if (round == 0 && rank == 0 && all == 0) found.wanted = part * whole;
        // All that there are in a later round suffice, whatever rounding says.
        auto reaches = [&](double n, double m) {
            return (round > 0 && n >= total) || (rank > 0 ? found.above + n >= rank : found.mass + m >= found.wanted);
        };
        // Every thread has the same sums, so just one of them finds the bin, if there is one.
        bool mine = !reaches(greater, heavier) && reaches(own_greater, own_heavier);
        barrier();
        for (unsigned b = 0; b < each && mine; b++) {
            unsigned bin = BINS - 1 - threadIdx.x * each - b, bits = (found.bits >> upper << upper) | bin << shift, n = h.counts[bin];
            if (n == 0) continue;
            double after = greater + n, with = heavier + h.mass(bin, bits >> 23);
            if (reaches(after, with) || after >= own_greater) {
                h.place[0] = bin;
                h.place[1] = n;
                h.sums[0] = found.above + greater;
                h.sums[1] = found.mass + heavier;
                mine = false;
            }
            greater = after;
            heavier = with;
        }
        barrier();
        unsigned bin = h.place[0], n = h.place[1];
        // Not even all that are above 0.
        if (bin == BINS) return Threshold{0, vocabulary - (unsigned)total, total, whole, found.wanted};
        found = Threshold{(found.bits >> upper << upper) | bin << shift, n, h.sums[0], h.sums[1], found.wanted};
        upper = shift;
        if (!is_listed && n <= LISTED && round < 2) {
            prefix = found.bits >> upper;
            barrier();
            if (threadIdx.x == 0) h.place[0] = 0;
            barrier();
            each_logit(row, vocabulary, [&](unsigned, float z) {
                unsigned bits = float_to_bits(expf(times(z, factor) - most));
                if (bits > 0 && bits >> upper == prefix) h.list[shared_add(h.place, 1)] = bits;
            });
            is_listed = true;
            listed = n;
        }
    }
    return found;
}

/// Draws tokens by inverse CDF in the order of ids, after top-k, top-p and min-p (in this order; of equal tokens the lower id is kept
/// first). Truncation is a search for the least probability kept, and of the ties at it the number kept. Row r's draws are
/// `draw_first[r] .. draw_first[r + 1]`. `greedy` takes the most likely token. 256 threads, shared memory for 768 doubles and 4 * 2,048 + 2 words.
extern "C" __global__ __launch_bounds__(256, 2) void sample(const float* logits, const unsigned* draw_first, const double* uniforms, unsigned* tokens,
                                                         float* logp, float* entropy, unsigned vocabulary, float factor, unsigned top_k, float top_p,
                                                         float min_p, unsigned greedy) {
    // A row without draws fills up the bucket of a decoding step.
    if (draw_first[blockIdx.x] == draw_first[blockIdx.x + 1]) return;
    SHARED(double, scratch);
    double* masses = scratch + 512;
    unsigned* words = reinterpret_cast<unsigned*>(scratch + 768);
    Histogram histogram{words, words + BINS, words + 2 * BINS, words + 3 * BINS, words + 3 * BINS + LISTED, scratch};
    const float* row = logits + (uint64_t)blockIdx.x * vocabulary;
    RowSoftmax softmax = row_softmax(row, vocabulary, factor, reinterpret_cast<float*>(scratch));
    float most = softmax.most, lse = softmax.lse, h = softmax.entropy;
    barrier();
    if (!(fabsf(lse) < 3.0e38f)) {
        // No distribution: the host finds it by its log-probabilities.
        for (unsigned draw = draw_first[blockIdx.x] + threadIdx.x; draw < draw_first[blockIdx.x + 1]; draw += 256) {
            tokens[draw] = 0;
            logp[draw] = entropy[draw] = lse - lse;
        }
        return;
    }

    // Kept: probabilities above `least`, and the first `ties` of those equal to it.
    unsigned least = 0;
    double ties = vocabulary, all = 0;
    if (top_k > 0 && top_k < vocabulary) {
        Threshold found = search(row, vocabulary, factor, most, histogram, top_k, 0, 0);
        least = found.bits;
        ties = top_k - found.above;
        all = found.mass + (double)bits_to_float(least) * fmin(ties, (double)found.equal);
    }
    if (top_p < 1.0f) {
        Threshold found = search(row, vocabulary, factor, most, histogram, 0, top_p, all);
        double need = ceil((found.wanted - found.mass) / bits_to_float(found.bits));
        ties = found.bits == least ? fmin(ties, fmax(need, 1.0)) : fmax(need, 1.0);
        least = found.bits;
    }
    if (min_p > 0.0f && float_to_bits(min_p) > least) {
        least = float_to_bits(min_p);
        ties = vocabulary;
    }

    // Each thread's run of ids: how many ties stand in it, then its mass.
    unsigned run = (vocabulary + 1023) / 1024 * 4, begin = min(vocabulary, threadIdx.x * run), end = min(vocabulary, begin + run);
    double before = 0;
    // What is 0 has no mass, whether it is kept or not.
    if (least > 0) {
        double equal = 0;
        run_of_logits(row, vocabulary, begin, end, [&](unsigned, float z) {
            equal += float_to_bits(expf(times(z, factor) - most)) == least;
            return false;
        });
        barrier();
        scratch[threadIdx.x] = equal;
        barrier();
        for (unsigned t = 0; t < threadIdx.x; t++) before += scratch[t];
    }
    double own = 0, left = ties - before;
    run_of_logits(row, vocabulary, begin, end, [&](unsigned, float z) {
        float p = expf(times(z, factor) - most);
        unsigned bits = float_to_bits(p);
        if (bits > least || (bits == least && left-- > 0)) own += p;
        return false;
    });
    masses[threadIdx.x] = own;
    barrier();
    double start = 0, total = 0;
    bool later = false;
    for (unsigned t = 0; t < 256; t++) {
        if (t == threadIdx.x) start = total;
        later |= t > threadIdx.x && masses[t] > 0;
        total += masses[t];
    }
    for (unsigned draw = draw_first[blockIdx.x]; draw < draw_first[blockIdx.x + 1]; draw++) {
        double target = uniforms[draw] * total;
        // The run that holds the target; the last run with any mass takes what rounding leaves over.
        bool mine = own > 0 && start <= target && (target < start + own || !later);
        if (greedy) mine = false;
        if (mine) {
            double reached = start, rest = ties - before;
            unsigned token = begin;
            run_of_logits(row, vocabulary, begin, end, [&](unsigned i, float z) {
                float p = expf(times(z, factor) - most);
                unsigned bits = float_to_bits(p);
                if (bits < least || (bits == least && !(rest-- > 0))) return false;
                if (p > 0.0f) token = i;
                reached += p;
                return reached > target;
            });
            tokens[draw] = token;
            logp[draw] = at_most_0(times(row[token], factor) - lse);
            entropy[draw] = h;
        }
        if (greedy) {
            // The lowest id of the most likely tokens.
            unsigned first = vocabulary;
            run_of_logits(row, vocabulary, begin, end, [&](unsigned i, float z) {
                if (times(z, factor) != most) return false;
                first = i;
                return true;
            });
            barrier();
            scratch[threadIdx.x] = first;
            barrier();
            if (threadIdx.x == 0) {
                unsigned token = vocabulary;
                for (unsigned t = 0; t < 256; t++) token = min(token, (unsigned)scratch[t]);
                tokens[draw] = token;
                logp[draw] = at_most_0(times(row[token], factor) - lse);
                entropy[draw] = h;
            }
        }
    }
}
