// The fake driver's libcublasLt.so.13: products in f32, in an order that its heuristic chooses by the number of columns, as the library's does. It refuses layouts that don't fit together, operands beyond their
// memory, and addresses that are aligned less than the heuristic was told.
#include "fake_driver.h"
#include "emulator.h"

#include <array>

using namespace fake;
enum { SUCCESS, INVALID_VALUE = 7, FAILED = 13 };

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;

    size_t size() const { return type == 14 ? 2 : 4; }
    size_t bytes() const { return ((columns - 1) * stride + rows) * size(); }
    bool is(bool transposed, uint64_t r, uint64_t c) const { return transposed ? rows == c && columns == r : rows == r && columns == c; }
    float get(const void* at, uint64_t row, uint64_t column) const {
        uint64_t i = column * stride + row;
        return type == 14 ? bits_to_float(unsigned(static_cast<const unsigned short*>(at)[i]) << 16) : static_cast<const float*>(at)[i];
    }
    void put(void* at, uint64_t row, uint64_t column, float v) const {
        uint64_t i = column * stride + row;
        unsigned u = float_to_bits(v);
        if (type != 14)
            static_cast<float*>(at)[i] = v;
        else
            static_cast<unsigned short*>(at)[i] = (u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    }
};
struct Description {
    int compute, scale;
    std::array<int, 2> transposed = {0, 0};
    int epilogue = 1;
    const void* bias = nullptr;
    bool biased() const { return epilogue == 4; }
};
struct Preference {
    std::array<unsigned, 4> alignment = {256, 256, 256, 256};
    unsigned schemes = ~0u;
    size_t workspace = 0;
};
struct Library {};
struct Algorithm {
    std::array<unsigned, 4> alignment;
    /// The terms of a sum are dealt to so many parts, each of which has so many sums of its own.
    unsigned parts, sums;
    char rest[64 - 24];
    size_t workspace() const { return parts > 1 ? 1024 : 0; }
};
struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

API size_t cublasLtGetVersion() { return 130000; }
API int cublasLtCreate(Library** made) {
    ENTER();
    WANT(in_context(), 1, "no current context");
    *made = born(new Library, "library");
    return SUCCESS;
}
API int cublasLtDestroy(Library* library) { return destroy(library, "library", __func__, INVALID_VALUE); }
API int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    ENTER();
    WANT(stride >= int64_t(rows), INVALID_VALUE, "columns that overlap");
    *made = born(new Layout{type, rows, columns, stride}, "layout");
    return SUCCESS;
}
API int cublasLtMatrixLayoutDestroy(Layout* layout) { return destroy(layout, "layout", __func__, INVALID_VALUE); }
API int cublasLtMatmulDescCreate(Description** made, int compute, int scale) {
    ENTER();
    *made = born(new Description{compute, scale}, "description");
    return SUCCESS;
}
API int cublasLtMatmulDescDestroy(Description* description) { return destroy(description, "description", __func__, INVALID_VALUE); }
API int cublasLtMatmulDescSetAttribute(Description* description, int attribute, const int* value, size_t bytes) {
    ENTER();
    bool flag = bytes == 4 && (attribute == 3 || attribute == 4), epilogue = bytes == 4 && attribute == 7 && *value == 4;
    WANT(flag || epilogue || (bytes == 8 && attribute == 8), INVALID_VALUE, "attribute " + std::to_string(attribute));
    if (flag)
        description->transposed[attribute - 3] = *value;
    else if (epilogue)
        description->epilogue = *value;
    else
        memcpy(&description->bias, value, bytes);
    return SUCCESS;
}
API int cublasLtMatmulPreferenceCreate(Preference** made) {
    ENTER();
    *made = born(new Preference, "preference");
    return SUCCESS;
}
API int cublasLtMatmulPreferenceDestroy(Preference* preference) { return destroy(preference, "preference", __func__, INVALID_VALUE); }
API int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, size_t bytes) {
    ENTER();
    bool alignment = attribute >= 5 && attribute <= 8 && bytes == 4;
    WANT(alignment || (attribute == 1 && bytes == 8) || (attribute == 3 && bytes == 4), INVALID_VALUE, "attribute " + std::to_string(attribute));
    if (alignment)
        preference->alignment[attribute - 5] = *static_cast<const unsigned*>(value);
    else if (attribute == 3)
        preference->schemes = *static_cast<const unsigned*>(value);
    else
        preference->workspace = *static_cast<const size_t*>(value);
    return SUCCESS;
}
API int cublasLtMatmulAlgoGetHeuristic(Library*, Description* d, Layout* a, Layout* b, Layout* c, Layout* result, Preference* preference, int wanted,
                                       Heuristic* found, int* count) {
    ENTER();
    WANT(!captures(), FAILED, "while this thread captures");
    uint64_t m = c->rows, n = c->columns, k = d->transposed[0] ? a->rows : a->columns;
    bool fit = a->is(d->transposed[0], m, k) && b->is(d->transposed[1], k, n) && a->type == b->type && c == result;
    WANT(fit && wanted == 1 && d->compute == 68 && d->scale == 0, INVALID_VALUE, "layouts that don't fit");
    memset(found, 0, sizeof *found);
    auto& algorithm = found->algorithm;
    algorithm.alignment = preference->alignment;
    algorithm.parts = n < 8 && preference->workspace && preference->schemes ? 4 : 1;
    algorithm.sums = n < 64 ? 1 : 2;
    found->workspace = algorithm.workspace();
    *count = 1;
    return SUCCESS;
}
API int cublasLtMatmulAlgoCheck(Library*, Description* d, Layout* a, Layout* b, Layout* c, Layout* result, const Algorithm* algorithm, Heuristic* found) {
    ENTER();
    WANT(!captures(), FAILED, "while this thread captures");
    uint64_t k = d->transposed[0] ? a->rows : a->columns;
    bool fit = a->is(d->transposed[0], c->rows, k) && b->is(d->transposed[1], k, c->columns) && a->type == b->type && c == result;
    WANT(fit, INVALID_VALUE, "layouts that don't fit");
    memset(found, 0, sizeof *found);
    found->algorithm = *algorithm;
    found->workspace = algorithm->workspace();
    return SUCCESS;
}
API int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, unsigned* value, size_t bytes, size_t* written) {
    ENTER();
    WANT((attribute == 2 || attribute == 3) && bytes == 4, INVALID_VALUE, "attribute " + std::to_string(attribute));
    *value = attribute == 2 ? algorithm->parts : algorithm->parts > 1 ? 2 : 0;
    *written = 4;
    return SUCCESS;
}
API int cublasLtMatmul(Library*, Description* description, const float* alpha, const void* a, Layout* a_layout, const void* b, Layout* b_layout,
                       const float* beta, const void* c, Layout* c_layout, void* result, Layout*, const Algorithm* algorithm, void* workspace,
                       size_t workspace_bytes, Stream* stream) {
    ENTER();
    WANT(in_context() && on_device(Pointer(workspace), workspace_bytes), INVALID_VALUE, "context or workspace");
    WANT(algorithm->workspace() <= workspace_bytes, INVALID_VALUE, "less workspace than the algorithm needs");
    const auto& alignment = algorithm->alignment;
    WANT(!(Pointer(a) % alignment[0]) && !(Pointer(b) % alignment[1]) && !(Pointer(c) % alignment[2]) && !(Pointer(result) % alignment[3]), INVALID_VALUE, "an operand's alignment");
    const void* bias = description->bias;
    WANT(on_device(Pointer(a), a_layout->bytes()) && on_device(Pointer(b), b_layout->bytes()) && on_device(Pointer(c), c_layout->bytes()) &&
             on_device(Pointer(result), c_layout->bytes()) &&
             (!description->biased() || on_device(Pointer(bias), c_layout->rows * c_layout->size())),
         INVALID_VALUE, "an operand reaches beyond its memory");
    if (is_broken()) return FAILED;
    unsigned strands = algorithm->parts * algorithm->sums;
    auto run = [=, d = *description, la = *a_layout, lb = *b_layout, lc = *c_layout, alpha = *alpha, beta = *beta] {
        uint64_t k = d.transposed[0] ? la.rows : la.columns;
        std::vector<float> row(k);
        for (uint64_t i = 0; i < lc.rows; i++) {
            for (uint64_t x = 0; x < k; x++) row[x] = d.transposed[0] ? la.get(a, x, i) : la.get(a, i, x);
            for (uint64_t j = 0; j < lc.columns; j++) {
                float sum = 0, own[8] = {};
                for (uint64_t x = 0; x < k; x++) own[x % strands] += row[x] * (d.transposed[1] ? lb.get(b, j, x) : lb.get(b, x, j));
                for (unsigned strand = 0; strand < strands; strand++) sum += own[strand];
                lc.put(result, i, j, alpha * sum + (beta ? beta * lc.get(c, i, j) : 0.0f) + (d.biased() ? lc.get(bias, i, 0) : 0.0f));
            }
        }
        return 0;
    };
    Pointer d_bias = Pointer(description->biased() ? bias : result);
    int code = submit(__func__, stream, {run, {Pointer(a), Pointer(b), Pointer(c), Pointer(result), d_bias}});
    return code ? FAILED : SUCCESS;
}
